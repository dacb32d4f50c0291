#include "src/recipe/feature_maps.h"

#include "src/core/sizes.h"
#include "src/random/directions.h"
#include "ttr/zoo.h"

namespace ttr {
namespace {

// x has length d; W = features.w with rows w_r (F of them), b = features.b.
constexpr FeatureEntry kMaps[] = {
    {FeatureMap::kElu1, "elu1", "Katharopoulos 2020, arXiv 2006.16236",
     "x + 1 where x > 0, else exp(x); d features"},
    {FeatureMap::kRelu, "relu", "common practice", "max(x, 0); d features"},
    {FeatureMap::kCosformer, "cosformer", "arXiv 2202.08791",
     "[relu(x) cos(pi t / 2m), relu(x) sin(pi t / 2m)] at position t = 0, 1, ..., m = max_length; "
     "2d features"},
    {FeatureMap::kDpfp, "dpfp", "arXiv 2102.11174",
     "r = [relu(x), relu(-x)]; all r (.) roll(r, j), j = 1..nu, roll(r, j)_i = r_{i-j}; 2 d nu "
     "features"},
    {FeatureMap::kT2r, "t2r", "arXiv 2103.13076", "relu(W x + b); F features"},
    {FeatureMap::kHedgehogExp, "hedgehog_exp", "arXiv 2402.04347",
     "[exp(W x), exp(-W x)]; 2F features"},
    {FeatureMap::kHedgehogSoftmax, "hedgehog_softmax", "arXiv 2402.04347",
     "[softmax(W x), softmax(-W x)]; 2F features"},
    {FeatureMap::kTaylor2, "taylor2", "Based, arXiv 2402.18668",
     "[1, x / d^(1/4), x_i x_j / sqrt(2d) over all i, j], so that phi(q) . phi(k) = 1 + s + s^2/2, "
     "s = q . k / sqrt(d); the mixed products once, times sqrt(2): 1 + d + d(d+1)/2 features"},
    {FeatureMap::kRebased, "rebased", "arXiv 2402.10644",
     "power2(gamma (.) LN(x) + beta), gamma = features.w (1), beta = features.b (0), LN with eps "
     "1e-5 under the root; d(d+1)/2 features"},
    {FeatureMap::kRfa, "rfa", "arXiv 2103.02143",
     "[sin(W x), cos(W x)] / sqrt(F), rows of W normal, F = feature_dim; 2F features"},
    {FeatureMap::kFavor, "favor", "Performer (FAVOR+), arXiv 2009.14794",
     "exp(W x - |x|^2 / 2) / sqrt(F), rows of W normal and orthogonal in blocks of d, F = "
     "feature_dim; no epsilon, no maximum over the sequence; F features"},
    {FeatureMap::kDijiang, "dijiang", "arXiv 2403.19928",
     "exp(W x + b), row r of W a normal number times row r mod d of the orthonormal DCT-II, F = "
     "feature_dim, b = log of the weights D (0); F features"},
    {FeatureMap::kPower2, "power2", "arXiv 2507.04239",
     "[x_i^2, sqrt(2) x_i x_j for i < j], so that phi(q) . phi(k) = (q . k)^2; d(d+1)/2 features"},
};

}  // namespace

std::span<const FeatureEntry> FeatureMaps() { return kMaps; }

std::int64_t FeatureDim(const Function& function, std::int64_t key_dim, std::int64_t rows) {
  const std::int64_t directions = rows > 0 ? rows : function.feature_dim;
  const std::int64_t products = Product({key_dim, key_dim + 1}) / 2;  // x_i x_j with i <= j
  switch (function.features) {
    case FeatureMap::kNone:
    case FeatureMap::kElu1:
    case FeatureMap::kRelu: return key_dim;
    case FeatureMap::kCosformer: return 2 * key_dim;
    case FeatureMap::kDpfp: return Product({2, key_dim, function.nu});
    case FeatureMap::kT2r: return rows;
    case FeatureMap::kHedgehogExp:
    case FeatureMap::kHedgehogSoftmax: return 2 * rows;
    case FeatureMap::kTaylor2: return 1 + key_dim + products;
    case FeatureMap::kRebased:
    case FeatureMap::kPower2: return products;
    case FeatureMap::kRfa: return 2 * directions;
    case FeatureMap::kFavor:
    case FeatureMap::kDijiang: return directions;
  }
  return key_dim;
}

std::vector<double> DrawFeatureRows(const Function& function, std::int64_t key_dim,
                                    std::uint64_t head) {
  const auto draw = [&](Directions kind) {
    return DrawDirections(kind, static_cast<std::uint64_t>(function.seed), head,
                          function.feature_dim, key_dim);
  };
  switch (function.features) {
    case FeatureMap::kRfa: return draw(Directions::kNormal);
    case FeatureMap::kFavor: return draw(Directions::kOrthogonal);
    case FeatureMap::kDijiang: return draw(Directions::kCosine);
    default: return {};
  }
}

}  // namespace ttr
