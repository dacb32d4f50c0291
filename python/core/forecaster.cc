// class Forecaster: what ttr.sklearn's forecasters read rows with; many series in one call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/core/calls.h"
#include "python/core/executors.h"
#include "python/core/module.h"
#include "ttr/error.h"
#include "ttr/forecast.h"
#include "ttr/util/safetensors.h"

namespace ttr::python {
namespace {

#define TTR_ARRAY "numpy.typing.NDArray[numpy.float64]"

/// A forecaster, and who may use it now.
class SharedForecaster {
 public:
  explicit SharedForecaster(Forecaster forecaster) : forecaster_(std::move(forecaster)) {}
  SharedForecaster(const SharedForecaster& other) : forecaster_(other.Copy()) {}

  Forecaster& forecaster() { return forecaster_; }
  const Forecaster& forecaster() const { return forecaster_; }
  Turn& turn() const { return turn_; }
  std::int64_t columns() const { return forecaster_.options().columns; }

 private:
  Forecaster Copy() const {
    const Unlocked unlocked(turn_);
    return forecaster_;
  }

  mutable Turn turn_;
  Forecaster forecaster_;
};

/// A table of [n, C] numbers in double precision, and the forecasts of its rows.
class Table {
 public:
  Table(std::int64_t columns, nb::handle rows) : rows_(ReadArray("read", "rows", rows, true)) {
    if (rows_.view.rank() != 2 || rows_.view.size(1) != columns) {
      throw Error("read", "rows", "of shape [n, " + std::to_string(columns) + "]",
                  "of another shape");
    }
    if (rows_.view.dtype() != DType::kFloat64 || !rows_.view.contiguous()) {
      rows_.copy = Tensor::Copy(rows_.view, DType::kFloat64);
      rows_.view = rows_.copy.view();
    }
    forecasts_ = NewArray(DType::kFloat64, rows_.view.shape());
    room_ = WriteArray("read", "forecasts", forecasts_);
  }

  const nb::object& forecasts() const { return forecasts_; }

  void ReadBy(Forecaster& forecaster) const {
    const std::int64_t columns = rows_.view.size(1);
    for (std::int64_t t = 0; t < rows_.view.size(0); ++t) {
      const auto width = static_cast<std::size_t>(columns);
      forecaster.Next({rows_.view.as<const double>() + t * columns, width},
                      {room_.view.as<double>() + t * columns, width});
    }
  }

 private:
  Array rows_;
  nb::object forecasts_;
  Array room_;
};

nb::object Read(SharedForecaster& self, nb::handle rows) {
  const Table table(self.columns(), rows);
  const Unlocked unlocked(self.turn());
  table.ReadBy(self.forecaster());
  return table.forecasts();
}

nb::list ReadAll(const nb::list& forecasters, const nb::list& tables, nb::handle threads) {
  if (forecasters.size() != tables.size()) {
    throw Error("read_all", "tables", "as many as forecasters", std::to_string(tables.size()));
  }
  std::vector<SharedForecaster*> readers;
  std::vector<Table> read;
  nb::list forecasts;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    readers.push_back(nb::cast<SharedForecaster*>(forecasters[i]));
    read.emplace_back(readers.back()->columns(), tables[i]);
    forecasts.append(read.back().forecasts());
  }
  Executor& executor = ExecutorFor(threads);
  {
    const nb::gil_scoped_release released;
    executor.Run(static_cast<std::int64_t>(readers.size()), [&](std::int64_t i) {
      const std::lock_guard<Turn> lock(readers[i]->turn());
      read[i].ReadBy(readers[i]->forecaster());
    });
  }
  return forecasts;
}

/// A new array [rows, C], and what fills it without the GIL.
template <class Fill>
nb::object Filled(const SharedForecaster& self, std::int64_t rows, Fill&& fill) {
  const nb::object array = NewArray(DType::kFloat64, Shape{rows, self.columns()});
  const Array room = WriteArray("forecast", "rows", array);
  const Unlocked unlocked(self.turn());
  fill(std::span(room.view.as<double>(), static_cast<std::size_t>(rows * self.columns())));
  return array;
}

ForecasterOptions OptionsFrom(std::int64_t columns, const nb::dict& given) {
  const auto number = [&](const char* name) { return nb::cast<double>(given[name]); };
  const auto count = [&](const char* name) { return nb::cast<std::int64_t>(given[name]); };
  const auto counts = [&](const char* name) {
    return nb::cast<std::vector<std::int64_t>>(given[name]);
  };
  return {.lags = count("lags"),
          .columns = columns,
          .horizon = count("horizon"),
          .sparse_lags = counts("sparse_lags"),
          .differences = counts("differences"),
          .ahead = count("ahead"),
          .units = nb::cast<bool>(given["raw"]) ? Units::kRaw : Units::kWindow,
          .gates = {.step = number("step"),
                    .decay = number("decay"),
                    .momentum = number("momentum"),
                    .weight_decay = number("weight_decay")},
          .measures_errors = true,
          .interval_decay = number("interval_decay"),
          .conformal = count("conformal")};
}

nb::dict OptionsOf(const ForecasterOptions& options) {
  nb::dict given;
  given["lags"] = options.lags;
  given["horizon"] = options.horizon;
  given["sparse_lags"] = options.sparse_lags;
  given["differences"] = options.differences;
  given["ahead"] = options.ahead;
  given["raw"] = options.units == Units::kRaw;
  given["step"] = options.gates.step;
  given["decay"] = options.gates.decay;
  given["momentum"] = options.gates.momentum;
  given["weight_decay"] = options.gates.weight_decay;
  given["interval_decay"] = options.interval_decay;
  given["conformal"] = options.conformal;
  return given;
}

using Texts = std::map<std::string, std::string>;

nb::tuple GetState(const SharedForecaster& self) {
  TensorFile file;
  std::string saved;
  {
    const Unlocked unlocked(self.turn());
    file = self.forecaster().memory().ToTensors();
    saved = self.forecaster().Save();
  }
  nb::dict tensors;
  for (const auto& [name, tensor] : file.tensors) tensors[name.c_str()] = CopyArray(tensor.view());
  return nb::make_tuple(self.columns(), OptionsOf(self.forecaster().options()), file.metadata,
                        tensors, saved);
}

void SetState(SharedForecaster& self, const nb::tuple& state) {
  TensorFile file;
  file.metadata = nb::cast<Texts>(state[2]);
  for (const auto& [name, value] : nb::borrow<nb::dict>(state[3])) {
    file.tensors.emplace(nb::cast<std::string>(name),
                         Tensor::Copy(ReadArray("Forecaster", "state", value).view));
  }
  auto memory = AssociativeMemory::FromTensors(std::move(file), "a pickle");
  const Recipe recipe = memory.recipe();
  Forecaster forecaster(
      recipe, OptionsFrom(nb::cast<std::int64_t>(state[0]), nb::cast<nb::dict>(state[1])));
  forecaster.Load(std::move(memory), nb::cast<std::string>(state[4]));
  new (&self) SharedForecaster(std::move(forecaster));
}

}  // namespace

