#include "src/adapters/mapped_keys.h"

#include <algorithm>
#include <vector>

#include "src/adapters/feature_parameters.h"
#include "src/core/fill.h"
#include "src/core/working_copy.h"
#include "src/engines/rows/norm.h"
#include "src/operators/feature_options.h"

namespace ttr {
namespace {

constexpr double kUnitEps = 1e-6;  // x / sqrt(|x|^2 + 1e-6)

/// Bytes of scratch of the maps of rows, which run one after the other.
std::size_t RowsBytes(const rows::FeatureOptions& features, const Recipe& recipe, const Dims& dims,
                      int threads) {
  const bool maps = features.map != rows::Map::kNone;
  const bool normalises = recipe.reading.normalise_qk;
  return std::max(
      normalises ? rows::NormScratchBytes(dims.key_dim, threads) : 0,
      maps ? rows::FeatureScratchBytes(dims.key_dim, PhiDim(recipe, dims), threads) : 0);
}

/// a += b, element by element; both contiguous and of one dtype.
void Add(const TensorView& b, const TensorView& a) {
  const std::int64_t count = a.shape().elements();
  for (std::int64_t i = 0; i < count; ++i) {
    StoreElement(a.data(), a.dtype(), i,
                 LoadElement(a.data(), a.dtype(), i) + LoadElement(b.data(), b.dtype(), i));
  }
}

}  // namespace

MappedKeys::MappedKeys(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                       const TensorView& directions, DType dtype, Executor& executor,
                       CallScratch& scratch)
    : features_(FeatureOptionsOf(recipe.function)),
      affine_(recipe.function.kind == FunctionClass::kAffine),
      normalise_(recipe.reading.normalise_qk),
      memories_(dims.heads),
      dtype_(dtype),
      executor_(executor),
      scratch_(scratch),
      w_(inputs.features_w.defined() ? Parameter(inputs.features_w, dtype, scratch) : directions),
      b_(Parameter(inputs.features_b, dtype, scratch)) {
  if (plain()) {
    k_.mapped = inputs.k;
    q_.mapped = inputs.q;
    return;
  }
  rows_scratch_ = scratch.Take(RowsBytes(features_, recipe, dims, executor.threads()));
  Map(inputs.k, dims.heads, k_);
  Map(inputs.q, dims.output_heads(), q_);
}

std::size_t MappedKeys::ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
  const rows::FeatureOptions features = FeatureOptionsOf(recipe.function);
  const bool maps = features.map != rows::Map::kNone;
  const bool affine = recipe.function.kind == FunctionClass::kAffine;
  const bool normalises = recipe.reading.normalise_qk;
  if (!maps && !affine && !normalises) return 0;
  const auto bytes = [](const Shape& shape) { return CallScratch::Bytes(DType::kFloat64, shape); };
  std::size_t all = CallScratch::RoundedUp(RowsBytes(features, recipe, dims, threads)) +
                    bytes({dims.heads, dims.features, dims.key_dim}) +
                    bytes({dims.heads, dims.features});
  for (const std::int64_t heads : {dims.heads, dims.output_heads()}) {
    if (normalises) all += bytes({dims.batch, dims.tokens, heads, dims.key_dim});
    if (maps || affine) all += bytes({dims.batch, dims.tokens, heads, PhiDim(recipe, dims)});
  }
  return all;
}

/// A map with weights has its own for every memory: heads that share a key are mapped apart.
rows::FeatureCall MappedKeys::CallOf(const Side& side, std::int64_t head) const {
  const std::int64_t heads = side.mapped.size(2);
  const std::int64_t memory = head * memories_ / heads;
  rows::FeatureCall call;
  call.x = side.plain.Slice(2, head * side.plain.size(2) / heads, 1);
  if (w_.defined()) call.w = w_.Slice(0, memory, 1);
  if (b_.defined()) call.b = b_.Slice(0, memory, 1);
  return call;
}

