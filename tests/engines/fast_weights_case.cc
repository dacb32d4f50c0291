#include "tests/engines/fast_weights_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

namespace ttr::fast_weights {
namespace {

using test::Epsilon;
using test::Fill;
using test::MakeData;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double At(const TensorView& view, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) {
  return view.At({b, t, h, d});
}

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double StepSize(const Options& options, double s, double n) {
  switch (options.step) {
    case Step::kOne: return 1;
    case Step::kInput: return s;
    case Step::kNlms: return n == 0 ? 0 : options.eta / (n + options.eps);
    case Step::kLonghorn: return s / (1 + s * n);
    case Step::kEfla: return n == 0 ? s : -std::expm1(-s * n) / n;
    case Step::kLogWeight: break;
  }
  return kNaN;
}

std::vector<double> Row(const TensorView& view, std::int64_t b, std::int64_t t, std::int64_t h,
                        bool normalise) {
  std::vector<double> row(static_cast<std::size_t>(view.size(3)));
  for (std::size_t d = 0; d < row.size(); ++d) row[d] = At(view, b, t, h, static_cast<int>(d));
  if (normalise) {
    const double norm = std::sqrt(Norm(row) * Norm(row) + 1e-6);
    for (double& x : row) x /= norm;
  }
  return row;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

Problem::Problem(const Case& c) : factors(c.factors), cu_seqlens(c.cu_seqlens), options(c.options) {
  if (!factors.empty()) options.decay = Decay::kConstant;
  if (!c.log_decays.empty()) options.decay = Decay::kScalar;
  std::mt19937_64 random(std::hash<std::string>()(c.name));
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0.05, 0.95);
  const std::int64_t outputs = std::max(c.heads, c.query_heads);
  const std::int64_t states =
      c.cu_seqlens.empty() ? c.batch : static_cast<std::int64_t>(c.cu_seqlens.size()) - 1;
  const double unit = 1 / std::sqrt(static_cast<double>(c.key_dim));
  auto draw = [&] { return normal(random); };
  auto draw_unit = [&] { return unit * normal(random); };

  state = MakeData(c.state, {states, c.heads, c.key_dim, c.value_dim}, false);
  Fill(state, draw);
  if (c.reads) {
    q = MakeData(c.data, {c.batch, c.tokens, c.query_heads, c.key_dim}, c.head_major);
    Fill(q, draw_unit);
    y = MakeData(c.data, {c.batch, c.tokens, outputs, c.value_dim}, c.head_major);
    Fill(y, [] { return kNaN; });
  }
  if (!c.writes) return;
  k = MakeData(c.data, {c.batch, c.tokens, c.key_heads, c.key_dim}, c.head_major);
  Fill(k, draw_unit);
  const double factor = c.keys == Keys::kHuge ? 1e6 : c.keys == Keys::kTiny ? 1e-6 : 1;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t h = 0; h < c.key_heads; ++h) {
        for (std::int64_t d = 0; d < c.key_dim; ++d) {
          double x = At(k.view, b, t, h, d) * factor;
          if (c.keys == Keys::kRepeated) x = At(k.view, b, t % 3, h, d);
          if (c.keys == Keys::kZero && t % 3 == 1) x = 0;
          if (c.keys == Keys::kCollinear) {
            x = At(k.view, b, 0, h, d) * (t % 2 == 0 ? 1 : -0.5);
          }
          k.view.Set({b, t, h, d}, x);
        }
      }
    }
  }
  v = MakeData(c.data, {c.batch, c.tokens, c.value_heads, c.value_dim}, c.head_major);
  Fill(v, draw);
  const Step rule = options.step;
  if (rule == Step::kInput || rule == Step::kLonghorn || rule == Step::kEfla) {
    step = MakeData(c.gates, {c.batch, c.tokens, c.heads}, c.head_major);
    // The explicit step is stable below 2 / |k|^2; the others are for every size of key.
    const bool explicit_step = rule == Step::kInput;
    Fill(step, [&] {
      return uniform(random) / (explicit_step ? factor * factor : 1) * (explicit_step ? 1 : 3);
    });
  }
  if (!c.log_decays.empty()) {
    log_decay = MakeData(c.gates, {c.batch, c.tokens, c.heads}, c.head_major);
    std::size_t next = 0;
    Fill(log_decay, [&] { return c.log_decays[next++ % c.log_decays.size()]; });
  }
}

