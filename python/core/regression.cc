// class Regression: what ttr.sklearn's regressors learn least squares with.
#include "ttr/regression.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/core/calls.h"
#include "python/core/module.h"
#include "ttr/error.h"

namespace ttr::python {
namespace {

#define TTR_ARRAY "numpy.typing.NDArray[numpy.float64]"
#define TTR_ARRAYS "dict[str, " TTR_ARRAY "]"

struct SharedRegression : Shared<Regression> {
  using Shared::Shared;

  const RegressionOptions& options() const { return value().options(); }

  /// A row {label: number}, by the place of every label.
  std::vector<double> row{};
};

/// Numbers of an argument in double precision; none of None.
class Numbers {
 public:
  Numbers(const char* op, const char* name, nb::handle value, std::int64_t columns) {
    if (value.is_none()) return;
    array_ = ReadArray(op, name, value, true);
    const TensorView& view = array_.view;
    const bool fits = columns == 0 ? view.rank() == 1 : view.rank() == 2 && view.size(1) == columns;
    if (!fits) {
      const std::string shape = columns == 0 ? "[n]" : "[n, " + std::to_string(columns) + "]";
      throw Error(op, name, "of shape " + shape, "of another shape");
    }
    if (view.dtype() != DType::kFloat64 || !view.contiguous()) {
      array_.copy = Tensor::Copy(view, DType::kFloat64);
      array_.view = array_.copy.view();
    }
  }

  std::span<const double> span() const {
    if (!array_.view.defined()) return {};
    return {array_.view.as<const double>(),
            static_cast<std::size_t>(array_.view.shape().elements())};
  }
  std::int64_t rows() const { return array_.view.size(0); }

 private:
  Array array_;
};

struct Table {
  Numbers keys, values, weights, times;

  Table(const RegressionOptions& options, nb::handle x, nb::handle y, nb::handle w, nb::handle t)
      : keys("learn", "X", x, options.key_dim),
        values("learn", "y", y, options.value_dim),
        weights("learn", "weights", w, 0),
        times("learn", "times", t, 0) {}

