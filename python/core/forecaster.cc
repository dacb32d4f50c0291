// class Forecaster: what ttr.sklearn's forecasters read rows with; many series in one call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
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

using SharedForecaster = Shared<Forecaster>;

/// [n, columns] numbers in double precision.
Array ReadRows(const char* name, std::int64_t columns, nb::handle rows) {
  Array array = ReadArray("read", name, rows, true);
  if (array.view.rank() != 2 || array.view.size(1) != columns) {
    throw Error("read", name, "of shape [n, " + std::to_string(columns) + "]", "of another shape");
  }
  if (array.view.dtype() != DType::kFloat64 || !array.view.contiguous()) {
    array.copy = Tensor::Copy(array.view, DType::kFloat64);
    array.view = array.copy.view();
  }
  return array;
}

/// Exogenous columns [n, E] of rows; nothing where there are none.
class Known {
 public:
  Known(std::int64_t columns, nb::handle rows) : columns_(columns) {
    if (!rows.is_none()) rows_ = ReadRows("known", columns, rows);
    if (rows.is_none() && columns > 0) {
      throw Error("read", "known", "the exogenous columns", "None");
    }
  }

  std::int64_t rows() const { return rows_ ? rows_->view.size(0) : 0; }
  /// From this row on.
  std::span<const double> From(std::int64_t row) const {
    if (!rows_) return {};
    return {rows_->view.as<const double>() + row * columns_,
            static_cast<std::size_t>((rows() - row) * columns_)};
  }

 private:
  std::int64_t columns_;
  std::optional<Array> rows_;
};

/// A table of rows [n, C], exogenous columns of these and of rows to come, and the forecasts.
class Table {
 public:
  Table(const ForecasterOptions& options, nb::handle rows, nb::handle known)
      : rows_(ReadRows("rows", options.columns, rows)), known_(options.exogenous, known) {
    if (options.exogenous > 0 && known_.rows() < rows_.view.size(0)) {
      throw Error("read", "known", "of as many rows as the table", "of fewer");
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
                      {room_.view.as<double>() + t * columns, width}, {}, known_.From(t));
    }
  }

 private:
  Array rows_;
  Known known_;
  nb::object forecasts_;
  Array room_;
};

nb::object Read(SharedForecaster& self, nb::handle rows, nb::handle known) {
  const Table table(self.value().options(), rows, known);
  const Unlocked unlocked(self.turn());
  table.ReadBy(self.value());
  return table.forecasts();
}

nb::list ReadAll(const nb::list& forecasters, const nb::list& tables, const nb::list& known,
                 nb::handle threads) {
  if (forecasters.size() != tables.size() || known.size() != tables.size()) {
    throw Error("read_all", "tables and known", "as many as forecasters",
                std::to_string(tables.size()) + " and " + std::to_string(known.size()));
  }
  std::vector<SharedForecaster*> readers;
  std::vector<Table> read;
  nb::list forecasts;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    readers.push_back(nb::cast<SharedForecaster*>(forecasters[i]));
    read.emplace_back(readers.back()->value().options(), tables[i], known[i]);
    forecasts.append(read.back().forecasts());
  }
  Executor& executor = ExecutorFor(threads);
  {
    const nb::gil_scoped_release released;
    executor.Run(static_cast<std::int64_t>(readers.size()), [&](std::int64_t i) {
      const std::lock_guard<Turn> lock(readers[i]->turn());
      read[i].ReadBy(readers[i]->value());
    });
  }
  return forecasts;
}

/// New arrays [rows, C] of numbers.
class Rows {
 public:
  Rows(const SharedForecaster& self, std::int64_t rows)
      : array_(NewArray(DType::kFloat64, Shape{rows, self.value().options().columns})),
        room_(WriteArray("forecast", "rows", array_)),
        size_(static_cast<std::size_t>(rows * self.value().options().columns)) {}

  const nb::object& array() const { return array_; }
  std::span<double> room() const { return {room_.view.as<double>(), size_}; }

 private:
  nb::object array_;
  Array room_;
  std::size_t size_;
};

nb::object Ahead(SharedForecaster& self, std::int64_t rows, nb::handle known) {
  const Known given(self.value().options().exogenous, known);
  const Rows forecasts(self, rows);
  const Unlocked unlocked(self.turn());
  self.value().Ahead(forecasts.room(), {}, given.From(0));
  return forecasts.array();
}

