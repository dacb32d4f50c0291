#include "python/core/arrays.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "ttr/error.h"

namespace ttr::python {
namespace {

using Strides = std::array<std::int64_t, kMaxRank>;

[[noreturn]] void FailType(std::string_view op, std::string_view name, std::string_view given) {
  throw Error(op, name, "float32, float64, bfloat16 or float16", given);
}

/// What a person calls the type of an array, or the object itself.
std::string TypeText(nb::handle value) {
  const nb::object dtype = nb::getattr(value, "dtype", nb::none());
  if (!dtype.is_none()) return nb::str(dtype).c_str();
  return "a " + std::string(nb::str(value.type().attr("__name__")).c_str());
}

Shape ShapeOf(std::string_view op, std::string_view name, const std::int64_t* sizes, int rank) {
  if (rank > kMaxRank) {
    throw Error(op, name, "of at most " + std::to_string(kMaxRank) + " dimensions",
                "of " + std::to_string(rank));
  }
  return Shape(std::span(sizes, static_cast<std::size_t>(rank)));
}

/// The element type that a format of the buffer protocol names; none for all that ttr has no type
/// for. 'H' is taken for bfloat16, which NumPy cannot name.
std::optional<DType> TypeOfFormat(const char* format, std::int64_t bytes, bool bfloat16) {
  if (format == nullptr) return std::nullopt;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  switch (*format) {
    case 'f': return DType::kFloat32;
    case 'd': return DType::kFloat64;
    case 'e': return DType::kFloat16;
    case 'b': return DType::kInt8;
    case 'l':
    case 'q': return bytes == 8 ? std::optional(DType::kInt64) : std::nullopt;
    case 'H': return bfloat16 ? std::optional(DType::kBFloat16) : std::nullopt;
    default: return std::nullopt;
  }
}

std::optional<DType> TypeOfDlpack(nb::dlpack::dtype dtype) {
  if (dtype == nb::dtype<float>()) return DType::kFloat32;
  if (dtype == nb::dtype<double>()) return DType::kFloat64;
  if (dtype == nb::dtype<std::int64_t>()) return DType::kInt64;
  if (dtype == nb::dtype<std::int8_t>()) return DType::kInt8;
  if (dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) && dtype.bits == 16) {
    return DType::kFloat16;
  }
  if (dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat) && dtype.bits == 16) {
    return DType::kBFloat16;
  }
  return std::nullopt;
}

/// A NumPy array of ml_dtypes' bfloat16, for which there is no buffer?
bool IsBFloat16(nb::handle value) {
  if (!nb::isinstance(value, NumPy().attr("ndarray"))) return false;
  const nb::object dtype = nb::getattr(value, "dtype", nb::none());
  if (dtype.is_none()) return false;
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  return nb::isinstance<nb::str>(name) && std::string_view(nb::str(name).c_str()) == "bfloat16";
}

/// A buffer as a view, if every element can be addressed. One without strides, as those of ctypes,
/// has its rows one behind the other, although strides were asked for.
bool ViewBuffer(std::string_view op, std::string_view name, const Py_buffer& buffer, DType dtype,
                TensorView& view) {
  const auto item = static_cast<std::int64_t>(SizeOf(dtype));
  Strides sizes{}, strides{};
  bool addressable = reinterpret_cast<std::uintptr_t>(buffer.buf) % SizeOf(dtype) == 0;
  std::int64_t behind = item;  // bytes of all that lies behind an axis
  for (int i = std::min(buffer.ndim, kMaxRank) - 1; i >= 0; --i) {
    const auto axis = static_cast<std::size_t>(i);
    sizes[axis] = buffer.shape[i];
    const std::int64_t stride = buffer.strides != nullptr ? buffer.strides[i] : behind;
    addressable = addressable && (sizes[axis] <= 1 || stride % item == 0);
    strides[axis] = stride / item;
    behind *= sizes[axis];
  }
  const Shape shape = ShapeOf(op, name, sizes.data(), buffer.ndim);
  if (!addressable) return false;
  view = TensorView(buffer.buf, dtype, shape,
                    std::span(strides).first(static_cast<std::size_t>(shape.rank())));
  return true;
}

std::unique_ptr<Py_buffer, ReleaseBuffer> GetBuffer(nb::handle value, int flags) {
  auto room = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(value.ptr(), room.get(), flags) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  return std::unique_ptr<Py_buffer, ReleaseBuffer>(room.release());
}

