/// What follows from a recipe and the sizes of its calls: made once a layer, not once a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ttr/inputs.h"
#include "ttr/recipe.h"
#include "ttr/tensor.h"

namespace ttr {

/// Constants of calls with so many memories and such keys.
struct Constants {
  std::vector<double> decay_factors;  ///< [H] of a constant decay; empty for any other
  Tensor directions;  ///< [H, F, Dk]: what a random feature map draws; absent for any other
};

/// Holds the constants of all sizes that a layer was called with. Any threads may ask; none waits
/// for another, so that a forked process finds no lock that nobody opens.
class Prepared {
 public:
  explicit Prepared(const Recipe& recipe);
  ~Prepared();
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  /// The entries of a memory of this recipe, also where it is not causal, so that no state goes on
  /// from one.
  const std::vector<StateSpec>& memory() const { return memory_; }

  /// Constants of `dims`, directions in `dtype`. They stay where they are.
  const Constants& For(const Dims& dims, DType dtype) const;

 private:
  struct Entry {
    std::int64_t heads, key_dim;
    DType dtype;
    Constants constants;
    const Entry* next;
  };

  Recipe recipe_;
  std::vector<StateSpec> memory_;
  mutable std::atomic<const Entry*> entries_ = nullptr;  // the newest one
};

}  // namespace ttr
