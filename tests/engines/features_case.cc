#include "tests/engines/features_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/recipe/feature_maps.h"
#include "ttr/util/random.h"
#include "ttr/zoo.h"

namespace ttr::rows {
namespace {

using definition::Matrix;
using definition::Vector;

Map WordOf(FeatureMap map) {
  switch (map) {
    case FeatureMap::kNone: return Map::kNone;
    case FeatureMap::kElu1: return Map::kElu1;
    case FeatureMap::kRelu: return Map::kRelu;
    case FeatureMap::kCosformer: return Map::kCosformer;
    case FeatureMap::kDpfp: return Map::kDpfp;
    case FeatureMap::kT2r: return Map::kT2r;
    case FeatureMap::kHedgehogExp: return Map::kHedgehogExp;
    case FeatureMap::kHedgehogSoftmax: return Map::kHedgehogSoftmax;
    case FeatureMap::kTaylor2: return Map::kTaylor2;
    case FeatureMap::kRebased: return Map::kRebased;
    case FeatureMap::kRfa: return Map::kRfa;
    case FeatureMap::kFavor: return Map::kFavor;
    case FeatureMap::kDijiang: return Map::kDijiang;
    case FeatureMap::kPower2: return Map::kPower2;
  }
  return Map::kNone;
}

bool TakesDirections(FeatureMap map) {
  switch (map) {
    case FeatureMap::kT2r:
    case FeatureMap::kHedgehogExp:
    case FeatureMap::kHedgehogSoftmax:
    case FeatureMap::kRfa:
    case FeatureMap::kFavor:
    case FeatureMap::kDijiang: return true;
    default: return false;
  }
}

void Fill(const Tensor& tensor, std::uint64_t stream, double factor) {
  CounterRandom random(17, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    StoreElement(tensor.data(), tensor.dtype(), i, factor * random.Normal());
  }
}

Vector RowOf(const TensorView& view, std::int64_t b, std::int64_t t, std::int64_t h) {
  Vector row(view.size(3));
  for (std::int64_t d = 0; d < view.size(3); ++d) row(d) = view.At({b, t, h, d});
  return row;
}

}  // namespace

MapCase::MapCase(FeatureMap feature_map, std::int64_t d, std::int64_t f) : dim(d), features(f) {
  function.features = feature_map;
  function.max_length = 20;
  options.map = WordOf(feature_map);
  options.max_length = 20;
}

std::ostream& operator<<(std::ostream& out, const MapCase& c) {
  for (const FeatureEntry& entry : FeatureMaps()) {
    if (entry.map == c.function.features) out << entry.name;
  }
  return out << " d=" << c.dim << " F=" << c.features << " nu=" << c.options.nu
             << (c.has_bias ? " with bias" : "");
}

std::vector<MapCase> MapCases() {
  std::vector<MapCase> cases;
  for (const std::int64_t d : {1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 33, 64, 100}) {
    cases.emplace_back(FeatureMap::kNone, d);
    for (const FeatureEntry& entry : FeatureMaps()) {
      if (TakesDirections(entry.map)) {
        for (const std::int64_t f : {1, 7, 8, 33, 130}) cases.emplace_back(entry.map, d, f);
      } else {
        cases.emplace_back(entry.map, d);
      }
      const MapCase plain = cases.back();
      if (entry.map == FeatureMap::kT2r || entry.map == FeatureMap::kDijiang) {
        cases.push_back(plain);
        cases.back().has_bias = true;
      }
      if (entry.map == FeatureMap::kDpfp) {
        for (const std::int64_t nu : {2, 3, 2 * static_cast<int>(d) + 1}) {
          cases.push_back(plain);
          cases.back().function.nu = cases.back().options.nu = nu;
        }
      }
      if (entry.map == FeatureMap::kRebased) {
        for (const bool bias : {false, true}) {
          cases.push_back(plain);
          cases.back().features = 1;
          cases.back().has_bias = bias;
        }
      }
    }
  }
  return cases;
}

MapProblem::MapProblem(const MapCase& c, DType dtype, std::int64_t batch, std::int64_t tokens,
                       std::int64_t heads, bool shared)
    : x(dtype, {batch, tokens, heads, c.dim}), y(dtype, {batch, tokens, heads, c.phi_dim()}) {
  const std::int64_t owners = shared ? 1 : heads;
  Fill(x, 1, 1);
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    StoreElement(y.data(), dtype, i, std::numeric_limits<double>::quiet_NaN());
  }
  if (c.features > 0) {
    w = Tensor(dtype, {owners, c.features, c.dim});
    const bool scales = c.options.map == Map::kRebased;
    Fill(w, 2, scales ? 1 : 1 / std::sqrt(static_cast<double>(c.dim)));
  }
  if (c.has_bias) {
    b = Tensor(dtype, {owners, c.options.map == Map::kRebased ? c.dim : c.features});
    Fill(b, 3, 1);
  }
}