  RegressionRows rows() const { return {keys.span(), values.span(), weights.span(), times.span()}; }
};

std::span<double> NewNumbers(nb::object& array, const Shape& shape) {
  array = NewArray(DType::kFloat64, shape);
  const Array room = WriteArray("Regression", "numbers", array);
  return {room.view.as<double>(), static_cast<std::size_t>(shape.elements())};
}

void Learn(SharedRegression& self, nb::handle x, nb::handle y, nb::handle w, nb::handle t) {
  const Table table(self.options(), x, y, w, t);
  const Unlocked unlocked(self.turn());
  self.value().Learn(table.rows());
}

nb::object Predict(SharedRegression& self, nb::handle x) {
  const Numbers keys("predict", "X", x, self.options().key_dim);
  nb::object answers;
  const std::span<double> room = NewNumbers(answers, {keys.rows(), self.options().value_dim});
  const Unlocked unlocked(self.turn());
  self.value().Predict(keys.span(), room);
  return answers;
}

nb::tuple Path(SharedRegression& self, nb::handle x, nb::handle y, nb::handle w, nb::handle t) {
  const RegressionOptions& o = self.options();
  const Table table(o, x, y, w, t);
  const std::int64_t n = table.keys.rows(), keys = o.key_dim, values = o.value_dim;
  nb::object predicted, coefficients;
  const std::span<double> before = NewNumbers(predicted, {n, values});
  const std::span<double> after = NewNumbers(coefficients, {n, keys + 1, values});
  {
    const Unlocked unlocked(self.turn());
    const RegressionRows rows = table.rows();
    const auto part = [](auto numbers, std::int64_t i, std::int64_t width) {
      if (numbers.empty()) return numbers;
      return numbers.subspan(static_cast<std::size_t>(i * width), static_cast<std::size_t>(width));
    };
    Regression trial = self.value();  // which stays as it was where a row is refused
    for (std::int64_t i = 0; i < n; ++i) {
      trial.Predict(part(rows.keys, i, keys), part(before, i, values));
      trial.Learn({.keys = part(rows.keys, i, keys),
                   .values = part(rows.values, i, values),
                   .weights = part(rows.weights, i, 1),
                   .times = part(rows.times, i, 1)});
      trial.Coefficients(part(after, i, (keys + 1) * values));
    }
    self.value() = std::move(trial);
  }
  return nb::make_tuple(predicted, coefficients);
}

// ---- Rows {label: number} -----------------------------------------------------------------------

/// A plain finite number; nothing else.
std::optional<double> NumberOf(PyObject* object) {
  if (!PyFloat_Check(object) && !PyLong_Check(object)) return std::nullopt;
  const double number = PyFloat_Check(object) ? PyFloat_AsDouble(object) : PyLong_AsDouble(object);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

/// Fills self.row; false where a number is none, or a label has no place and `all` must have one.
/// The place -1 is that of the time.
bool FillRow(SharedRegression& self, const nb::dict& x, const nb::dict& places, bool all,
             std::optional<double>& time) {
  self.row.assign(static_cast<std::size_t>(self.options().key_dim), 0.0);
  PyObject *label = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(x.ptr(), &at, &label, &value) != 0) {
    const std::optional<double> number = NumberOf(value);
    if (!number) return false;
    PyObject* const found = PyDict_GetItemWithError(places.ptr(), label);
    if (found == nullptr) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      if (all) return false;
      continue;
    }
    const auto place = PyLong_AsSsize_t(found);
    if (place < 0) {
      time = *number;
    } else if (place < std::ssize(self.row)) {
      self.row[static_cast<std::size_t>(place)] = *number;
    } else {
      return false;
    }
  }
  return true;
}

bool LearnRow(SharedRegression& self, const nb::dict& x, const nb::dict& places, nb::handle y,
              nb::handle w) {
  const std::optional<double> value = NumberOf(y.ptr()), weight = NumberOf(w.ptr());
  std::optional<double> time;
  if (self.options().value_dim != 1 || !value || !weight || *weight < 0) return false;
  const std::lock_guard<Turn> lock(self.turn());
  if (!FillRow(self, x, places, true, time) || time.has_value() != self.options().has_times()) {
    return false;
  }
  RegressionRows rows{.keys = self.row, .values = {&*value, 1}, .weights = {&*weight, 1}};
  if (time) rows.times = {&*time, 1};
  self.value().Learn(rows);
  return true;
}

nb::object PredictRow(SharedRegression& self, const nb::dict& x, const nb::dict& places) {
  std::optional<double> time;
  if (self.options().value_dim != 1) return nb::none();
  const std::lock_guard<Turn> lock(self.turn());
  if (!FillRow(self, x, places, false, time)) return nb::none();
  double answer = 0;
  self.value().Predict(self.row, {&answer, 1});
  return nb::float_(answer);
}

// ---- As a dictionary ----------------------------------------------------------------------------

nb::dict Arrays(const Regression::Tensors& tensors) {
  nb::dict arrays;
  for (const auto& [name, tensor] : tensors) arrays[name.c_str()] = CopyArray(tensor.view());
  return arrays;
}

template <class Take>
nb::dict Taken(SharedRegression& self, Take&& take) {
  Regression::Tensors tensors;
  {
    const Unlocked unlocked(self.turn());
    tensors = take(self.value());
  }
  return Arrays(tensors);
}

Regression::Tensors TensorsFrom(const nb::dict& arrays) {
  Regression::Tensors tensors;
  for (const auto& [name, value] : arrays) {
    tensors.emplace(nb::cast<std::string>(name),
                    Tensor::Copy(ReadArray("Regression", "saved", value).view, DType::kFloat64));
  }
  return tensors;
}

RegressionOptions OptionsFrom(const nb::dict& given) {
  RegressionOptions o;
  const auto number = [&](const char* name, double& to) {
    if (given.contains(name)) to = nb::cast<double>(given[name]);
  };
  const auto count = [&](const char* name, std::int64_t& to) {
    if (given.contains(name)) to = nb::cast<std::int64_t>(given[name]);
  };
  const auto flag = [&](const char* name, bool& to) {
    if (given.contains(name)) to = nb::cast<bool>(given[name]);
  };
  count("key_dim", o.key_dim);
  count("value_dim", o.value_dim);
  count("window", o.window);
  flag("intercept", o.intercept);
  flag("ridge_fades", o.ridge_fades);
  number("ridge", o.ridge);
  number("decay", o.decay);
  number("half_life", o.half_life);
  number("span", o.span);
  return o;
}

nb::dict OptionsOf(const RegressionOptions& o) {
  nb::dict given;
  given["key_dim"] = o.key_dim;
  given["value_dim"] = o.value_dim;
  given["window"] = o.window;
  given["intercept"] = o.intercept;
  given["ridge_fades"] = o.ridge_fades;
  given["ridge"] = o.ridge;
  given["decay"] = o.decay;
  given["half_life"] = o.half_life;
  given["span"] = o.span;
  return given;
}

void SetState(SharedRegression& self, const nb::tuple& state) {
  Regression regression(OptionsFrom(nb::cast<nb::dict>(state[0])),
                        TensorsFrom(nb::cast<nb::dict>(state[1])));
  new (&self) SharedRegression(std::move(regression));
}

/// What a regression holds, as tensors, and its copies.
void BindTensors(nb::class_<SharedRegression>& bound) {
  using R = SharedRegression;
  bound
      .def(
          "fit", [](R& self) { return Taken(self, [](Regression& of) { return of.Fit(); }); },
          nb::sig("def fit(self) -> " TTR_ARRAYS),
          "r, w, rss: the triangle of the rows that count; origin; sums of g and of g^2.")
      .def(
          "save", [](R& self) { return Taken(self, [](Regression& of) { return of.Save(); }); },
          nb::sig("def save(self) -> " TTR_ARRAYS), "Everything but the options.")
      .def(
          "rows", [](R& self) { return Taken(self, [](Regression& of) { return of.Rows(); }); },
          nb::sig("def rows(self) -> " TTR_ARRAYS),
          "keys, values, weights, times of the rows in a window, the oldest first.")
      .def_prop_ro("count", [](R& self) { return self.value().count(); })
      .def_prop_ro("held", [](R& self) { return self.value().held(); })
      .def_prop_ro(
          "options", [](const R& self) { return OptionsOf(self.options()); },
          nb::sig("def options(self) -> dict[str, typing.Any]"))
      .def(
          "__copy__", [](const R& self) { return new R(self); }, nb::rv_policy::take_ownership)
      .def(
          "__deepcopy__", [](const R& self, nb::handle) { return new R(self); }, nb::arg("memo"),
          nb::rv_policy::take_ownership,
          nb::sig("def __deepcopy__(self, memo: object, /) -> Regression"))
      .def(
          "__getstate__",
          [](R& self) {
            return nb::make_tuple(OptionsOf(self.options()),
                                  Taken(self, [](Regression& of) { return of.Save(); }));
          },
          nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", &SetState, nb::arg("saved"),
           nb::sig("def __setstate__(self, saved: tuple[typing.Any, ...], /) -> None"));
}

}  // namespace