nb::tuple Bounds(SharedForecaster& self, double level, std::int64_t rows, nb::handle known) {
  const Known given(self.value().options().exogenous, known);
  const Rows forecasts(self, rows), lower(self, rows), upper(self, rows);
  {
    const Unlocked unlocked(self.turn());
    Forecaster& forecaster = self.value();
    forecaster.Ahead(forecasts.room(), {}, given.From(0));
    forecaster.Margins(level, upper.room());
    for (std::size_t i = 0; i < forecasts.room().size(); ++i) {
      const Interval bounds = forecaster.IntervalOf(forecasts.room()[i], upper.room()[i]);
      lower.room()[i] = bounds.lower;
      upper.room()[i] = bounds.upper;
    }
  }
  return nb::make_tuple(lower.array(), upper.array());
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
          .logarithm = nb::cast<bool>(given["logarithm"]),
          .strategy = ParseStrategy(nb::cast<std::string>(given["strategy"])),
          .exogenous = count("exogenous"),
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
  given["logarithm"] = options.logarithm;
  given["strategy"] = std::string(ToString(options.strategy));
  given["exogenous"] = options.exogenous;
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
  std::vector<TensorFile> files;
  std::string saved;
  {
    const Unlocked unlocked(self.turn());
    for (std::int64_t i = 0; i < self.value().memories(); ++i) {
      files.push_back(self.value().memory(i).ToTensors());
    }
    saved = self.value().Save();
  }
  nb::list memories;
  for (const TensorFile& file : files) {
    nb::dict tensors;
    for (const auto& [name, tensor] : file.tensors) {
      tensors[name.c_str()] = CopyArray(tensor.view());
    }
    memories.append(nb::make_tuple(file.metadata, tensors));
  }
  return nb::make_tuple(self.value().options().columns, OptionsOf(self.value().options()), memories,
                        saved);
}

void SetState(SharedForecaster& self, const nb::tuple& state) {
  std::vector<AssociativeMemory> memories;
  for (const nb::handle saved : nb::borrow<nb::list>(state[2])) {
    const auto parts = nb::cast<nb::tuple>(saved);
    TensorFile file;
    file.metadata = nb::cast<Texts>(parts[0]);
    for (const auto& [name, value] : nb::borrow<nb::dict>(parts[1])) {
      file.tensors.emplace(nb::cast<std::string>(name),
                           Tensor::Copy(ReadArray("Forecaster", "state", value).view));
    }
    memories.push_back(AssociativeMemory::FromTensors(std::move(file), "a pickle"));
  }
  if (memories.empty()) throw Error("Forecaster", "state", "of a memory or more", "of none");
  const Recipe recipe = memories.back().recipe();  // a combination's first has an intercept
  Forecaster forecaster(
      recipe, OptionsFrom(nb::cast<std::int64_t>(state[0]), nb::cast<nb::dict>(state[1])));
  forecaster.Load(std::move(memories), nb::cast<std::string>(state[3]));
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
          R"(lags, horizon, ahead, exogenous, conformal: counts; sparse_lags, differences: of counts; raw: units; logarithm: bool;
strategy: a name; step, decay, momentum, weight_decay, interval_decay: numbers. KeyError: one that is missing.)")
      .def(
          "read", &Read, nb::arg("rows"), nb::arg("known") = nb::none(),
          nb::sig("def read(self, rows: object, known: object = None) -> " TTR_ARRAY),
          R"(Reads [n, C], NaN where missing. Returns the forecasts of these rows as they were made.
known: exogenous columns [m, E] of these rows and of as many later ones as they are known of, m >= n.)")
      .def("ahead", &Ahead, nb::arg("rows"), nb::arg("known") = nb::none(),
           nb::sig("def ahead(self, rows: int, known: object = None) -> " TTR_ARRAY),
           "The forecasts of the next rows; NaN before lags + horizon - 1 were read.")
      .def("bounds", &Bounds, nb::arg("level"), nb::arg("rows"), nb::arg("known") = nb::none(),
           nb::sig("def bounds(self, level: float, rows: int, known: object = None) -> "
                   "tuple[" TTR_ARRAY ", " TTR_ARRAY "]"),
           "The intervals of the next rows; NaN where errors are not measured.")
      .def_prop_ro("rows", [](const F& self) { return self.value().rows(); })
      .def_prop_ro(
          "condition",
          [](const F& self) {
            const Unlocked unlocked(self.turn());
            return self.value().memory().Condition();
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
  module.def("read_all", &ReadAll, nb::arg("forecasters"), nb::arg("tables"), nb::arg("known"),
             nb::arg("threads") = nb::none(),
             nb::sig("def read_all(forecasters: list[Forecaster], tables: list[typing.Any], "
                     "known: list[typing.Any], threads: int | None = None) -> list[" TTR_ARRAY "]"),
             "Forecaster.read of every table by its forecaster, on all cores.");
}

}  // namespace ttr::python