/// numpy.ascontiguousarray(value, dtype): native, aligned and without gaps.
nb::object Contiguous(nb::handle value, nb::handle dtype = nb::none()) {
  return NumPy().attr("ascontiguousarray")(value, dtype);
}

bool HasRows(const TensorView& view) {
  const int last = view.rank() - 1;
  return last < 0 || view.size(last) <= 1 || view.stride(last) == 1;
}

/// A tensor by DLPack as a view.
TensorView ViewTensor(std::string_view op, std::string_view name, nb::handle value,
                      const nb::ndarray<nb::ro>& tensor) {
  if (tensor.device_type() != nb::device::cpu::value) {
    throw Error(op, name, "in memory of the CPU",
                "on device " + std::string(nb::str(nb::getattr(value, "device", value)).c_str()));
  }
  const auto dtype = TypeOfDlpack(tensor.dtype());
  if (!dtype) FailType(op, name, TypeText(value));
  const Shape shape = ShapeOf(op, name, tensor.shape_ptr(), static_cast<int>(tensor.ndim()));
  return TensorView(const_cast<void*>(tensor.data()), *dtype, shape,
                    std::span(tensor.stride_ptr(), tensor.ndim()));
}

/// Takes `value` by DLPack; false where it has none.
template <class Tensor>
bool ImportTensor(std::string_view op, std::string_view name, nb::handle value, Tensor& tensor) {
  if (!nb::hasattr(value, "__dlpack__")) return false;
  const nb::object wants_gradient = nb::getattr(value, "requires_grad", nb::none());
  if (wants_gradient.ptr() == Py_True) {
    throw Error(op, name, "detached: gradients do not pass through NumPy's layers (ttr.torch does)",
                "a tensor that requires a gradient");
  }
  return nb::try_cast(value, tensor);
}

/// Lists, numbers and integers of other widths, by NumPy.
Array ReadConverted(std::string_view op, std::string_view name, nb::handle value, bool integers) {
  nb::object array;
  try {
    array = NumPy().attr("asarray")(value);
  } catch (const nb::python_error&) {
    throw Error(op, name, "an array of numbers", TypeText(value));
  }
  const std::string kind = nb::str(array.attr("dtype").attr("kind")).c_str();
  const bool is_array = nb::hasattr(value, "dtype");  // types of arrays are not changed silently
  const bool whole = kind == "i" || kind == "u";
  const bool floats = kind == "f" || (whole && !is_array);
  const bool native = kind == "f" && nb::cast<int>(array.attr("dtype").attr("itemsize")) >= 4;
  if (integers && whole) return ReadArray(op, name, Contiguous(array, nb::str("int64")));
  if (!floats || (is_array && !native)) FailType(op, name, TypeText(value));
  if (!is_array) return ReadArray(op, name, Contiguous(array, nb::str("float64")));
  const nb::object dtype = array.attr("dtype").attr("newbyteorder")("=");
  if (nb::cast<int>(dtype.attr("itemsize")) > 8) FailType(op, name, TypeText(value));
  return ReadArray(op, name, Contiguous(array, dtype));
}

/// numpy.empty; what it is called with is looked up once.
nb::object Empty(nb::handle sizes, DType dtype) {
  static const nb::handle empty = nb::object(NumPy().attr("empty")).release();
  static auto& types = *new std::array<nb::object, 8>();
  nb::object& type = types[static_cast<std::size_t>(dtype)];
  if (!type.is_valid()) {
    const std::string_view name = Name(dtype);
    type = NumPy().attr("dtype")(nb::str(name.data(), name.size()));
  }
  return empty(sizes, type);
}

}  // namespace

void ReleaseBuffer::operator()(Py_buffer* buffer) const {
  PyBuffer_Release(buffer);
  delete buffer;
}

nb::handle NumPy() {
  // Never given back: the interpreter may be gone when static objects are.
  static const nb::handle numpy = nb::module_::import_("numpy").release();
  return numpy;
}