void BindRegression(nb::module_& module) {
  using R = SharedRegression;
  nb::class_<R> bound(
      module, "Regression",
      R"(Least squares over rows that come one after the other, of all rows or of a window;
ttr.sklearn's regressors are made of it. Pickle and deepcopy go on bit for bit. Threads take turns.)");
  bound
      .def(
          "__init__",
          [](R* self, const nb::object& saved, const nb::kwargs& options) {
            if (saved.is_none()) {
              new (self) R(Regression(OptionsFrom(options)));
            } else {
              new (self)
                  R(Regression(OptionsFrom(options), TensorsFrom(nb::cast<nb::dict>(saved))));
            }
          },
          nb::arg("saved") = nb::none(), nb::arg("options"),
          nb::sig("def __init__(self, saved: dict[str, typing.Any] | None = None, "
                  "**options: typing.Any) -> None"),
          R"(key_dim, value_dim, window: counts; intercept, ridge_fades: bool; ridge, decay, half_life,
span: numbers. `saved`: what save() gave.)")
      .def("learn", &Learn, nb::arg("X"), nb::arg("y"), nb::arg("weights") = nb::none(),
           nb::arg("times") = nb::none(),
           nb::sig("def learn(self, X: object, y: object, weights: object = None, "
                   "times: object = None) -> None"),
           "Learns [n, key_dim] -> [n, value_dim], the latest row last.")
      .def("predict", &Predict, nb::arg("X"), nb::sig("def predict(self, X: object) -> " TTR_ARRAY),
           "m of every row, [n, value_dim]; of least norm where the rows leave a direction open.")
      .def("path", &Path, nb::arg("X"), nb::arg("y"), nb::arg("weights") = nb::none(),
           nb::arg("times") = nb::none(),
           nb::sig("def path(self, X: object, y: object, weights: object = None, times: object = "
                   "None) -> tuple[" TTR_ARRAY ", " TTR_ARRAY "]"),
           R"(As learn(), row by row: what was predicted of every row before it was learned,
[n, value_dim], and the map behind it, [n, key_dim + 1, value_dim], its intercept last.)")
      .def("learn_row", &LearnRow, nb::arg("x"), nb::arg("places"), nb::arg("y"), nb::arg("w"),
           nb::sig("def learn_row(self, x: dict[typing.Any, typing.Any], places: "
                   "dict[typing.Any, int], y: object, w: object) -> bool"),
           R"(Learns {label: number}, by the place of every label, -1 that of the time. False, and
nothing learned: a label without a place, or what is no plain finite number.)")
      .def(
          "predict_row", &PredictRow, nb::arg("x"), nb::arg("places"),
          nb::sig("def predict_row(self, x: dict[typing.Any, typing.Any], places: "
                  "dict[typing.Any, int]) -> float | None"),
          "m of {label: number}; a label without a place is passed. None: no plain finite number.");
  BindTensors(bound);
}

}  // namespace ttr::python