FeatureCall MapProblem::call() const { return {x.view(), w.view(), b.view(), {}, {}}; }

definition::Vector Define(const MapCase& c, const Vector& x, const Matrix& w, const Vector& b,
                          std::int64_t position) {
  definition::Constants constants;
  constants.recipe.function = c.function;
  constants.features_w = w;
  constants.features_b = b;
  return definition::ApplyFeatures(constants, x, position);
}

Judged Judge(const MapCase& c, const FeatureCall& call, std::int64_t b, std::int64_t t,
             std::int64_t h, std::int64_t position, double eps) {
  const Vector x = RowOf(call.x, b, t, h);
  const std::int64_t d = c.dim;
  Matrix w(c.features, d);
  Vector bias;
  if (c.features > 0) {
    const std::int64_t owner = call.w.size(0) == 1 ? 0 : h;
    for (std::int64_t f = 0; f < c.features; ++f) {
      for (std::int64_t i = 0; i < d; ++i) w(f, i) = call.w.At({owner, f, i});
    }
  }
  if (c.has_bias) {
    const std::int64_t owner = call.b.size(0) == 1 ? 0 : h;
    bias.resize(call.b.size(1));
    for (std::int64_t f = 0; f < bias.size(); ++f) bias(f) = call.b.At({owner, f});
  }
  const Vector phi = Define(c, x, w, bias, position);
  const auto n = static_cast<std::size_t>(phi.size());
  Judged judged{{phi.data(), phi.data() + n}, std::vector<double>(n)};

  // The error of u = W x + b, entry by entry; a sum of d terms, some of them together.
  const double rounding = eps * (4 + std::sqrt(static_cast<double>(d)));
  Vector du = Vector::Zero(std::max<std::int64_t>(c.features, 1));
  if (c.features > 0 && c.options.map != Map::kRebased) {
    du = rounding * (w.cwiseAbs() * x.cwiseAbs());
    if (c.has_bias) du += rounding * bias.cwiseAbs();
  }
  if (c.options.map == Map::kFavor) du.array() += rounding * x.squaredNorm();
  // ReBased: entries before the products, with the parts that may cancel; the mean is taken off in
  // double.
  Vector entries = Vector::Zero(d);
  if (c.options.map == Map::kRebased) {
    const Vector centred = x.array() - x.mean();
    const double root = std::sqrt(centred.squaredNorm() / static_cast<double>(d) + 1e-5);
    const double wide = std::numeric_limits<double>::epsilon() / std::max(eps, 1e-300);
    entries = centred.cwiseAbs() + wide * x.cwiseAbs();
    entries.array() = (entries.array() + wide * x.cwiseAbs().mean()) / root;
    if (c.features > 0) entries = entries.cwiseProduct(w.row(0).transpose().cwiseAbs());
    if (c.has_bias) entries += bias.cwiseAbs();
  }
  std::int64_t i = 0, j = 0;
  for (std::size_t at = 0; at < n; ++at) {
    const auto f = static_cast<std::int64_t>(at) % std::max<std::int64_t>(c.features, 1);
    const double size = std::abs(phi(static_cast<std::int64_t>(at)));
    double& bound = judged.bound[at];
    switch (c.options.map) {
      case Map::kT2r: bound = du(f); break;
      case Map::kHedgehogExp:
      case Map::kFavor:
      case Map::kDijiang: bound = size * (du(f) + 4 * eps); break;
      case Map::kHedgehogSoftmax:
        bound = size * (2 * du.maxCoeff() + rounding * (4 + std::abs(std::log(size)))) +
                std::numeric_limits<float>::min() * eps;
        break;
      case Map::kRfa: bound = (du(f) + 4 * eps) / std::sqrt(static_cast<double>(c.features)); break;
      case Map::kRebased:
        bound = 12 * eps * entries(i) * entries(j);
        if (++j == d) j = ++i;
        break;
      default: bound = 4 * eps * size;
    }
  }
  return judged;
}

double EpsilonOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return std::numeric_limits<double>::epsilon();
    case DType::kBFloat16: return 1.0 / 128;
    default: return static_cast<double>(std::numeric_limits<float>::epsilon());
  }
}

}  // namespace ttr::rows