void MappedKeys::Map(const TensorView& input, std::int64_t heads, Side& side) {
  side.input = side.plain = side.mapped = input;
  if (!input.defined()) return;
  if (normalise_) {
    side.plain = side.mapped = scratch_.Zeros(dtype_, input.shape());
    rows::Normalise({rows::NormKind::kL2, kUnitEps, input, {}, {}, {}}, side.plain, executor_,
                    rows_scratch_);
  }
  const bool maps = features_.map != rows::Map::kNone;
  if (!maps && !affine_) return;
  const bool weighs = w_.defined() || b_.defined();
  if (!weighs) heads = input.size(2);
  const std::int64_t dim =
      rows::FeatureDim(features_, input.size(3), w_.defined() ? w_.size(1) : 0);
  side.mapped =
      scratch_.Zeros(dtype_, {input.size(0), input.size(1), heads, dim + (affine_ ? 1 : 0)});
  side.has_features = true;
  const TensorView to = side.mapped.Slice(3, 0, dim);
  if (!maps) {
    CopyInto(side.plain, to);
  } else if (!weighs) {
    rows::MapFeatures(features_, {side.plain, {}, {}, {}, {}}, to, executor_, rows_scratch_);
  } else {
    for (std::int64_t h = 0; h < heads; ++h) {
      rows::MapFeatures(features_, CallOf(side, h), to.Slice(2, h, 1), executor_, rows_scratch_);
    }
  }
  if (!affine_) return;
  Fill(side.mapped.Slice(3, dim, 1), 1);
}

void MappedKeys::Back(const Side& side, const TensorView& dmapped, const TensorView& dinput,
                      const Tensor& dw, const Tensor& db) const {
  const bool wants_parameters = dw.defined() || db.defined();
  if (!dinput.defined() && !wants_parameters) return;
  TensorView dplain = dmapped;
  Tensor heads, unit;
  if (side.has_features) {
    const bool maps = features_.map != rows::Map::kNone;
    const std::int64_t dim = side.mapped.size(3) - (affine_ ? 1 : 0);
    dplain = dmapped.Slice(3, 0, dim);
    if (maps) {
      const Shape& in = side.plain.shape();
      // Weights are a memory's: rows of other heads are mapped head by head.
      const bool weighs = w_.defined() || b_.defined();
      const bool together =
          side.mapped.size(2) == in[2] && !wants_parameters && (!weighs || in[2] == memories_);
      heads = Tensor(dtype_, {in[0], in[1], side.mapped.size(2), in[3]});
      if (together) {
        rows::FeatureCall call;
        call.x = side.plain;
        call.w = w_;
        call.b = b_;
        rows::MapFeaturesGradient(features_, call, dplain, {heads, {}, {}}, executor_);
      } else {
        Tensor dw_head, db_head;
        if (dw.defined()) dw_head = Tensor(dtype_, {1, dw.shape()[1], dw.shape()[2]});
        if (db.defined()) db_head = Tensor(dtype_, {1, db.shape()[1]});
        for (std::int64_t h = 0; h < side.mapped.size(2); ++h) {
          const std::int64_t memory = h * memories_ / side.mapped.size(2);
          rows::MapFeaturesGradient(features_, CallOf(side, h), dplain.Slice(2, h, 1),
                                    {heads.view().Slice(2, h, 1), dw_head, db_head}, executor_);
          if (dw.defined()) Add(dw_head, dw.view().Slice(0, memory, 1));
          if (db.defined()) Add(db_head, db.view().Slice(0, memory, 1));
        }
      }
      dplain = heads.view();
    }
  }
  if (!dinput.defined()) return;
  Tensor sums;
  if (dplain.size(2) != side.input.size(2)) {
    sums = Tensor(dtype_, side.plain.shape());
    SumSharedHeads(heads, sums);
    dplain = sums.view();
  }
  if (normalise_) {
    rows::NormaliseGradient({rows::NormKind::kL2, kUnitEps, side.input, {}, {}, {}}, dplain,
                            {dinput, {}, {}, {}}, executor_);
  } else {
    CopyInto(dplain, dinput);
  }
}

void MappedKeys::Backward(const TensorView& dk, const TensorView& dq, const Inputs& dinputs) const {
  Tensor dw, db;
  if (dinputs.features_w.defined()) dw = Tensor(dtype_, dinputs.features_w.shape());
  if (dinputs.features_b.defined()) db = Tensor(dtype_, dinputs.features_b.shape());
  Back(k_, dk, dinputs.k, dw, db);
  Back(q_, dq, dinputs.q, dw, db);
  if (dw.defined()) CopyInto(dw, dinputs.features_w);
  if (db.defined()) CopyInto(db, dinputs.features_b);
}

}  // namespace ttr
