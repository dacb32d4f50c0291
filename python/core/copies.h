/// copy.copy and copy.deepcopy of what is bound: a copy by its constructor.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace ttr::python {

template <class T>
void BindCopies(nanobind::class_<T>& bound, const std::string& name) {
  namespace nb = nanobind;
  const std::string signature = "def __deepcopy__(self, memo: object, /) -> " + name;
  bound.def(
           "__copy__", [](const T& self) { return new T(self); }, nb::rv_policy::take_ownership)
      .def(
          "__deepcopy__", [](const T& self, nb::handle) { return new T(self); }, nb::arg("memo"),
          nb::rv_policy::take_ownership, nb::sig(signature.c_str()));
}

}  // namespace ttr::python
