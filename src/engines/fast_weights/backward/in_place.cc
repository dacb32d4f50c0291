// Which rows of inputs and gradients are used in place.

#include <cstdint>

#include "src/engines/fast_weights/backward/rows.h"
#include "src/simd/caches.h"

namespace ttr::fast_weights {
namespace {

/// Can the gradient's kernels read or write rows of `width` numbers in place?
template <class T>
bool Fits(const Rows& rows, std::int64_t width, std::int64_t head_stride = 0) {
  constexpr std::int64_t kUnit = 16;
  return rows && rows.dtype == DTypeOf<T>() && width % kUnit == 0 && rows.stride % kUnit == 0 &&
         head_stride % kUnit == 0 && reinterpret_cast<std::uintptr_t>(rows.data) % kLineBytes == 0;
}

/// The rows from `first` on.
template <class T>
GradientRows<T> From(const Rows& rows, std::int64_t first, std::int64_t head_stride = 0) {
  return {static_cast<T*>(rows.data) + first * rows.stride, rows.stride, head_stride};
}

}  // namespace

template <class T>
void FindInPlace(const Options& options, const Memory& memory, const GradientMemory& out,
                 BackwardRows<T>& rows) {
  const std::int64_t values = memory.dims.value_dim, keys = memory.dims.key_dim;
  const bool extended = rows.value_dim > values;  // by the value 1
  const bool scaled = options.scale != 1 && !rows.folds_scale;
  const bool as_given = !options.normalise_qk && !scaled && !options.bonus;
  // Is the gradient of a row that of the input?
  const bool plain = as_given && options.features.map == rows::Map::kNone && !options.intercept &&
                     options.correction == 0 && options.steps == 1;
  InPlace& in_place = rows.in_place;
  in_place.keys = RowsAreInputs<T>(options, memory) && as_given && !options.by_channel() &&
                  Fits<T>(memory.inputs.k, keys) &&
                  Fits<T>(memory.inputs.q, keys, memory.q_head_stride);
  in_place.value = !extended && Fits<T>(memory.inputs.v, values);
  in_place.dy = !options.transforms_outputs() && options.steps == 1 &&
                Fits<T>(memory.y, values, memory.y_head_stride);
  in_place.d_value = !extended && !out.add_v && Fits<T>(out.inputs.v, values);
  in_place.d_key = plain && !options.step_reads_norm() && !options.by_channel() &&
                   options.key == Key::kInput && options.erase == Erase::kKey &&
                   !options.preconditioned && !out.add_k && Fits<T>(out.inputs.k, keys);
  in_place.d_query =
      plain && !options.phase && !out.add_q && Fits<T>(out.inputs.q, keys, out.q_head_stride);
  // What no cache holds until it is read again is not brought there to be written.
  const auto large = [&](const Rows& of) {
    return simd::PastCaches<T>(of, memory.dims.rows, simd::TheCaches().uncached_gradients);
  };
  rows.streams.value = in_place.d_value && large(out.inputs.v);
  rows.streams.query = in_place.d_query && !options.by_channel() && large(out.inputs.q);
  rows.streams.key =
      !out.add_k && Fits<T>(out.inputs.k, memory.dims.input_dim) && large(out.inputs.k);
}

template <class T>
void PointInPlace(const Options& options, const Memory& memory, const GradientMemory& out,
                  const BackwardRows<T>& rows, GradientCall<T>& call) {
  const InPlace& in_place = rows.in_place;
  const bool separate = options.separate_value_key();
  const std::int64_t first = rows.first;
  if (in_place.keys) {
    call.in.write = From<const T>(memory.inputs.k, first);
    if (options.erases()) call.in.erase = call.in.write;
    call.in.query = From<const T>(memory.inputs.q, first, memory.q_head_stride);
  }
  if (in_place.value) {
    (separate ? call.in.second_value : call.in.value) = From<const T>(memory.inputs.v, first);
  }
  if (in_place.dy) call.d_output = From<const T>(memory.y, first, memory.y_head_stride);
  if (in_place.d_value) {
    (separate ? call.d.second_value : call.d.value) = From<T>(out.inputs.v, first);
  }
  if (in_place.d_query) call.d.query = From<T>(out.inputs.q, first, out.q_head_stride);
  if (in_place.d_key) call.d.write = From<T>(out.inputs.k, first);
}

template void FindInPlace(const Options&, const Memory&, const GradientMemory&,
                          BackwardRows<float>&);
template void FindInPlace(const Options&, const Memory&, const GradientMemory&,
                          BackwardRows<double>&);
template void PointInPlace(const Options&, const Memory&, const GradientMemory&,
                           const BackwardRows<float>&, GradientCall<float>&);
template void PointInPlace(const Options&, const Memory&, const GradientMemory&,
                           const BackwardRows<double>&, GradientCall<double>&);

}  // namespace ttr::fast_weights
