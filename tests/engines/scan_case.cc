#include "tests/engines/scan_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <random>
#include <tuple>

namespace ttr::scan {
namespace {

using test::Epsilon;
using test::Fill;
using test::MakeData;

using Complex = std::complex<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Row(const TensorView& view, std::int64_t b, std::int64_t t, std::int64_t h,
                        bool normalise) {
  std::vector<double> row(static_cast<std::size_t>(view.size(3)));
  double sum = 1e-6;
  for (std::size_t d = 0; d < row.size(); ++d) {
    row[d] = view.At({b, t, h, static_cast<std::int64_t>(d)});
    sum += row[d] * row[d];
  }
  for (double& x : row) x /= normalise ? std::sqrt(sum) : 1;
  return row;
}

/// One entry of a memory: its value, what it is made of, and its error.
struct Entry {
  Complex value = 0;
  double size = 0, error = 0;

  void Step(double log_decay, double phase, Complex written, double rounding) {
    const double g = std::exp(log_decay);
    const double added = std::abs(written.real()) + std::abs(written.imag());
    if (g == 0) *this = {};
    const Complex turn(std::cos(phase), std::sin(phase));
    const double x = g == 0 ? 0 : std::abs(log_decay);
    error = g * error + rounding * ((1 + x + std::abs(phase)) * g * size + added);
    size = g * size + added;
    // Written out: a product of complex numbers looks for infinities.
    const double re = g * (value.real() * turn.real() - value.imag() * turn.imag());
    const double im = g * (value.real() * turn.imag() + value.imag() * turn.real());
    value = phase == 0
                ? Complex(g * value.real() + written.real(), g * value.imag() + written.imag())
                : Complex(re + written.real(), im + written.imag());
  }
};

/// The recurrence of one value column of one memory.
class Column {
 public:
  Column(const Problem& problem, std::int64_t n, std::int64_t h, std::int64_t c)
      : p_(problem), n_(n), h_(h), c_(c), matrix_(problem.state.view.rank() == 4) {
    entries_.resize(static_cast<std::size_t>(matrix_ ? p_.state.view.size(2) : 1));
    rounding_ = 8 * Epsilon(p_.state.view.dtype());
    for (std::size_t r = 0; r < entries_.size(); ++r) {
      const auto row = static_cast<std::int64_t>(r);
      const double re = matrix_ ? p_.state.view.At({n, h, row, c}) : p_.state.view.At({n, h, c});
      const double im = p_.state_im.view.defined() ? p_.state_im.view.At({n, h, c}) : 0;
      entries_[r].value = {re, im};
      entries_[r].size = std::abs(re) + std::abs(im);
    }
  }

  void Write(std::int64_t b, std::int64_t t) {
    if (!p_.v.view.defined()) return;
    const std::int64_t value_head = h_ * p_.v.view.size(2) / p_.state.view.size(1);
    const double w = p_.importance.view.defined() ? p_.importance.view.At({b, t, h_}) : 1;
    const double v = p_.v.view.At({b, t, value_head, c_});
    if (matrix_) {
      const std::int64_t key_head = h_ * p_.k.view.size(2) / p_.state.view.size(1);
      const std::vector<double> k = Row(p_.k.view, b, t, key_head, p_.options.normalise_qk);
      const double dt = p_.dt.view.At({b, t, h_, c_});
      for (std::size_t r = 0; r < entries_.size(); ++r) {
        const double a = p_.a.view.At({h_, c_, static_cast<std::int64_t>(r)});
        entries_[r].Step(dt * a, 0, w * v * k[r], rounding_);
      }
      return;
    }
    double log_decay = 0;
    if (!p_.factors.empty()) log_decay = std::log(p_.factors[static_cast<std::size_t>(h_)]);
    if (const TensorView& view = p_.log_decay.view; view.defined()) {
      log_decay = view.rank() == 3 ? view.At({b, t, h_}) : view.At({b, t, h_, c_});
    }
    const double phase = p_.phase.view.defined() ? p_.phase.view.At({b, t, h_, c_}) : 0;
    const double v_im = p_.v_im.view.defined() ? p_.v_im.view.At({b, t, h_, c_}) : 0;
    double weight = w;
    if (p_.options.weight == Weight::kComplement) weight = -std::expm1(log_decay);
    if (p_.options.weight == Weight::kRootComplement)
      weight = std::sqrt(-std::expm1(2 * log_decay));
    entries_[0].Step(log_decay, phase, {weight * v, weight * v_im}, rounding_);
  }

  /// The answer to query `query` of this memory, and its bound.
  std::pair<double, double> Read(std::int64_t b, std::int64_t t, std::int64_t query) const {
    double y = 0, bound = 0;
    std::vector<double> q = {1};
    if (matrix_) {
      const std::int64_t heads = p_.state.view.size(1);
      const std::int64_t count = p_.q.view.size(2);
      const std::int64_t head = count > heads ? h_ * (count / heads) + query : h_ * count / heads;
      q = Row(p_.q.view, b, t, head, p_.options.normalise_qk);
    }
    const double r = rounding_ * (1 + std::sqrt(static_cast<double>(q.size())));
    for (std::size_t i = 0; i < q.size(); ++i) {
      y += q[i] * entries_[i].value.real();
      bound += std::abs(q[i]) * (entries_[i].error + r * entries_[i].size);
    }
    return {p_.options.scale * y, std::abs(p_.options.scale) * bound};
  }

