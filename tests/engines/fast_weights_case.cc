#include "tests/engines/fast_weights_case.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>

namespace ttr::fast_weights {
namespace {

using definition::Constants;
using definition::Matrix;
using definition::Token;
using definition::Vector;
using test::Epsilon;
using test::Fill;
using test::MakeData;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

StepRule RuleOf(Step step) {
  switch (step) {
    case Step::kNlms: return StepRule::kNlms;
    case Step::kLonghorn: return StepRule::kLonghorn;
    case Step::kEfla: return StepRule::kEfla;
    case Step::kOne: return StepRule::kOne;
    case Step::kInput:
    case Step::kLogWeight: break;
  }
  return StepRule::kInput;
}

Recipe RecipeOf(const Options& options) {
  Recipe recipe;
  const bool erases = options.write == Write::kDelta;
  if (options.decay == Decay::kConstant) recipe.weights.decay = ttr::Decay::kConstant;
  if (options.decay == Decay::kScalar) recipe.weights.decay = ttr::Decay::kScalar;
  if (!erases && options.step == Step::kInput) recipe.weights.importance = Importance::kInput;
  if (erases) {
    recipe.optimizer = {.solver = Solver::kSgd,
                        .step = RuleOf(options.step),
                        .eta = options.eta,
                        .eps = options.eps};
  }
  recipe.reading.read = options.read_before ? Read::kBefore : Read::kAfter;
  recipe.reading.normalise_qk = options.normalise_qk;
  recipe.reading.scale = options.scale;
  return recipe;
}

/// The bounds of fast_weights_case.h.
class RoundingErrors final : public test::Errors {
 public:
  RoundingErrors(const Constants& constants, const Matrix& start, double epsilon)
      : of_one_(constants),
        erases_(constants.recipe.optimizer.solver == Solver::kSgd),
        rows_(start.rows()),
        rounding_(epsilon * (4 + std::sqrt(static_cast<double>(rows_)))),
        size_(start.colwise().norm().transpose().array()),
        error_(Eigen::ArrayXd::Zero(start.cols())) {
    of_one_.value_dim = of_one_.dims.value_dim = 1;
  }

  void Write(const Token& token, const Matrix& before) override {
    const double g = token.log_decay.size() == 0 ? 1 : std::exp(token.log_decay(0));
    if (g == 0) size_ = error_ = Eigen::ArrayXd::Zero(size_.size());
    const Vector k = token.k.col(0);
    const double written = LengthOfOne(token), length = k.norm();
    const Eigen::ArrayXd v = token.v.col(0).array();
    Eigen::ArrayXd u = v;
    if (erases_ && g != 0) u -= g * (before.transpose() * k).array();
    const double kept = std::max(1.0, erases_ ? std::abs(1 - written * length) : 0);
    error_ = g * kept * error_ + rounding_ * (g * size_ + written * (v.abs() + length * g * size_));
    size_ = g * size_ + written * u.abs();
  }
  Vector Read(const Vector& q) const override {
    return q.norm() * (error_ + rounding_ * size_).matrix();
  }
  Matrix State() const override {
    return (error_ + rounding_ * size_).matrix().transpose().replicate(rows_, 1);
  }

 private:
  /// b |k|: how long a memory of nothing is after the value 1.
  double LengthOfOne(const Token& token) const {
    const auto memory = definition::MakeMemory(of_one_);
    Token one = token;
    one.v = Matrix::Ones(1, 1);
    memory->Write(one);
    return memory->Save().at("state").vector().norm();
  }

  Constants of_one_;
  bool erases_;
  Eigen::Index rows_;
  double rounding_;
  Eigen::ArrayXd size_, error_;  // of every column: N and how far it may be off
};

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
          double x = k.view.At({b, t, h, d}) * factor;
          if (c.keys == Keys::kRepeated) x = k.view.At({b, t % 3, h, d});
          if (c.keys == Keys::kZero && t % 3 == 1) x = 0;
          if (c.keys == Keys::kCollinear) {
            x = k.view.At({b, 0, h, d}) * (t % 2 == 0 ? 1 : -0.5);
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

Expected Define(const Problem& problem) {
  const Call c = problem.call();
  const Options& o = problem.options;
  const bool erases = o.write == Write::kDelta;
  const double epsilon = Epsilon(c.state.dtype());
  const auto key_dim = static_cast<double>(c.state.size(2));
  return test::Judge({.recipe = RecipeOf(o),
                      .inputs = {.q = c.q,
                                 .k = c.k,
                                 .v = c.v,
                                 .log_decay = c.log_decay,
                                 .step = erases ? c.step : TensorView(),
                                 .importance = erases ? TensorView() : c.step},
                      .decay_factors = problem.factors,
                      .cu_seqlens = problem.cu_seqlens,
                      .state = c.state,
                      .y = c.y,
                      .output_norm = o.output_norm,
                      .output_norm_eps = o.output_norm_eps,
                      .norm_rounding = epsilon * (4 + std::sqrt(key_dim))},
                     [=](const Constants& constants, const Matrix& start, const Matrix&) {
                       return std::make_unique<RoundingErrors>(constants, start, epsilon);
                     });
}

void ExpectClose(const Problem& problem, const Expected& expected, const std::string& what) {
  test::ExpectAsJudged(problem.y.view, expected.y, expected.y_bound, what + ": y");
  test::ExpectAsJudged(problem.state.view, expected.state, expected.state_bound, what + ": state");
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