Array ReadArray(std::string_view op, std::string_view name, nb::handle value, bool integers) {
  Array array;
  nb::object source = nb::borrow(value);
  array.buffer = GetBuffer(source, PyBUF_FORMAT | PyBUF_STRIDES);
  bool bfloat16 = false;
  if (!array.buffer && IsBFloat16(value)) {
    bfloat16 = true;
    array.dtype = value.attr("dtype");
    source = value.attr("view")("uint16");
    array.buffer = GetBuffer(source, PyBUF_FORMAT | PyBUF_STRIDES);
  }
  if (array.buffer) {
    const auto dtype = TypeOfFormat(array.buffer->format, array.buffer->itemsize, bfloat16);
    if (!dtype) return ReadConverted(op, name, value, integers);
    if (!ViewBuffer(op, name, *array.buffer, *dtype, array.view)) {
      nb::object type = std::move(array.dtype);
      const nb::object copy = NumPy().attr("array")(source, nb::arg("order") = "C");  // aligned
      array = Array();
      array.dtype = std::move(type);
      array.buffer = GetBuffer(copy, PyBUF_FORMAT | PyBUF_STRIDES);
      ViewBuffer(op, name, *array.buffer, *dtype, array.view);
    }
  } else if (ImportTensor(op, name, value, array.tensor)) {
    if (integers && array.tensor.dtype() != nb::dtype<std::int64_t>()) {
      return ReadConverted(op, name, value, integers);
    }
    array.view = ViewTensor(op, name, value, array.tensor);
  } else {
    return ReadConverted(op, name, value, integers);
  }
  if (!HasRows(array.view)) {
    array.copy = Tensor::Copy(array.view);
    array.view = array.copy.view();
  }
  return array;
}

Array WriteArray(std::string_view op, std::string_view name, nb::handle value) {
  constexpr int kRead = PyBUF_FORMAT | PyBUF_STRIDES;
  Array array;
  array.buffer = GetBuffer(value, kRead | PyBUF_WRITABLE);
  const bool bfloat16 = !array.buffer && IsBFloat16(value);
  if (bfloat16) {
    array.buffer = GetBuffer(value.attr("view")("uint16"), kRead | PyBUF_WRITABLE);
  }
  if (array.buffer) {
    const auto dtype = TypeOfFormat(array.buffer->format, array.buffer->itemsize, bfloat16);
    if (!dtype) FailType(op, name, TypeText(value));
    if (!ViewBuffer(op, name, *array.buffer, *dtype, array.view)) {
      throw Error(op, name, "aligned to its elements", "not");
    }
    return array;
  }
  if (bfloat16 || GetBuffer(value, kRead)) throw Error(op, name, "writable", "read-only");
  nb::ndarray<> tensor;
  if (!ImportTensor(op, name, value, tensor)) {
    throw Error(op, name, "an array that can be written", TypeText(value));
  }
  array.tensor = nb::ndarray<nb::ro>(tensor);
  array.view = ViewTensor(op, name, value, array.tensor);
  return array;
}

nb::object NewArray(DType dtype, const Shape& shape, nb::handle bfloat16) {
  nb::object sizes = nb::steal(PyTuple_New(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) {
    PyTuple_SetItem(sizes.ptr(), i, PyLong_FromLongLong(shape[i]));
  }
  if (dtype == DType::kBFloat16) {
    if (bfloat16.is_valid() && !bfloat16.is_none()) return NumPy().attr("empty")(sizes, bfloat16);
    dtype = DType::kFloat32;
  }
  return Empty(sizes, dtype);
}

nb::object ShareArray(const TensorView& view, nb::handle owner) {
  if (view.dtype() == DType::kBFloat16 || view.dtype() == DType::kFloat16) return CopyArray(view);
  std::array<std::size_t, kMaxRank> sizes{};
  Strides strides{};
  for (int i = 0; i < view.rank(); ++i) {
    sizes[static_cast<std::size_t>(i)] = static_cast<std::size_t>(view.size(i));
    strides[static_cast<std::size_t>(i)] = view.stride(i);
  }
  const auto rank = static_cast<std::size_t>(view.rank());
  const auto share = [&]<class T>(T) {
    return nb::object(
        nb::ndarray<nb::numpy, T>(view.data(), rank, sizes.data(), owner, strides.data()).cast());
  };
  switch (view.dtype()) {
    case DType::kFloat64: return share(double());
    case DType::kInt64: return share(std::int64_t());
    case DType::kInt8: return share(std::int8_t());
    default: return share(float());
  }
}

nb::object CopyArray(const TensorView& view) {
  nb::object array = NewArray(view.dtype(), view.shape());
  CopyInto(view, WriteArray("copy", "array", array).view);
  return array;
}

DType StateDType(std::string_view op, nb::handle dtype) {
  std::string name = nb::str(dtype).c_str();
  try {
    name = nb::str(NumPy().attr("dtype")(dtype).attr("name")).c_str();
  } catch (const nb::python_error&) {  // NumPy itself has no bfloat16
  }
  for (const DType known : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    if (name == Name(known)) return known;
  }
  throw Error(op, "dtype", "float32, float64, bfloat16 or float16", name);
}

}  // namespace ttr::python
