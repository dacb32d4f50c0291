// Tables: typed columns printed for a terminal, written as CSV, JSON and Markdown.
//
//   Table table("Recall by layer");
//   table.AddText("layer").AddInteger("tokens").AddMeasured("recall", 3).AddReal("time", 1, "ms");
//   table.AddRow({"rls", 4096, Measured{.998, .001}, 3.25});
//   table.AddRow({"softmax", 4096, Measured{1, 0}, {}});      // {} is an empty cell
//   table.SetMeta("seed", 1);
//   std::cout << table.ToText();
//   table.WriteCsv("recall.csv");
//
// For people (text, Markdown, HTML) numbers are rounded to the column's digits; for machines (CSV,
// JSON) they are the shortest text that reads back as the same double. A measured column becomes
// two there, NAME and NAME_error.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ttr::report {

// A mean and the error of it; an error that is not finite (a single seed) is not shown.
struct Measured {
  double value = 0;
  double error = 0;
};

// What stands at a row and column; empty by default.
class Cell {
 public:
  using Value = std::variant<std::monostate, std::string, std::int64_t, double, Measured>;

  Cell() = default;
  Cell(const char* text) : value_(std::string(text)) {}
  Cell(std::string_view text) : value_(std::string(text)) {}
  Cell(std::string text) : value_(std::move(text)) {}
  Cell(std::floating_point auto number) : value_(static_cast<double>(number)) {}
  Cell(std::integral auto number) : value_(static_cast<std::int64_t>(number)) {}
  Cell(Measured measured) : value_(measured) {}
  template <typename T>
  Cell(const std::optional<T>& optional) {
    if (optional) *this = Cell(*optional);
  }
  // Compiled once: rows are lists of cells, and each would have all of this in line.
  Cell(const Cell&);
  Cell(Cell&&) noexcept;
  Cell& operator=(const Cell&);
  Cell& operator=(Cell&&) noexcept;
  ~Cell();

  const Value& value() const { return value_; }

 private:
  Value value_;
};

enum class ColumnType { kText, kInteger, kReal, kMeasured };
enum class RealFormat {
  kFixed,        // digits after the point
  kSignificant,  // digits in all, trailing zeros kept, an exponent where it is shorter
  kScientific,   // d.ddde-05
};
enum class Alignment { kLeft, kRight };

struct Column {
  std::string name;
  ColumnType type = ColumnType::kText;
  int digits = 0;
  std::string unit;
  RealFormat format = RealFormat::kFixed;
  Alignment alignment = Alignment::kLeft;
};

struct TextOptions {
  int width = 0;           // Columns of the terminal, 0 for no limit.
  bool wrap_last = false;  // Break the last column's text at spaces to fit; else it is cut.
  int indent = 0;
};

class Table {
 public:
  explicit Table(std::string title = "");

  // Columns come before rows. Names are unique: they are keys in JSON.
  Table& AddText(std::string name, Alignment alignment = Alignment::kLeft);
  Table& AddInteger(std::string name, std::string unit = "");
  Table& AddReal(std::string name, int digits, std::string unit = "",
                 RealFormat format = RealFormat::kFixed);
  Table& AddMeasured(std::string name, int digits, std::string unit = "",
                     RealFormat format = RealFormat::kFixed);

  // One cell a column, of the column's type; an integer may stand in a real column. Throws
  // ttr::Error on another number of cells or another type.
  Table& AddRow(std::vector<Cell> cells);

  // What holds for the whole table (seeds, options): goes to JSON, under "meta".
  Table& SetMeta(const std::string& key, const Cell& value);
  Table& SetMetaJson(const std::string& key, const nlohmann::ordered_json& value);

  const std::string& title() const { return title_; }
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<Cell>>& rows() const { return rows_; }
  const nlohmann::ordered_json& meta() const { return *meta_; }

  // The heading of column `c`, with its unit: "time (ms)".
  std::string Heading(std::size_t c) const;
  // The cell as a person reads it; empty cells are "".
  std::string Shown(std::size_t row, std::size_t c) const;

  std::string ToText(const TextOptions& options = {}) const;
  std::string ToMarkdown() const;
  // RFC 4180, with \n line ends: quotes where needed, doubled inside. NaN is nan, infinity inf.
  std::string ToCsv() const;
  // {"title", "meta", "columns": [{"name", "unit"}], "rows": [{name: value}]}; what is empty or not
  // finite is null.
  nlohmann::ordered_json ToJson() const;
  std::string ToJsonText() const;  // by DumpJson()

  // Written whole or not at all; throw ttr::SystemError.
  void WriteCsv(const std::filesystem::path& path) const;
  void WriteJson(const std::filesystem::path& path) const;

 private:
  Table& AddColumn(Column column);
  // Headings and cells as shown, by row; row 0 holds the headings.
  std::vector<std::vector<std::string>> Grid() const;

  std::string title_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  // Apart, so that most files are spared the definition of JSON; copies of the table share it.
  std::shared_ptr<const nlohmann::ordered_json> meta_;
};

// A number as tables show it. A nonzero value that `digits` would show as zero, or one too long for
// fixed notation, gets an exponent instead.
std::string ShowReal(double value, int digits, RealFormat format = RealFormat::kFixed);

// The shortest text that reads back as the same double.
std::string ExactReal(double value);

// One line of CSV, without its end.
std::string CsvLine(const std::vector<std::string>& fields);

// JSON text that never fails: bytes that are no UTF-8 become U+FFFD, non-finite numbers null.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace ttr::report
