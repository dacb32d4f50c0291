#include "src/definition/gather.h"

#include <cmath>

namespace ttr::definition {
namespace {

/// The last axis at a position of the others.
Vector Row(const TensorView& view, std::initializer_list<std::int64_t> index) {
  if (!view.defined()) return Vector();
  std::int64_t offset = 0;
  int axis = 0;
  for (const std::int64_t i : index) offset += i * view.stride(axis++);
  Vector row(view.size(axis));
  for (Eigen::Index i = 0; i < row.size(); ++i) {
    row[i] = LoadElement(view.data(), view.dtype(), offset + i * view.stride(axis));
  }
  return row;
}

Matrix Rows(const TensorView& view, std::int64_t head) {
  if (!view.defined()) return Matrix();
  Matrix rows(view.size(1), view.size(2));
  for (Eigen::Index r = 0; r < rows.rows(); ++r) rows.row(r) = Row(view, {head, r}).transpose();
  return rows;
}

double ScalarOr(double absent, const TensorView& view, std::int64_t b, std::int64_t t,
                std::int64_t h) {
  return view.defined() ? view.At({b, t, h}) : absent;
}

/// A row that is not finite counts as zeros where a factor of exactly 0 weighs it.
template <class Row>
void TakeNothingOf(Row&& row) {
  if (!row.allFinite()) row.setZero();
}

/// A factor of exactly 0 takes nothing of a pair, not even NaN.
void TakeNothingAtZero(const Recipe& recipe, Token& token) {
  const Importance importance = recipe.weights.importance;
  const bool complement =
      importance == Importance::kComplement || importance == Importance::kRootComplement;
  const bool weightless = token.importance == 0 || token.log_importance == -kInfinity ||
                          (complement && token.log_decay.isZero(0));
  const bool by_step = recipe.optimizer.solver == Solver::kSgd;  // networks, too
  for (Eigen::Index j = 0; j < token.v.cols(); ++j) {
    if (by_step ? token.step[j] != 0 : !weightless) continue;
    if (token.k.rows() > 0) TakeNothingOf(token.k.col(j));
    TakeNothingOf(token.v.col(j));
  }
  if (!by_step && weightless) TakeNothingOf(token.v_im);
  if (!by_step) return;
  if (recipe.optimizer.erase == Erase::kUndecayed) {  // along a (.) kappa, whatever the step
    if (token.erase_gate.isZero(0)) TakeNothingOf(token.erase_key);
  } else if (token.step.isZero(0)) {
    for (const auto& row : kTokenRows) {
      if (row.of_pair) TakeNothingOf(token.*row.to);
    }
    for (const auto& number : kTokenNumbers) {
      if (number.of_pair && !std::isfinite(token.*number.to)) token.*number.to = 0;
    }
    const bool coupled = recipe.optimizer.weight_decay == WeightDecay::kCoupled;
    if (coupled && !std::isfinite(token.weight_decay)) token.weight_decay = 0;
  }
}

/// x / sqrt(|x|^2 + 1e-6)
Vector Normalised(const Vector& x) { return x / std::sqrt(x.squaredNorm() + 1e-6); }

Vector GatherLogDecay(const Recipe& recipe, const Inputs& inputs, std::int64_t b, std::int64_t t,
                      std::int64_t head) {
  switch (recipe.weights.decay) {
    case Decay::kNone:
    case Decay::kMatrix: return Vector();
    case Decay::kConstant: return Vector::Constant(1, std::log(recipe.weights.decay_factor));
    case Decay::kRetention:
      return Vector::Constant(1, std::log1p(-std::exp2(-5.0 - static_cast<double>(head))));
    case Decay::kScalar: return Vector::Constant(1, inputs.log_decay.At({b, t, head}));
    case Decay::kChannel: return Row(inputs.log_decay, {b, t, head});
  }
  return Vector();
}

}  // namespace

Constants GatherConstants(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                          std::int64_t head) {
  Constants c;
  c.recipe = recipe;
  c.dims = dims;
  c.head = head;
  c.phi_dim = PhiDim(recipe, dims);
  const bool keeps_denominator = recipe.reading.normalise_sum != NormaliseSum::kNone;
  c.value_dim = dims.value_dim + (keeps_denominator ? 1 : 0);
  if (inputs.bandwidth.defined()) c.recipe.similarity.bandwidth = inputs.bandwidth.At({head});
  c.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                       : recipe.reading.scale;
  c.ridge = Vector::Constant(c.phi_dim, recipe.optimizer.ridge);
  if (inputs.ridge.defined()) {
    if (inputs.ridge.rank() == 1) {
      c.ridge.setConstant(inputs.ridge.At({head}));
    } else {
      c.ridge.head(inputs.ridge.size(1)) = Row(inputs.ridge, {head});
    }
  }
  // No ridge on the intercept of an affine memory.
  if (recipe.function.kind == FunctionClass::kAffine) c.ridge[c.phi_dim - 1] = 0;
  c.bonus = Row(inputs.bonus, {head});
  c.a = Rows(inputs.a, head);
  c.features_w = inputs.features_w.defined() ? Rows(inputs.features_w, head)
                                             : DrawFeatures(recipe, dims.key_dim, head);
  c.features_b = Row(inputs.features_b, {head});
  c.ln_weight = inputs.ln_weight.defined() ? Row(inputs.ln_weight, {head})
                                           : Vector(Vector::Ones(dims.value_dim));
  c.ln_bias =
      inputs.ln_bias.defined() ? Row(inputs.ln_bias, {head}) : Vector(Vector::Zero(dims.value_dim));
  c.row_bias = inputs.row_bias.defined() ? Row(inputs.row_bias, {head})
                                         : Vector(Vector::Zero(recipe.optimizer.mini_batch));
  return c;
}

Token GatherToken(const Constants& constants, const Inputs& inputs, std::int64_t b,
                  std::int64_t t) {
  const Recipe& recipe = constants.recipe;
  const Dims& dims = constants.dims;
  const std::int64_t h = constants.head;
  const std::int64_t n = recipe.optimizer.solver == Solver::kSgd ? recipe.optimizer.steps : 1;
  const std::int64_t key_head = h / (dims.heads / dims.key_heads);
  const std::int64_t value_head = h / (dims.heads / dims.value_heads);

  Token token;
  token.k = Matrix(inputs.k.defined() ? dims.key_dim : 0, n);
  token.v = Matrix(dims.value_dim, n);
  token.step = Vector::Ones(n);
  for (std::int64_t j = 0; j < n; ++j) {
    if (inputs.k.defined()) {
      const Vector k = Row(inputs.k, {b, t * n + j, key_head});
      token.k.col(j) = recipe.reading.normalise_qk ? Normalised(k) : k;
    }
    token.v.col(j) = Row(inputs.v, {b, t * n + j, value_head});
    if (recipe.optimizer.solver == Solver::kSgd) {
      token.step[j] = ScalarOr(1, inputs.step, b, t * n + j, h);
    }
  }
  token.v_im = inputs.v_im.defined() ? Row(inputs.v_im, {b, t, value_head})
                                     : Vector(Vector::Zero(dims.value_dim));
  token.log_decay = GatherLogDecay(recipe, inputs, b, t, h);
  for (const auto& row : kTokenRows) token.*row.to = Row(inputs.*row.from, {b, t, h});
  for (const auto& number : kTokenNumbers) {
    token.*number.to = ScalarOr(token.*number.to, inputs.*number.from, b, t, h);
  }
  token.momentum = GatherMomentum(constants, inputs, b, t);
  TakeNothingAtZero(recipe, token);
  return token;
}

Vector GatherSteps(const Constants& constants, const Inputs& inputs, std::int64_t b,
                   std::int64_t t) {
  if (constants.recipe.optimizer.eta_kind != EtaKind::kInput) return Vector();
  return Row(inputs.step, {b, t, constants.head});
}

double GatherMomentum(const Constants& constants, const Inputs& inputs, std::int64_t b,
                      std::int64_t t) {
  return ScalarOr(0, inputs.momentum, b, t, constants.head);
}

Vector GatherPairBias(const Inputs& inputs, std::int64_t b, std::int64_t t, std::int64_t j) {
  return Row(inputs.pair_bias, {b, t, j});
}

Vector PairBiasAt(const Weights& weights, std::int64_t place, std::int64_t count) {
  const auto t = static_cast<double>(place);
  const double extent = weights.extent;
  Vector bias(count);
  for (Eigen::Index i = 0; i < bias.size(); ++i) {
    const auto s = static_cast<double>(i);
    const double distance = std::abs(t - s) / extent;
    const bool together = std::floor(t / extent) == std::floor(s / extent);
    switch (weights.pair_bias) {
      case PairBias::kNone:
      case PairBias::kInput: bias(i) = 0; break;
      case PairBias::kDistance: bias(i) = -distance; break;
      case PairBias::kPower: bias(i) = -weights.exponent * std::log1p(distance); break;
      case PairBias::kBlock: bias(i) = together ? 0 : -kInfinity; break;
      case PairBias::kPrefix: bias(i) = s <= t || s < extent ? 0 : -kInfinity; break;
    }
  }
  return bias;
}

Vector GatherQuery(const Constants& constants, const Inputs& inputs, std::int64_t b, std::int64_t t,
                   std::int64_t j) {
  if (!inputs.q.defined()) return Vector();
  const Vector q = Row(inputs.q, {b, t, j});
  return constants.recipe.reading.normalise_qk ? Normalised(q) : q;
}

}  // namespace ttr::definition
