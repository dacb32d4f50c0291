// ttr._core: the library on NumPy and DLPack arrays. What it offers is documented where it is
// bound.
#include "python/core/module.h"

#include <nanobind/stl/string.h>

#include <string>
#include <string_view>

#include "python/names.h"
#include "ttr/error.h"
#include "ttr/target.h"
#include "ttr/version.h"

namespace ttr::python {
namespace {

namespace nb = nanobind;

void Translate(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    PyErr_SetString(PyExc_ValueError, WithKeywords(error.what()).c_str());
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
  BindForecaster(module);
  BindRegression(module);
  module.def(
      "target", [] { return std::string(ttr::ChosenTarget()); },
      "The SIMD target that kernels run on; the variable TTR_TARGET forces another.");
}
