#include "src/layer/weightless.h"

#include <algorithm>
#include <type_traits>

#include "src/core/widened.h"
#include "src/recipe/family.h"
#include "src/simd/first_of.h"
#include "ttr/dtype.h"

namespace ttr {
namespace {

using Field = TensorView Inputs::*;

/// use(an element's null pointer) for the dtype of `view`.
template <class Use>
bool WithType(const TensorView& view, const Use& use) {
  switch (view.dtype()) {
    case DType::kFloat32: return use(static_cast<const float*>(nullptr));
    case DType::kFloat64: return use(static_cast<const double*>(nullptr));
    case DType::kBFloat16: return use(static_cast<const BFloat16*>(nullptr));
    default: return false;
  }
}

/// Rows [B, R, H] of a tensor, each of `count` numbers in one run.
template <class T>
struct RowsOf {
  explicit RowsOf(const TensorView& of) : view(of), count(of.rank() == 4 ? of.size(3) : 1) {}
  T* At(std::int64_t b, std::int64_t r, std::int64_t h) const {
    return view.as<T>() + b * view.stride(0) + r * view.stride(1) + h * view.stride(2);
  }
  TensorView view;
  std::int64_t count;
};

/// Does the factor of row r take nothing in memory h?
template <class T>
bool TakesNothing(const RowsOf<const T>& factor, double nothing, std::int64_t b, std::int64_t r,
                  std::int64_t h) {
  const T* const x = factor.At(b, r, h);
  for (std::int64_t i = 0; i < factor.count; ++i) {
    if (Widened(x[i]) != nothing) return false;
  }
  return true;
}

/// May some factor take nothing? A look at all of them, many at a time; at the first of every row
/// where rows have several, or lie apart.
bool MayTakeNothing(const TensorView& factor, double nothing) {
  const simd::Kind kind = nothing == 0 ? simd::Kind::kZero : simd::Kind::kMinusInfinity;
  return WithType(factor, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (factor.rank() == 3 && factor.contiguous()) {
      const std::int64_t count = factor.shape().elements();
      return simd::FirstOf(kind, factor.as<T>(), count) < count;
    }
    const RowsOf<T> factors(factor);
    for (std::int64_t b = 0; b < factor.size(0); ++b) {
      for (std::int64_t r = 0; r < factor.size(1); ++r) {
        const T* const first = factors.At(b, r, 0);
        const std::int64_t stride = factor.stride(2), heads = factor.size(2);
        for (std::int64_t h = 0; h < heads; ++h) {
          if (Widened(first[h * stride]) == nothing) return true;
        }
      }
    }
    return false;
  });
}

/// visit(b, r, h) where the factor takes nothing, until it returns true.
template <class Visit>
bool AnyWeightless(const TensorView& factor, double nothing, const Visit& visit) {
  return WithType(factor, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const RowsOf<T> factors(factor);
    for (std::int64_t b = 0; b < factor.size(0); ++b) {
      for (std::int64_t r = 0; r < factor.size(1); ++r) {
        for (std::int64_t h = 0; h < factor.size(2); ++h) {
          if (TakesNothing(factors, nothing, b, r, h) && visit(b, r, h)) return true;
        }
      }
    }
    return false;
  });
}

/// [B, R, heads, ...], each row as often as memories share it.
Tensor RowForEveryMemory(const TensorView& view, std::int64_t heads) {
  const std::int64_t b = view.size(0), r = view.size(1), shared = heads / view.size(2);
  Tensor rows(view.dtype(),
              view.rank() == 4 ? Shape{b, r, heads, view.size(3)} : Shape{b, r, heads});
  for (std::int64_t h = 0; h < heads; ++h) {
    CopyInto(view.Slice(2, h / shared, 1), rows.view().Slice(2, h, 1));
  }
  return rows;
}

}  // namespace

WithoutWeightless::WithoutWeightless(const Requirements& requirements, const Dims& dims,
                                     const Inputs& inputs)
    : inputs_(inputs) {
  if (KeepsPairs(requirements.recipe) || HasBudget(requirements.recipe)) return;
  for (const InputSpec& spec : requirements.inputs) {
    const TensorView& factor = inputs.*spec.view;
    if (spec.weighs.empty() || !factor.defined()) continue;
    if (!MayTakeNothing(factor, spec.weightless)) continue;
    for (const Field field : spec.weighs) {
      if ((inputs.*field).defined()) Clean(spec, field, dims.heads);
    }
  }
}

void WithoutWeightless::Clean(const InputSpec& spec, Field field, std::int64_t heads) {
  const Field factor = spec.view;
  const double nothing = spec.weightless;
  const TensorView& view = inputs_.*field;
  // Several steps a token share what is given once a token: such recipes do not exist.
  if (view.size(1) != (inputs_.*factor).size(1)) return;
  const std::int64_t shared = heads / view.size(2);
  WithType(view, [&](auto* type) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    const RowsOf<const T> given(view);
    const auto is_finite = [&](const T* row) {
      return simd::FirstOf(simd::Kind::kNonfinite, row, given.count) == given.count;
    };
    const bool found = AnyWeightless(inputs_.*factor, nothing, [&](auto b, auto r, auto h) {
      return !is_finite(given.At(b, r, h / shared));
    });
    if (!found) return false;
    copies_.push_back({field, RowForEveryMemory(view, heads)});
    const Copy& copy = copies_.back();
    const RowsOf<T> rows(copy.rows.view());
    AnyWeightless(inputs_.*factor, nothing, [&](auto b, auto r, auto h) {
      T* const row = rows.At(b, r, h);
      if (!is_finite(row)) std::fill_n(row, rows.count, T{});
      return false;
    });
    inputs_.*field = copy.rows.view();
    return true;
  });
}

Inputs WithoutWeightless::GradientsFor(const Inputs& dinputs) {
  Inputs wanted = dinputs;
  for (Copy& copy : copies_) {
    const TensorView& given = dinputs.*copy.field;
    if (!given.defined() || given.rank() != 4) continue;
    const DType dtype = given.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    copy.gradient = WorkingCopy::OfHeads(given, copy.rows.shape()[2], dtype);
    wanted.*copy.field = copy.gradient.view();
  }
  return wanted;
}

void WithoutWeightless::Gather() const {
  for (const Copy& copy : copies_) copy.gradient.WriteBack();
}

}  // namespace ttr
