#include "src/definition/multilayer.h"

#include <cmath>

#include "src/random/start_weights.h"

namespace ttr::definition {
namespace {

constexpr double kNormEps = 1e-6;

struct ActivatedNumber {
  double value;
  double slope;
};

/// act(z) and act'(z).
ActivatedNumber Activate(Activation activation, double z) {
  switch (activation) {
    case Activation::kSilu: {
      const double s = 1 / (1 + std::exp(-z));
      return {z * s, s * (1 + z * (1 - s))};
    }
    case Activation::kGelu: {
      // z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))
      const double c = std::sqrt(2 / M_PI);
      const double t = std::tanh(c * (z + 0.044715 * z * z * z));
      const double inner = c * (1 + 3 * 0.044715 * z * z);
      return {z / 2 * (1 + t), (1 + t) / 2 + z / 2 * (1 - t * t) * inner};
    }
    case Activation::kRelu:
      return z <= 0 ? ActivatedNumber{0, 0} : ActivatedNumber{z, 1};  // a NaN goes on
    case Activation::kTanh: {
      const double t = std::tanh(z);
      return {t, 1 - t * t};
    }
  }
  return {z, 1};
}

Vector Values(Activation activation, const Vector& z) {
  return z.unaryExpr([activation](double x) { return Activate(activation, x).value; });
}

Vector Slopes(Activation activation, const Vector& z) {
  return z.unaryExpr([activation](double x) { return Activate(activation, x).slope; });
}

/// (z - mean z) / deviation, and the deviation sqrt(var z + eps).
struct Standardised {
  Vector z;
  double deviation;
};

Standardised Standardise(const Vector& z) {
  const Vector centred = z.array() - z.mean();
  const double deviation =
      std::sqrt(centred.squaredNorm() / static_cast<double>(z.size()) + kNormEps);
  return {centred / deviation, deviation};
}

}  // namespace

Multilayer::Multilayer(const Constants& constants)
    : function_(constants.recipe.function),
      loss_(constants.recipe.optimizer.loss),
      head_(constants.head),
      ln_weight_(constants.ln_weight),
      ln_bias_(constants.ln_bias) {
  const std::int64_t hidden =
      constants.dims.hidden > 0 ? constants.dims.hidden : function_.expansion * constants.phi_dim;
  widths_.assign(static_cast<std::size_t>(function_.depth) + 1, hidden);
  widths_.front() = constants.phi_dim;
  widths_.back() = constants.value_dim;
  for (std::int64_t l = 1; l <= function_.depth; ++l) {
    names_.push_back("w" + std::to_string(l));
    if (function_.bias) names_.push_back("b" + std::to_string(l));
  }
}

Parameters Multilayer::Start() const {
  const std::vector<std::int64_t> widths(widths_.begin(), widths_.end());
  Parameters parameters;
  for (const std::vector<double>& drawn :
       DrawStartWeights(static_cast<std::uint64_t>(function_.seed),
                        static_cast<std::uint64_t>(head_), widths, function_.gated)) {
    const std::size_t l = parameters.size() / (function_.bias ? 2 : 1);
    parameters.push_back(Eigen::Map<const RowMajor>(drawn.data(), widths_[l], Columns(l)));
    if (function_.bias) parameters.push_back(Matrix::Zero(Columns(l), 1));
  }
  return parameters;
}

Vector Multilayer::Activated(const Vector& z) const {
  if (!function_.gated) return Values(function_.activation, z);
  const Eigen::Index half = z.size() / 2;
  return Values(function_.activation, z.head(half)).cwiseProduct(z.tail(half));
}

Vector Multilayer::PassActivation(const Vector& z, const Vector& dx) const {
  if (!function_.gated) return dx.cwiseProduct(Slopes(function_.activation, z));
  const Eigen::Index half = z.size() / 2;
  Vector dz(z.size());
  const Vector da = dx.cwiseProduct(z.tail(half));
  dz << da.cwiseProduct(Slopes(function_.activation, z.head(half))),
      dx.cwiseProduct(Values(function_.activation, z.head(half)));
  return dz;
}

Multilayer::Trace Multilayer::Forward(const Parameters& parameters, const Vector& k) const {
  Trace trace;
  Vector x = k;
  for (std::size_t l = 0; l + 1 < widths_.size(); ++l) {
    Vector z = parameters[WeightOf(l)].transpose() * x;
    if (function_.bias) z += parameters[WeightOf(l) + 1];
    trace.x.push_back(x);
    trace.z.push_back(z);
    if (l + 2 < widths_.size()) x = Activated(z);
  }
  trace.f = trace.z.back();
  if (function_.norm) trace.f = ln_weight_.cwiseProduct(Standardise(trace.f).z) + ln_bias_;
  if (function_.residual) trace.f += k;
  return trace;
}

Vector Multilayer::Evaluate(const Parameters& parameters, const Vector& k) const {
  return Forward(parameters, k).f;
}

Parameters Multilayer::Gradient(const Parameters& parameters, const Vector& k,
                                const Vector& v) const {
  const Trace trace = Forward(parameters, k);
  // The gradient by the output; the residual branch leads to no parameter.
  Vector dz = loss_ == Loss::kDotProduct ? Vector(-v) : Vector(trace.f - v);
  if (function_.norm) {
    // z^ = (z - mean) / s:  dz = (g - mean(g) - z^ mean(g (.) z^)) / s  with g = weight (.) df.
    const Standardised standard = Standardise(trace.z.back());
    const Vector g = ln_weight_.cwiseProduct(dz);
    const Vector spread = standard.z * g.cwiseProduct(standard.z).mean();
    dz = (g.array() - g.mean() - spread.array()) / standard.deviation;
  }
  Parameters gradient(parameters.size());
  for (std::size_t l = widths_.size() - 1; l-- > 0;) {
    gradient[WeightOf(l)] = trace.x[l] * dz.transpose();
    if (function_.bias) gradient[WeightOf(l) + 1] = dz;
    if (l == 0) break;
    const Vector dx = parameters[WeightOf(l)] * dz;
    dz = PassActivation(trace.z[l - 1], dx);
  }
  return gradient;
}

}  // namespace ttr::definition
