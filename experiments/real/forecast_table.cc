#include "experiments/real/forecast_table.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/table.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

class Writer {
 public:
  Writer(TableReader& table, ForecastRun& run) : run_(run), header_(table.header()) {
    std::vector<std::string> columns;
    for (const std::int64_t column : table.chosen()) columns.push_back(table.header()[column]);
    for (const std::string& name : ForecastNames(run, columns)) {
      if (std::find(header_.begin(), header_.end(), name) != header_.end()) {
        throw Error("forecast", "every column of the table",
                    "named otherwise than the forecasts beside it", "'" + name + "'");
      }
      header_.push_back(name);
    }
  }

  std::string Header() const { return report::CsvLine(header_) + "\n"; }

  // The lines of a block, whose forecasts are made here.
  std::string Block(const std::vector<TableRow>& rows, ForecastTail& tail) {
    const auto methods = static_cast<std::int64_t>(run_.methods().size());
    std::vector<double> values;
    for (const TableRow& row : rows) {
      values.insert(values.end(), row.values.begin(), row.values.end());
    }
    Forecasts forecasts = run_.Next(values);
    std::string text;
    std::vector<std::string> fields;
    for (std::size_t t = 0; t < rows.size(); ++t) {
      const auto row = static_cast<std::int64_t>(t);
      const bool is_absent = rows[t].fields.empty();
      if (!is_absent) {
        fields = rows[t].fields;
        AddForecasts(run_, forecasts, row, fields);
        text += report::CsvLine(fields) + "\n";
        tail.fields.push_back(rows[t].fields);
      }
      tail.values.push_back(rows[t].values[0]);
      for (std::int64_t m = 0; m < methods; ++m) {
        tail.forecasts[m].push_back(forecasts.At(m, row)[0]);
        tail.AddBounds(run_, m, forecasts.At(m, row)[0], forecasts.Margin(m, row)[0]);
      }
      if (tail.fields.size() > ForecastTail::kStamps) tail.fields.pop_front();
    }
    return text;
  }

 private:
  ForecastRun& run_;
  std::vector<std::string> header_;
};

// Nothing of it is known.
TableRow AbsentRow(const TableRow& like) {
  TableRow row{.fields = {}, .values = like.values};
  std::fill(row.values.begin(), row.values.end(), std::nan(""));
  return row;
}

// Keeps the last rows only. It cuts now and then, for a cut costs as much as what is kept.
void Cut(ForecastTail& tail, std::size_t most) {
  if (tail.values.size() <= most) return;
  const auto gone = static_cast<std::ptrdiff_t>(tail.values.size() - ForecastTail::kRows);
  tail.values.erase(tail.values.begin(), tail.values.begin() + gone);
  for (auto* of_methods : {&tail.forecasts, &tail.lower, &tail.upper}) {
    for (auto& series : *of_methods) series.erase(series.begin(), series.begin() + gone);
  }
  tail.first_row += gone;
}

}  // namespace

void ForecastTail::AddBounds(const ForecastRun& run, std::int64_t method, double forecast,
                             double margin) {
  const Interval bounds = run.HasIntervals(method) ? run.IntervalOf(method, forecast, margin)
                                                   : Interval{std::nan(""), std::nan("")};
  lower[method].push_back(bounds.lower);
  upper[method].push_back(bounds.upper);
}

void AddForecasts(const ForecastRun& run, Forecasts& forecasts, std::int64_t row,
                  std::vector<std::string>& fields) {
  const auto methods = static_cast<std::int64_t>(run.methods().size());
  const auto columns = static_cast<std::int64_t>(forecasts.At(0, row).size());
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t m = 0; m < methods; ++m) {
      const double forecast = forecasts.At(m, row)[c];
      fields.push_back(forecasts.Made(m, row, c) ? report::ExactReal(forecast) : std::string());
      if (!run.HasIntervals(m)) continue;
      const double margin = forecasts.Margin(m, row)[c];
      const auto [lower, upper] = run.IntervalOf(m, forecast, margin);
      for (const double bound : {lower, upper}) {
        fields.push_back(std::isnan(margin) ? std::string() : report::ExactReal(bound));
      }
    }
  }
}

std::vector<std::string> ForecastNames(const ForecastRun& run,
                                       const std::vector<std::string>& columns) {
  std::vector<std::string> names;
  for (const std::string& column : columns) {
    for (std::size_t m = 0; m < run.methods().size(); ++m) {
      const std::string& method = run.methods()[m];
      names.push_back(columns.size() == 1 ? method : column + " " + method);
      if (!run.HasIntervals(static_cast<std::int64_t>(m))) continue;
      const std::string name = names.back();
      names.push_back(name + ".lower");
      names.push_back(name + ".upper");
    }
  }
  return names;
}

ForecastTail ForecastTable(TableReader& table, ForecastRun& run,
                           const ForecastTableOptions& options,
                           const std::function<void(std::string_view)>& write) {
  Writer writer(table, run);
  ForecastTail tail;
  tail.forecasts.resize(run.methods().size());
  tail.lower.resize(run.methods().size());
  tail.upper.resize(run.methods().size());
  write(writer.Header());
  std::vector<TableRow> rows;
  bool more = true;
  while (more) {
    rows.clear();
    TableRow row;
    while (static_cast<std::int64_t>(rows.size()) < options.block && (more = table.Next(row))) {
      const std::int64_t absent = options.clock ? options.clock->AbsentBefore(row) : 0;
      rows.insert(rows.end(), static_cast<std::size_t>(absent), AbsentRow(row));
      rows.push_back(row);
    }
    if (rows.empty()) break;
    write(writer.Block(rows, tail));
    Cut(tail, 4 * ForecastTail::kRows);
    if (options.progress) options.progress(static_cast<std::int64_t>(rows.size()));
  }
  Cut(tail, ForecastTail::kRows);
  return tail;
}

}  // namespace ttr::experiments
