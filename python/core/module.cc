// ttr._core: the library on NumPy and DLPack arrays. What it offers is documented where it is
// bound.
#include "python/core/module.h"

#include <nanobind/stl/string.h>

#include <string>
#include <string_view>

#include "ttr/error.h"
#include "ttr/target.h"
#include "ttr/version.h"

namespace ttr::python {
namespace {

namespace nb = nanobind;

/// An error names an argument as the caller wrote it: features.w is the keyword features_w.
std::string AsWritten(std::string text) {
  for (const std::string_view name : {"features.w", "features.b"}) {
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      text[at + std::string_view("features").size()] = '_';
    }
  }
  return text;
}

void Translate(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    PyErr_SetString(PyExc_ValueError, AsWritten(error.what()).c_str());
  } catch (const SystemError& error) {
    const bool memory = std::string_view(error.what()).starts_with("out of memory");
    PyErr_SetString(memory ? PyExc_MemoryError : PyExc_OSError, error.what());
  }
}

}  // namespace
}  // namespace ttr::python

NB_MODULE(_core, module) {
  using namespace ttr::python;  // NOLINT: a module is one function
  nb::register_exception_translator(&Translate);
  module.attr("__version__") = ttr::Version();
  BindRecipe(module);
  BindLayer(module);
  BindDecoder(module);
  BindStatePool(module);
  BindMemory(module);
  module.def(
      "target", [] { return std::string(ttr::ChosenTarget()); },
      "The SIMD target that kernels run on; the variable TTR_TARGET forces another.");
}