Call Problem::call() const {
  Call call{{.q = q.view, .k = k.view, .v = v.view, .log_decay = log_decay.view, .step = step.view},
            {.state = state.view}};
  call.decay_factors = factors;
  call.cu_seqlens = cu_seqlens;
  call.y = y.view;
  return call;
}

Call Problem::Range(std::int64_t begin, std::int64_t count) const {
  Call part = call();
  for (TensorView* view : {&part.q, &part.k, &part.v, &part.log_decay, &part.step, &part.y}) {
    if (view->defined()) *view = view->Slice(1, begin, count);
  }
  return part;
}

Expected Recur(const Problem& problem) {
  const Call c = problem.call();
  const Options& o = problem.options;
  const std::int64_t heads = c.state.size(1);
  const std::int64_t key_dim = c.state.size(2), value_dim = c.state.size(3);
  const TensorView& timed = c.k.defined() ? c.k : c.q;
  const std::int64_t length = timed.size(1);
  const std::int64_t sequences = c.state.size(0);
  const double rounding = Epsilon(c.state.dtype()) * (4 + std::sqrt(static_cast<double>(key_dim)));

  Expected expected;
  expected.state.resize(static_cast<std::size_t>(c.state.shape().elements()));
  expected.state_bound = expected.state;
  if (c.y.defined()) {
    expected.y.assign(static_cast<std::size_t>(c.y.shape().elements()), kNaN);
    expected.y_bound = expected.y;
  }
  for (std::int64_t n = 0; n < sequences; ++n) {
    const bool packed = !c.cu_seqlens.empty();
    const auto at = static_cast<std::size_t>(n);
    const std::int64_t batch = packed ? 0 : n;
    const std::int64_t first = packed ? c.cu_seqlens[at] : 0;
    const std::int64_t last = packed ? c.cu_seqlens[at + 1] : length;
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t queries =
          c.q.defined() ? std::max<std::int64_t>(1, c.q.size(2) / heads) : 0;
      std::vector<std::vector<double>> norms(static_cast<std::size_t>(last - first));
      for (std::int64_t column = 0; column < value_dim; ++column) {
        std::vector<double> m(static_cast<std::size_t>(key_dim));
        for (std::int64_t d = 0; d < key_dim; ++d) {
          m[static_cast<std::size_t>(d)] = c.state.At({n, h, d, column});
        }
        double size = Norm(m);
        double error = 0;
        auto read = [&](std::int64_t t) {
          for (std::int64_t r = 0; r < queries; ++r) {
            const std::int64_t q_head = queries > 1 ? h * queries + r : h * c.q.size(2) / heads;
            const std::vector<double> q = Row(c.q, batch, t, q_head, o.normalise_qk);
            double y = 0;
            for (std::size_t d = 0; d < q.size(); ++d) y += q[d] * m[d];
            const auto index = static_cast<std::size_t>(
                ((batch * length + t) * c.y.size(2) + h * queries + r) * value_dim + column);
            expected.y[index] = o.scale * y;
            expected.y_bound[index] = std::abs(o.scale) * Norm(q) * (error + rounding * size);
          }
        };
        for (std::int64_t t = first; t < last; ++t) {
          if (o.read_before) read(t);
          if (c.k.defined()) {
            const std::vector<double> k =
                Row(c.k, batch, t, h * c.k.size(2) / heads, o.normalise_qk);
            const double v = At(c.v, batch, t, h * c.v.size(2) / heads, column);
            const double log_decay = c.log_decay.defined() ? c.log_decay.At({batch, t, h})
                                     : c.decay_factors.empty()
                                         ? 0
                                         : std::log(c.decay_factors[static_cast<std::size_t>(h)]);
            const double g = std::exp(log_decay);
            const double length_k = Norm(k);
            const double b =
                StepSize(o, c.step.defined() ? c.step.At({batch, t, h}) : 1, length_k * length_k);
            if (log_decay == -std::numeric_limits<double>::infinity()) {
              std::fill(m.begin(), m.end(), 0.0);
              size = error = 0;
            }
            double e = v;
            for (std::size_t d = 0; d < k.size(); ++d) {
              m[d] *= g;
              if (o.write == Write::kDelta) e -= k[d] * m[d];
            }
            for (std::size_t d = 0; d < k.size(); ++d) m[d] += b * e * k[d];
            const double n_k = o.write == Write::kDelta ? length_k * length_k : 0;
            error = g * std::max(1.0, std::abs(1 - b * n_k)) * error +
                    rounding * (g * size + b * length_k * (std::abs(v) + length_k * g * size));
            size = g * size + b * std::abs(e) * length_k;
          }
          if (!o.read_before) read(t);
        }
        for (std::int64_t d = 0; d < key_dim; ++d) {
          const auto index =
              static_cast<std::size_t>(((n * heads + h) * key_dim + d) * value_dim + column);
          expected.state[index] = m[static_cast<std::size_t>(d)];
          expected.state_bound[index] = error + rounding * size;
        }
      }
    }
  }
  if (o.output_norm == OutputNorm::kNone) return expected;
  // With e the error of y, that of y / |y| is at most (e + |y|/|y| |e|) / |y|.
  const auto width = static_cast<std::size_t>(value_dim);
  for (std::size_t row = 0; row + width <= expected.y.size(); row += width) {
    double sum = 0, error = 0;
    for (std::size_t d = row; d < row + width; ++d) {
      sum += expected.y[d] * expected.y[d];
      error += expected.y_bound[d] * expected.y_bound[d];
    }
    const double mean = o.output_norm == OutputNorm::kRms ? static_cast<double>(width) : 1;
    const double norm = std::sqrt(sum / mean + o.output_norm_eps);
    for (std::size_t d = row; d < row + width && norm != 0; ++d) {
      const double share = std::abs(expected.y[d]) / std::sqrt(sum);
      expected.y[d] /= norm;
      expected.y_bound[d] = (expected.y_bound[d] + share * std::sqrt(error)) / norm +
                            rounding * std::abs(expected.y[d]);
    }
  }
  return expected;
}

