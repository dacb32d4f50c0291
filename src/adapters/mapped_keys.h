/// Keys and queries as a memory meets them: normalised, their features, the 1 of an affine memory;
/// and the gradients back to the inputs.
#pragma once

#include <cstddef>
#include <span>

#include "src/core/call_scratch.h"
#include "src/engines/rows/features.h"
#include "ttr/executor.h"
#include "ttr/inputs.h"

namespace ttr {

/// Keys and queries after the recipe's maps, for engines that read rows and know no maps. What a
/// recipe leaves as it is stays the caller's tensor; else there is a copy, [B, T, heads, Dphi] of
/// `dtype`. (It does not serve maps that depend on the position of a token.)
class MappedKeys {
 public:
  /// `directions`: of a random map that is given none, in `dtype`.
  MappedKeys(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
             const TensorView& directions, DType dtype, Executor& executor, CallScratch& scratch);
  MappedKeys(const MappedKeys&) = delete;
  MappedKeys& operator=(const MappedKeys&) = delete;

  const TensorView& k() const { return k_.mapped; }
  const TensorView& q() const { return q_.mapped; }
  /// Bytes that it takes of the scratch.
  static std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads);

  /// Are the keys as they were given?
  bool plain() const { return !normalise_ && !affine_ && features_.map == rows::Map::kNone; }

  /// Gradients of the inputs and of the map's parameters, from those of k() and q(); written where
  /// defined.
  void Backward(const TensorView& dk, const TensorView& dq, const Inputs& dinputs) const;

 private:
  struct Side {
    TensorView input, plain, mapped;  // as given; of unit length; after phi
    bool has_features = false;        // is `mapped` a tensor of its own, [B, T, heads, Dphi]?
  };
  void Map(const TensorView& input, std::int64_t heads, Side& side);
  /// Adds to dw and db.
  void Back(const Side& side, const TensorView& dmapped, const TensorView& dinput, const Tensor& dw,
            const Tensor& db) const;
  rows::FeatureCall CallOf(const Side& side, std::int64_t head) const;

  rows::FeatureOptions features_;
  bool affine_, normalise_;
  std::int64_t memories_;
  DType dtype_;
  Executor& executor_;
  CallScratch& scratch_;
  TensorView w_, b_;
  std::span<std::byte> rows_scratch_;
  Side k_, q_;
};

}  // namespace ttr