  void Store(Expected& expected) const {
    const TensorView& state = p_.state.view;
    const auto rows = static_cast<std::int64_t>(entries_.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(
          ((n_ * state.size(1) + h_) * rows + r) * state.size(matrix_ ? 3 : 2) + c_);
      const Entry& entry = entries_[static_cast<std::size_t>(r)];
      expected.state[at] = entry.value.real();
      expected.im[at] = entry.value.imag();
      expected.state_bound[at] = expected.im_bound[at] = entry.error + rounding_ * entry.size;
    }
  }

 private:
  const Problem& p_;
  std::int64_t n_, h_, c_;
  bool matrix_;
  double rounding_;
  std::vector<Entry> entries_;
};

/// With e the error of y, that of y / |y| is at most (e + |y|/|y| |e|) / |y|.
void Normalise(const Options& options, double rounding, std::size_t width, Expected& expected) {
  for (std::size_t row = 0; row + width <= expected.y.size(); row += width) {
    double sum = 0, error = 0;
    for (std::size_t d = row; d < row + width; ++d) {
      sum += expected.y[d] * expected.y[d];
      error += expected.y_bound[d] * expected.y_bound[d];
    }
    const double count = options.output_norm == OutputNorm::kRms ? static_cast<double>(width) : 1;
    const double norm = std::sqrt(sum / count);
    for (std::size_t d = row; d < row + width && norm != 0; ++d) {
      const double share = std::abs(expected.y[d]) / std::sqrt(sum);
      expected.y[d] /= norm;
      expected.y_bound[d] = (expected.y_bound[d] + share * std::sqrt(error)) / norm +
                            rounding * std::abs(expected.y[d]);
    }
  }
}

void ExpectTensor(const Data& data, const std::vector<double>& expected,
                  const std::vector<double>& bound, const std::string& what) {
  const Tensor got = Tensor::Copy(data.view, DType::kFloat64);
  // Stored narrower than it was computed: half a unit in the last place more.
  const double rounding = Epsilon(data.view.dtype()) / 2;
  ASSERT_EQ(got.as<double>().size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double actual = got.as<double>()[i];
    ASSERT_EQ(std::isfinite(actual), std::isfinite(expected[i]))
        << what << " [" << i << "] is " << actual << ", expected " << expected[i];
    // The bound is of both parts of a complex number, of which one may not be finite.
    if (!std::isfinite(actual) || !std::isfinite(bound[i])) continue;
    const double allowed = bound[i] + rounding * std::abs(expected[i]) +
                           static_cast<double>(std::numeric_limits<float>::min());
    ASSERT_LE(std::abs(actual - expected[i]), allowed)
        << what << " [" << i << "] is " << actual << ", expected " << expected[i];
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

Problem::Problem(const Case& c) : cu_seqlens(c.cu_seqlens), options(c.options) {
  std::mt19937_64 random(std::hash<std::string>()(c.name));
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0.05, 0.95);
  const auto draw = [&] { return normal(random); };
  const std::int64_t states =
      c.cu_seqlens.empty() ? c.batch : static_cast<std::int64_t>(c.cu_seqlens.size()) - 1;
  const Shape per_value{c.batch, c.tokens, c.heads, c.value_dim};
  const Shape per_head{c.batch, c.tokens, c.heads};
  const auto make = [&](Data& data, DType dtype, const Shape& shape,
                        const std::function<double()>& number) {
    data = MakeData(dtype, shape, c.head_major);
    Fill(data, number);
  };
  std::size_t next = 0;
  const auto deal = [&] { return c.log_decays[next++ % c.log_decays.size()]; };
  const auto gate = [&] { return uniform(random); };

  const Shape state_shape = c.matrix ? Shape{states, c.heads, c.key_dim, c.value_dim}
                                     : Shape{states, c.heads, c.value_dim};
  state = MakeData(c.state, state_shape, false);
  Fill(state, draw);
  if (c.phase) {
    state_im = MakeData(c.state, state_shape, false);
    Fill(state_im, draw);
  }
  const std::int64_t outputs = c.matrix ? std::max(c.heads, c.query_heads) : c.heads;
  if (c.reads) {
    make(y, c.data, {c.batch, c.tokens, outputs, c.value_dim}, [] { return kNaN; });
    if (c.matrix) make(q, c.data, {c.batch, c.tokens, c.query_heads, c.key_dim}, draw);
  }
  if (!c.writes) return;
  const std::int64_t value_heads = c.matrix ? c.value_heads : c.heads;
  make(v, c.data, {c.batch, c.tokens, value_heads, c.value_dim}, draw);
  if (c.importance) make(importance, c.gates, per_head, gate);
  if (c.matrix) {
    make(k, c.data, {c.batch, c.tokens, c.key_heads, c.key_dim}, draw);
    make(dt, c.gates, per_value, gate);
    a = MakeData(c.gates, {c.heads, c.value_dim, c.key_dim}, false);
    Fill(a, deal);
    return;
  }
  if (c.v_im) make(v_im, c.data, per_value, draw);
  if (c.phase) make(phase, c.gates, per_value, [&] { return c.largest_phase * draw(); });
  switch (c.gate) {
    case Gate::kNone: break;
    case Gate::kFactor:
      for (std::int64_t h = 0; h < c.heads; ++h) factors.push_back(std::exp(deal()));
      break;
    case Gate::kScalar: make(log_decay, c.gates, per_head, deal); break;
    case Gate::kChannel: make(log_decay, c.gates, per_value, deal); break;
  }
}

Call Problem::call() const {
  Call c;
  c.v = v.view;
  c.v_im = v_im.view;
  c.importance = importance.view;
  c.log_decay = log_decay.view;
  c.phase = phase.view;
  c.q = q.view;
  c.k = k.view;
  c.dt = dt.view;
  c.a = a.view;
  c.decay_factors = factors;
  c.cu_seqlens = cu_seqlens;
  c.state = state.view;
  c.state_im = state_im.view;
  c.y = y.view;
  return c;
}

Call Problem::Range(std::int64_t begin, std::int64_t count) const {
  Call part = call();
  for (TensorView* view : {&part.v, &part.v_im, &part.importance, &part.log_decay, &part.phase,
                           &part.q, &part.k, &part.dt, &part.y}) {
    if (view->defined()) *view = view->Slice(1, begin, count);
  }
  return part;
}

Expected Recur(const Problem& problem) {
  const Call c = problem.call();
  const bool matrix = c.state.rank() == 4;
  const TensorView& timed = c.v.defined() ? c.v : c.y;
  const std::int64_t heads = c.state.size(1), columns = c.state.size(matrix ? 3 : 2);
  Expected expected;
  expected.state.resize(static_cast<std::size_t>(c.state.shape().elements()));
  expected.state_bound = expected.im = expected.im_bound = expected.state;
  if (c.y.defined()) {
    expected.y.assign(static_cast<std::size_t>(c.y.shape().elements()), kNaN);
    expected.y_bound = expected.y;
  }
  const std::int64_t queries = c.y.defined() ? c.y.size(2) / heads : 0;
  for (std::int64_t n = 0; n < c.state.size(0); ++n) {
    const bool packed = !c.cu_seqlens.empty();
    const auto at = static_cast<std::size_t>(n);
    const std::int64_t b = packed ? 0 : n;
    const std::int64_t first = packed ? c.cu_seqlens[at] : 0;
    const std::int64_t last = packed ? c.cu_seqlens[at + 1] : timed.size(1);
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = 0; d < columns; ++d) {
        Column column(problem, n, h, d);
        for (std::int64_t t = first; t < last; ++t) {
          if (!problem.options.read_before) column.Write(b, t);
          for (std::int64_t r = 0; r < queries; ++r) {
            const auto index = static_cast<std::size_t>(
                ((b * timed.size(1) + t) * c.y.size(2) + h * queries + r) * columns + d);
            std::tie(expected.y[index], expected.y_bound[index]) = column.Read(b, t, r);
          }
          if (problem.options.read_before) column.Write(b, t);
        }
        column.Store(expected);
      }
    }
  }
  if (problem.options.output_norm != OutputNorm::kNone) {
    Normalise(problem.options, 8 * Epsilon(c.state.dtype()), static_cast<std::size_t>(columns),
              expected);
  }
  return expected;
}

void ExpectClose(const Problem& problem, const Expected& expected, const std::string& what) {
  if (problem.y.view.defined()) {
    ExpectTensor(problem.y, expected.y, expected.y_bound, what + ": y");
  }
  ExpectTensor(problem.state, expected.state, expected.state_bound, what + ": state");
  if (problem.state_im.view.defined()) {
    ExpectTensor(problem.state_im, expected.im, expected.im_bound, what + ": state.im");
  }
}

void RunForward(const Problem& problem, const Call& call, Executor& executor) {
  const bool matrix = call.state.rank() == 4;
  Sizes sizes;
  sizes.key_dim = matrix ? call.state.size(2) : 0;
  sizes.value_dim = matrix ? call.state.size(3) : call.state.size(1) * call.state.size(2);
  if (call.q.defined()) {
    sizes.queries = std::max<std::int64_t>(1, call.q.size(2) / call.state.size(1));
  }
  sizes.state = call.state.dtype();
  sizes.whole_rows = problem.options.output_norm != OutputNorm::kNone;
  std::vector<std::byte> scratch(ScratchBytes(sizes, executor.threads()), std::byte{0xff});
  Forward(problem.options, call, executor, scratch);
}

}  // namespace ttr::scan
