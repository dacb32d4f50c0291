/// Arrays of Python as tensors of ttr, and back.
///
/// Taken: whatever has NumPy's buffer protocol or DLPack, on a CPU, of float32, float64, bfloat16
/// (DLPack, or NumPy with ml_dtypes), int64 or int8; any strides, read-only too. Lists and numbers
/// become float64. Memory is shared, but where ttr could not read it: a last axis that is not
/// contiguous, addresses and strides that are no multiple of the element, foreign byte order.
/// What is written is never copied: it is refused instead.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <string_view>

#include "ttr/tensor.h"

namespace ttr::python {

namespace nb = nanobind;

struct ReleaseBuffer {
  void operator()(Py_buffer* buffer) const;
};

/// A view, and what keeps its memory there. Made and destroyed under the GIL; `view` may be used
/// without it.
struct Array {
  TensorView view;
  nb::object dtype;  ///< NumPy's type object of bfloat16 (ml_dtypes'); else nothing

  std::unique_ptr<Py_buffer, ReleaseBuffer> buffer;
  nb::ndarray<nb::ro> tensor;
  Tensor copy;
};

/// An argument that is read. `integers`: whole numbers of any width become int64; else they are
/// refused, but int64 itself. Errors: `[op] name must be ... but is ...`.
Array ReadArray(std::string_view op, std::string_view name, nb::handle value,
                bool integers = false);

/// An argument that is written: its very memory.
Array WriteArray(std::string_view op, std::string_view name, nb::handle value);

/// A new NumPy array, not initialised. `bfloat16`: the type object for that, if there is one; else
/// such an array is float32.
nb::object NewArray(DType dtype, const Shape& shape, nb::handle bfloat16 = {});

/// NumPy's array of memory that `owner` keeps. bfloat16 is widened to float32.
nb::object ShareArray(const TensorView& view, nb::handle owner);

/// A NumPy array that owns a copy.
nb::object CopyArray(const TensorView& view);

/// "float32", numpy.float64, ...: the type of a state.
DType StateDType(std::string_view op, nb::handle dtype);

/// numpy, imported at the first use.
nb::handle NumPy();

}  // namespace ttr::python
