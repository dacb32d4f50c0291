/// Feature maps: phi, applied to keys and queries of length d before a linear memory sees them.
///
/// `w` stands for features.w (F x d), `b` for features.b. Random maps take w from the recipe's seed
/// where it is not given.
#include <cmath>
#include <numbers>
#include <vector>

#include "src/definition/memory.h"
#include "src/recipe/family.h"
#include "src/recipe/feature_maps.h"

namespace ttr::definition {
namespace {

double Relu(double x) { return x < 0 ? 0 : x; }  // in this form NaN stays NaN

Vector Relu(const Vector& x) {
  return x.unaryExpr([](double u) { return Relu(u); });
}

// exp(x) by the standard library: Eigen's vectorized exp() bounds its argument, so that NaN,
// infinities and underflow get lost.
Vector Exp(const Vector& x) {
  return x.unaryExpr([](double u) { return std::exp(u); });
}

Vector Stacked(const Vector& x, const Vector& y) {
  Vector both(x.size() + y.size());
  both << x, y;
  return both;
}

// 1 + ELU(x) = x + 1 for x > 0, else exp(x). Katharopoulos 2020, 2006.16236.
Vector Elu1(const Vector& x) {
  return x.unaryExpr([](double u) { return u > 0 ? u + 1 : std::exp(u); });
}

// [relu(x) cos(pi i / 2m), relu(x) sin(pi i / 2m)] at position i, m = max_length, so that
// phi_i(k) . phi_j(q) = relu(k) . relu(q) cos(pi (j - i) / 2m). cosFormer, 2202.08791;
// unnormalised.
Vector Cosformer(const Vector& x, std::int64_t position, std::int64_t max_length) {
  const double angle =
      std::numbers::pi * static_cast<double>(position) / (2 * static_cast<double>(max_length));
  return Stacked(std::cos(angle) * Relu(x), std::sin(angle) * Relu(x));
}

// r = [relu(x), relu(-x)]; phi = concat over j = 1 .. nu of r (.) roll(r, j), where roll(r, j) has
// entry r_{i-j mod 2d} at i. DPFP-nu, 2102.11174; no division by the sum.
Vector Dpfp(const Vector& x, std::int64_t nu) {
  const Vector r = Stacked(Relu(x), Relu(Vector(-x)));
  const Eigen::Index n = r.size();
  Vector phi(nu * n);
  for (Eigen::Index j = 1; j <= nu; ++j) {
    for (Eigen::Index i = 0; i < n; ++i) phi((j - 1) * n + i) = r(i) * r((i + n - j % n) % n);
  }
  return phi;
}

// exp(x) / sum exp(x), with the maximum taken out of both.
Vector Softmax(const Vector& x) {
  const Vector e = Exp(x.array() - x.maxCoeff());
  return e / e.sum();
}

// All x_i x_j with i <= j, row by row, the mixed ones times sqrt(2), so that
// phi(k) . phi(q) = (k . q)^2. Degree-2 symmetric power, 2507.04239.
Vector Power2(const Vector& x) {
  const Eigen::Index d = x.size();
  Vector phi(d * (d + 1) / 2);
  Eigen::Index n = 0;
  for (Eigen::Index i = 0; i < d; ++i) {
    for (Eigen::Index j = i; j < d; ++j) {
      phi(n++) = (i == j ? 1 : std::numbers::sqrt2) * x(i) * x(j);
    }
  }
  return phi;
}

// [1, x / d^(1/4), power2(x) / sqrt(2 d)], so that phi(k) . phi(q) = 1 + s + s^2/2 with
// s = k . q / sqrt(d). Based, 2402.18668.
Vector Taylor2(const Vector& x) {
  const double d = static_cast<double>(x.size());
  return Stacked(Vector::Ones(1),
                 Stacked(x / std::sqrt(std::sqrt(d)), Power2(x) / std::sqrt(2 * d)));
}

// power2(gamma (.) LN(x) + beta), LN(x) = (x - mean) / sqrt(variance + 1e-5); gamma = w, beta = b
// (1 and 0 where absent). ReBased, 2402.10644; no 1/d.
Vector Rebased(const Vector& x, const Matrix& w, const Vector& b) {
  const Vector centred = x.array() - x.mean();
  Vector u = centred / std::sqrt(centred.squaredNorm() / static_cast<double>(x.size()) + 1e-5);
  if (w.size() > 0) u = u.cwiseProduct(w.row(0).transpose());
  if (b.size() > 0) u += b;
  return Power2(u);
}

// [sin(Wx), cos(Wx)] / sqrt(F), rows of W normal, so that E phi(k) . phi(q) = exp(-|k - q|^2 / 2).
// RFA, 2103.02143, which feeds it unit keys and queries (normalise_qk): exp(k . q) up to a factor.
Vector Rfa(const Vector& x, const Matrix& w) {
  const Vector u = w * x;
  return Stacked(u.unaryExpr([](double a) { return std::sin(a); }),
                 u.unaryExpr([](double a) { return std::cos(a); })) /
         std::sqrt(static_cast<double>(w.rows()));
}

// exp(Wx - |x|^2 / 2) / sqrt(F), rows of W normal and orthogonal in blocks of d, so that
// E phi(k) . phi(q) = exp(k . q). FAVOR+, 2009.14794; no epsilon, and no stabiliser: the published
// one is a maximum over the whole sequence, which is not causal.
Vector Favor(const Vector& x, const Matrix& w) {
  return Exp((w * x).array() - x.squaredNorm() / 2) / std::sqrt(static_cast<double>(w.rows()));
}

}  // namespace

Matrix DrawFeatures(const Recipe& recipe, std::int64_t key_dim, std::int64_t head) {
  const std::vector<double> rows =
      DrawFeatureRows(recipe.function, key_dim, static_cast<std::uint64_t>(head));
  if (rows.empty()) return {};
  return Eigen::Map<const RowMajor>(rows.data(), recipe.function.feature_dim, key_dim);
}

Vector ApplyFeatures(const Constants& constants, const Vector& x, std::int64_t position) {
  const Function& function = constants.recipe.function;
  const bool drawn = IsRandom(function.features) && constants.features_w.size() == 0;
  const Matrix drawn_w =
      drawn ? DrawFeatures(constants.recipe, x.size(), constants.head) : Matrix();
  const Matrix& w = drawn ? drawn_w : constants.features_w;
  const Vector& b = constants.features_b;
  switch (function.features) {
    case FeatureMap::kNone: return x;
    case FeatureMap::kElu1: return Elu1(x);
    case FeatureMap::kRelu: return Relu(x);
    case FeatureMap::kCosformer: return Cosformer(x, position, function.max_length);
    case FeatureMap::kDpfp: return Dpfp(x, function.nu);
    case FeatureMap::kT2r:  // relu(Wx + b). 2103.13076.
      return Relu(b.size() > 0 ? Vector(w * x + b) : Vector(w * x));
    case FeatureMap::kHedgehogExp:  // [exp(Wx), exp(-Wx)]. Hedgehog, 2402.04347; no bias.
      return Stacked(Exp(w * x), Exp(-(w * x)));
    case FeatureMap::kHedgehogSoftmax:  // [softmax(Wx), softmax(-Wx)], the same paper's other form.
      return Stacked(Softmax(w * x), Softmax(-(w * x)));
    case FeatureMap::kTaylor2: return Taylor2(x);
    case FeatureMap::kRebased: return Rebased(x, w, b);
    case FeatureMap::kRfa: return Rfa(x, w);
    case FeatureMap::kFavor: return Favor(x, w);
    case FeatureMap::kDijiang:
      // D exp(T C x) with D = exp(b), 1 where absent. DiJiang's weighted cosine features,
      // 2403.19928; the released code puts a softmax in the place of the exponential.
      return Exp(b.size() > 0 ? Vector(w * x + b) : Vector(w * x));
    case FeatureMap::kPower2: return Power2(x);
  }
  return x;
}

}  // namespace ttr::definition
