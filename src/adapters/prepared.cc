#include "src/adapters/prepared.h"

#include <cmath>
#include <utility>

#include "src/recipe/feature_maps.h"

namespace ttr {
namespace {

std::vector<double> DecayFactors(const Recipe& recipe, std::int64_t heads) {
  std::vector<double> factors;
  for (std::int64_t h = 0; h < heads; ++h) {
    switch (recipe.weights.decay) {
      case Decay::kConstant: factors.push_back(recipe.weights.decay_factor); break;
      case Decay::kRetention:
        factors.push_back(1 - std::exp2(-5.0 - static_cast<double>(h)));
        break;
      default: return {};
    }
  }
  return factors;
}

Recipe WithState(Recipe recipe) {
  recipe.reading.causal = true;
  return recipe;
}

Tensor Directions(const Recipe& recipe, const Dims& dims, DType dtype) {
  Tensor drawn;
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    const std::vector<double> numbers =
        DrawFeatureRows(recipe.function, dims.key_dim, static_cast<std::uint64_t>(h));
    const auto count = static_cast<std::int64_t>(numbers.size());
    if (count == 0) return {};
    if (h == 0) drawn = Tensor(dtype, {dims.heads, count / dims.key_dim, dims.key_dim});
    for (std::int64_t i = 0; i < count; ++i) {
      StoreElement(drawn.data(), dtype, h * count + i, numbers[static_cast<std::size_t>(i)]);
    }
  }
  return drawn;
}

}  // namespace

Prepared::Prepared(const Recipe& recipe)
    : recipe_(recipe), memory_(StateSpecs(WithState(recipe))) {}

Prepared::~Prepared() {
  const Entry* entry = entries_.load();
  while (entry != nullptr) delete std::exchange(entry, entry->next);
}

const Constants& Prepared::For(const Dims& dims, DType dtype) const {
  const Entry* const newest = entries_.load(std::memory_order_acquire);
  for (const Entry* entry = newest; entry != nullptr; entry = entry->next) {
    if (entry->heads == dims.heads && entry->key_dim == dims.key_dim && entry->dtype == dtype) {
      return entry->constants;
    }
  }
  // Two threads may make the same constants; both entries stay, and one of them is found.
  const auto made = new Entry{dims.heads,
                              dims.key_dim,
                              dtype,
                              {DecayFactors(recipe_, dims.heads), Directions(recipe_, dims, dtype)},
                              newest};
  while (!entries_.compare_exchange_weak(made->next, made)) {
  }
  return made->constants;
}

}  // namespace ttr
