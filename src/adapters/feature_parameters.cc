#include "src/adapters/feature_parameters.h"

#include <vector>

#include "src/recipe/feature_maps.h"

namespace ttr {

TensorView Parameter(const TensorView& given, DType dtype, Tensor& copy) {
  if (!given.defined() || (given.dtype() == dtype && given.contiguous())) return given;
  copy = Tensor::Copy(given, dtype);
  return copy.view();
}

TensorView DrawnParameter(const Recipe& recipe, const Dims& dims, DType dtype, Tensor& drawn) {
  const auto count =
      static_cast<std::int64_t>(DrawFeatureRows(recipe.function, dims.key_dim, 0).size());
  if (count == 0) return {};
  drawn = Tensor(dtype, {dims.heads, count / dims.key_dim, dims.key_dim});
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    const std::vector<double> numbers =
        DrawFeatureRows(recipe.function, dims.key_dim, static_cast<std::uint64_t>(h));
    for (std::int64_t i = 0; i < count; ++i) {
      StoreElement(drawn.data(), dtype, h * count + i, numbers[static_cast<std::size_t>(i)]);
    }
  }
  return drawn.view();
}

}  // namespace ttr