void BindForecaster(nb::module_& module) {
  using F = SharedForecaster;
  nb::class_<F>(
      module, "Forecaster",
      R"(A memory of window -> next row that reads the rows of a table; ttr.sklearn's forecasters
are made of it. Pickle and deepcopy go on bit for bit. Threads take turns.)")
      .def(
          "__init__",
          [](F* self, nb::handle recipe, std::int64_t columns, const nb::kwargs& given) {
            new (self) F(Forecaster(RecipeFrom(recipe), OptionsFrom(columns, given)));
          },
          nb::arg("recipe"), nb::arg("columns"), nb::arg("options"),
          nb::sig("def __init__(self, recipe: str | dict[str, typing.Any] | Recipe, columns: int, "
                  "**options: typing.Any) -> None"),
          R"(lags, horizon, ahead, conformal: counts; sparse_lags, differences: of counts; raw: units;
step, decay, momentum, weight_decay, interval_decay: numbers. KeyError: one that is missing.)")
      .def(
          "read", &Read, nb::arg("rows"), nb::sig("def read(self, rows: object) -> " TTR_ARRAY),
          "Reads [n, C], NaN where missing. Returns the forecasts of these rows as they were made.")
      .def(
          "ahead",
          [](F& self, std::int64_t rows) {
            return Filled(self, rows,
                          [&](std::span<double> room) { self.forecaster().Ahead(room); });
          },
          nb::arg("rows"), nb::sig("def ahead(self, rows: int) -> " TTR_ARRAY),
          "The forecasts of the next rows; NaN before lags + horizon - 1 were read.")
      .def(
          "margins",
          [](F& self, double level, std::int64_t rows) {
            return Filled(self, rows,
                          [&](std::span<double> room) { self.forecaster().Margins(level, room); });
          },
          nb::arg("level"), nb::arg("rows"),
          nb::sig("def margins(self, level: float, rows: int) -> " TTR_ARRAY),
          "Half the widths of the intervals of the next rows; NaN where errors are not measured.")
      .def_prop_ro("rows", [](const F& self) { return self.forecaster().rows(); })
      .def_prop_ro(
          "condition",
          [](const F& self) {
            const Unlocked unlocked(self.turn());
            return self.forecaster().memory().Condition();
          },
          "As Memory.condition() has it.")
      .def(
          "__copy__", [](const F& self) { return new F(self); }, nb::rv_policy::take_ownership)
      .def(
          "__deepcopy__", [](const F& self, nb::handle) { return new F(self); }, nb::arg("memo"),
          nb::rv_policy::take_ownership,
          nb::sig("def __deepcopy__(self, memo: object, /) -> Forecaster"))
      .def("__getstate__", &GetState, nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def("__setstate__", &SetState, nb::arg("saved"),
           nb::sig("def __setstate__(self, saved: tuple[typing.Any, ...], /) -> None"));
  module.def("read_all", &ReadAll, nb::arg("forecasters"), nb::arg("tables"),
             nb::arg("threads") = nb::none(),
             nb::sig("def read_all(forecasters: list[Forecaster], tables: list[typing.Any], "
                     "threads: int | None = None) -> list[" TTR_ARRAY "]"),
             "Forecaster.read of every table by its forecaster, on all cores.");
}

}  // namespace ttr::python
