#include "tests/engines/scan_case.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>

namespace ttr::scan {
namespace {

using definition::Constants;
using definition::Matrix;
using definition::Token;
using definition::Vector;
using test::Epsilon;
using test::Fill;
using test::MakeData;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Recipe RecipeOf(const Problem& p) {
  const bool matrix = p.state.view.rank() == 4;
  Recipe recipe;
  if (!matrix) recipe.function.kind = FunctionClass::kConstant;
  Decay& decay = recipe.weights.decay;
  if (!p.factors.empty()) decay = Decay::kConstant;
  if (p.log_decay.view.defined()) {
    decay = p.log_decay.view.rank() == 3 ? Decay::kScalar : Decay::kChannel;
  }
  if (matrix) decay = Decay::kMatrix;
  recipe.weights.phase = p.state_im.view.defined();
  switch (p.options.weight) {
    case Weight::kOne: break;
    case Weight::kComplement: recipe.weights.importance = Importance::kComplement; break;
    case Weight::kRootComplement: recipe.weights.importance = Importance::kRootComplement; break;
  }
  if (p.importance.view.defined()) recipe.weights.importance = Importance::kInput;
  recipe.reading.read = p.options.read_before ? Read::kBefore : Read::kAfter;
  recipe.reading.normalise_qk = p.options.normalise_qk;
  // A vector is read without a query.
  (matrix ? recipe.reading.scale : recipe.optimizer.eta) = p.options.scale;
  return recipe;
}

/// The bounds of scan_case.h.
class RoundingErrors final : public test::Errors {
 public:
  RoundingErrors(const Constants& constants, const Matrix& start, const Matrix& start_im,
                 double epsilon)
      : constants_(constants),
        rounding_(8 * epsilon),
        size_(start.array().abs()),
        error_(Eigen::ArrayXXd::Zero(start.rows(), start.cols())) {
    if (start_im.size() > 0) size_ += start_im.array().abs();
  }

  void Write(const Token& token, const Matrix&) override {
    const auto memory = definition::MakeMemory(constants_);
    memory->Write(token);
    const definition::Arrays written = memory->Save();
    const bool complex = written.contains("state.im");
    for (Eigen::Index r = 0; r < size_.rows(); ++r) {
      for (Eigen::Index c = 0; c < size_.cols(); ++c) {
        const auto i = static_cast<std::size_t>(r * size_.cols() + c);
        double added = std::abs(written.at("state").values[i]);
        if (complex) added += std::abs(written.at("state.im").values[i]);
        Step(LogDecay(token, r, c), complex ? std::abs(token.phase(c)) : 0, added, size_(r, c),
             error_(r, c));
      }
    }
  }
  Vector Read(const Vector& q) const override {
    const auto rows = static_cast<double>(size_.rows());
    const Eigen::ArrayXXd bound = error_ + rounding_ * (1 + std::sqrt(rows)) * size_;
    if (q.size() == 0) {
      return std::abs(constants_.recipe.optimizer.eta) * bound.row(0).matrix().transpose();
    }
    return bound.matrix().transpose() * q.cwiseAbs();
  }
  Matrix State() const override { return (error_ + rounding_ * size_).matrix(); }

 private:
  double LogDecay(const Token& token, Eigen::Index r, Eigen::Index c) const {
    if (constants_.recipe.weights.decay == Decay::kMatrix) return token.dt(c) * constants_.a(c, r);
    if (token.log_decay.size() == 0) return 0;
    return token.log_decay(token.log_decay.size() == 1 ? 0 : c);
  }

  void Step(double log_decay, double phase, double added, double& size, double& error) const {
    const double g = std::exp(log_decay);
    if (g == 0) {  // what is forgotten need not be a number
      size = added;
      error = rounding_ * added;
      return;
    }
    error = g * error + rounding_ * ((1 + std::abs(log_decay) + phase) * g * size + added);
    size = g * size + added;
  }

  Constants constants_;
  double rounding_;
  Eigen::ArrayXXd size_, error_;  // of every entry: S and how far it may be off
};

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

Expected Define(const Problem& problem, bool bounds) {
  const Call c = problem.call();
  const double epsilon = Epsilon(c.state.dtype());
  const test::Question question{.recipe = RecipeOf(problem),
                                .inputs = {.q = c.q,
                                           .k = c.k,
                                           .v = c.v,
                                           .v_im = c.v_im,
                                           .log_decay = c.log_decay,
                                           .phase = c.phase,
                                           .dt = c.dt,
                                           .a = c.a,
                                           .importance = c.importance},
                                .decay_factors = problem.factors,
                                .cu_seqlens = problem.cu_seqlens,
                                .state = c.state,
                                .state_im = c.state_im,
                                .y = c.y,
                                .output_norm = problem.options.output_norm,
                                .norm_rounding = 8 * epsilon};
  if (!bounds) return test::Judge(question);
  return test::Judge(question, [=](const Constants& of, const Matrix& re, const Matrix& im) {
    return std::make_unique<RoundingErrors>(of, re, im, epsilon);
  });
}

void ExpectClose(const Problem& problem, const Expected& expected, const std::string& what) {
  test::ExpectAsJudged(problem.y.view, expected.y, expected.y_bound, what + ": y");
  test::ExpectAsJudged(problem.state.view, expected.state, expected.state_bound, what + ": state");
  test::ExpectAsJudged(problem.state_im.view, expected.im, expected.im_bound, what + ": state.im");
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