namespace {

void ExpectTensor(const TensorView& view, const std::vector<double>& expected,
                  const std::vector<double>& bound, const std::string& what) {
  // Stored narrower than it was computed: half a unit in the last place more.
  const double rounding = Epsilon(view.dtype()) / 2;
  std::size_t i = 0;
  double worst = 0;
  for (std::int64_t a = 0; a < view.size(0); ++a) {
    for (std::int64_t b = 0; b < view.size(1); ++b) {
      for (std::int64_t c = 0; c < view.size(2); ++c) {
        for (std::int64_t d = 0; d < view.size(3); ++d, ++i) {
          const double actual = At(view, a, b, c, d);
          const auto where = [&] {
            return what + " at " + Shape{a, b, c, d}.ToString() + " is " + std::to_string(actual) +
                   ", expected " + std::to_string(expected[i]);
          };
          if (!std::isfinite(expected[i])) {
            if (std::isfinite(actual)) FAIL() << where();
            continue;
          }
          if (!std::isfinite(actual)) FAIL() << where();
          const double allowed = bound[i] + rounding * std::abs(expected[i]) +
                                 static_cast<double>(std::numeric_limits<float>::min());
          const double error = std::abs(actual - expected[i]);
          worst = std::max(worst, error / allowed);
          if (error > allowed) FAIL() << where() << ", allowed " << allowed << " off, is " << error;
        }
      }
    }
  }
  if (const char* verbose = std::getenv("TTR_TEST_VERBOSE"); verbose != nullptr && *verbose) {
    std::printf("%-60s %.3f of the bound\n", what.c_str(), worst);
  }
}

}  // namespace

void ExpectClose(const Problem& problem, const Expected& expected, const std::string& what) {
  if (problem.y.view.defined()) {
    ExpectTensor(problem.y.view, expected.y, expected.y_bound, what + ": y");
  }
  ExpectTensor(problem.state.view, expected.state, expected.state_bound, what + ": state");
}

void RunForward(const Problem& problem, const Call& call, Executor& executor) {
  const TensorView& timed = call.k.defined() ? call.k : call.q;
  Sizes sizes;
  sizes.tokens = timed.size(1);
  sizes.key_dim = call.state.size(2);
  sizes.value_dim = call.state.size(3);
  if (call.q.defined()) {
    sizes.queries = std::max<std::int64_t>(1, call.q.size(2) / call.state.size(1));
  }
  sizes.state = call.state.dtype();
  std::vector<std::byte> scratch(ScratchBytes(problem.options, sizes, executor.threads()),
                                 std::byte{0xff});
  Forward(problem.options, call, executor, scratch);
}

}  // namespace ttr::fast_weights
