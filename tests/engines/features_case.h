// Calls of the feature maps for tests, and what the definition says of them.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "src/definition/memory.h"
#include "src/engines/rows/features.h"
#include "ttr/tensor.h"

namespace ttr::rows {

struct MapCase {
  MapCase(FeatureMap feature_map, std::int64_t d, std::int64_t f = 0);

  FeatureOptions options;
  Function function;  ///< the same map in the words of recipes
  std::int64_t dim;
  std::int64_t features = 0;  ///< rows of w; 0: none
  bool has_bias = false;

  std::int64_t phi_dim() const { return FeatureDim(options, dim, features); }
};

std::ostream& operator<<(std::ostream& out, const MapCase& c);

/// All maps at many sizes, with and without what is optional.
std::vector<MapCase> MapCases();

/// x [B, T, H, d] of unit normal numbers, w of normal numbers over sqrt(d), b of normal numbers.
struct MapProblem {
  MapProblem(const MapCase& c, DType dtype, std::int64_t batch, std::int64_t tokens,
             std::int64_t heads, bool shared = false);

  FeatureCall call() const;

  Tensor x, w, b;
  Tensor y;  ///< [B, T, H, Dphi], of NaN
};

/// What the definition says of row (b, t, h): phi, and for every entry a bound of what rounding to
/// `eps` may change, from the condition of the map.
struct Judged {
  std::vector<double> phi, bound;
};
Judged Judge(const MapCase& c, const FeatureCall& call, std::int64_t b, std::int64_t t,
             std::int64_t h, std::int64_t position, double eps);

/// phi of the definition.
definition::Vector Define(const MapCase& c, const definition::Vector& x,
                          const definition::Matrix& w, const definition::Vector& b,
                          std::int64_t position);

double EpsilonOf(DType dtype);

}  // namespace ttr::rows
