#include "experiments/real/forecast_table.h"

#include <algorithm>
#include <cmath>

#include "experiments/real/known_rows.h"
#include "experiments/report/table.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

class Writer {
 public:
  // `time` is the column of times; -1: none.
  Writer(const TableReader& table, ForecastRun& run, std::int64_t time)
      : run_(run), header_(table.header()), time_(time) {
    for (const std::string& name : ForecastNames(run, run.options().columns)) {
      if (std::find(header_.begin(), header_.end(), name) != header_.end()) {
        throw Error("forecast", "every column of the table",
                    "named otherwise than the forecasts beside it", "'" + name + "'");
      }
      header_.push_back(name);
    }
  }

  std::string TimeName() const { return time_ < 0 ? "" : header_[time_]; }

  std::string Header() const { return report::CsvLine(header_) + "\n"; }

  // The lines of the first of these rows, whose forecasts are made here.
  std::string Block(const std::vector<TableRow>& rows, std::size_t count, ForecastTail& tail) {
    const auto methods = static_cast<std::int64_t>(run_.methods().size());
    const std::size_t columns = run_.options().columns.size();
    std::vector<double> values, known;
    for (std::size_t t = 0; t < rows.size(); ++t) {
      const auto own = rows[t].values.begin() + static_cast<std::ptrdiff_t>(columns);
      if (t < count) values.insert(values.end(), rows[t].values.begin(), own);
      known.insert(known.end(), own, rows[t].values.end());
    }
    Forecasts forecasts = run_.Next(values, known);
    std::string text;
    std::vector<std::string> fields;
    for (std::size_t t = 0; t < count; ++t) {
      const auto row = static_cast<std::int64_t>(t);
      const bool is_absent = rows[t].fields.empty();
      if (!is_absent) {
        fields = rows[t].fields;
        AddForecasts(run_, forecasts, row, fields);
        text += report::CsvLine(fields) + "\n";
        tail.fields.push_back(rows[t].fields);
      }
      tail.times.push_back(is_absent || time_ < 0 ? std::string() : rows[t].fields[time_]);
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
  std::int64_t time_;
};

// The rows of a table and those that are absent from it, in which nothing is known but what the row
// before tells of exogenous columns.
class Rows {
 public:
  Rows(TableReader& table, const ForecastOptions& options, RowClock* clock)
      : table_(table), options_(options), clock_(clock) {}

  // Reads until there are as many, or the table ends.
  void Fill(std::size_t count) {
    TableRow row;
    while (more_ && rows_.size() < count && (more_ = table_.Next(row))) {
      CheckKnown(row, options_);
      if (last_.empty()) last_ = row.values;
      const std::int64_t absent = clock_ ? clock_->AbsentBefore(row) : 0;
      rows_.insert(rows_.end(), static_cast<std::size_t>(absent), AbsentRow());
      last_ = row.values;
      rows_.push_back(row);
    }
  }

  const std::vector<TableRow>& rows() const { return rows_; }
  bool more() const { return more_; }
  void Drop(std::size_t count) {
    rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(count));
  }

 private:
  TableRow AbsentRow() const {
    TableRow row{.fields = {}, .values = last_};
    std::fill_n(row.values.begin(), options_.columns.size(), std::nan(""));
    return row;
  }

  TableReader& table_;
  const ForecastOptions& options_;
  RowClock* clock_;
  std::vector<TableRow> rows_;
  std::vector<double> last_;
  bool more_ = true;
};

// Keeps the last rows only. It cuts now and then, for a cut costs as much as what is kept.
void Cut(ForecastTail& tail, std::size_t most) {
  if (tail.values.size() <= most) return;
  const auto gone = static_cast<std::ptrdiff_t>(tail.values.size() - ForecastTail::kRows);
  tail.values.erase(tail.values.begin(), tail.values.begin() + gone);
  tail.times.erase(tail.times.begin(), tail.times.begin() + gone);
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
  Writer writer(table, run, options.clock ? options.clock->column() : -1);
  ForecastTail tail;
  tail.time = writer.TimeName();
  tail.forecasts.resize(run.methods().size());
  tail.lower.resize(run.methods().size());
  tail.upper.resize(run.methods().size());
  write(writer.Header());
  Rows read(table, run.options(), options.clock);
  const auto ahead = static_cast<std::size_t>(options.ahead);
  while (true) {
    read.Fill(static_cast<std::size_t>(options.block) + ahead);
    const std::size_t count = read.rows().size() - (read.more() ? ahead : 0);
    if (count == 0) break;
    write(writer.Block(read.rows(), count, tail));
    read.Drop(count);
    Cut(tail, 4 * ForecastTail::kRows);
    if (options.progress) options.progress(static_cast<std::int64_t>(count));
  }
  Cut(tail, ForecastTail::kRows);
  return tail;
}

}  // namespace ttr::experiments
