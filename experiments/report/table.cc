#include "experiments/report/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "experiments/report/atomic_file.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

using Json = nlohmann::ordered_json;

bool Fits(const Cell::Value& value, ColumnType type) {
  if (std::holds_alternative<std::monostate>(value)) return true;
  const bool integer = std::holds_alternative<std::int64_t>(value);
  const bool real = integer || std::holds_alternative<double>(value);
  switch (type) {
    case ColumnType::kText: return std::holds_alternative<std::string>(value);
    case ColumnType::kInteger: return integer;
    case ColumnType::kReal: return real;
    case ColumnType::kMeasured: return real || std::holds_alternative<Measured>(value);
  }
  return false;
}

// A number where a real or measured column has one; without an error, that is not a number.
Measured AsMeasured(const Cell::Value& value) {
  if (const auto* measured = std::get_if<Measured>(&value)) return *measured;
  const auto* integer = std::get_if<std::int64_t>(&value);
  const double number = integer ? static_cast<double>(*integer) : std::get<double>(value);
  return {number, std::nan("")};
}

std::string Scientific(double value, int digits) { return fmt::format("{:.{}e}", value, digits); }

Json JsonNumber(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// Without the error of what is measured.
Json CellJson(const Cell::Value& value) {
  if (std::holds_alternative<std::monostate>(value)) return nullptr;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  return JsonNumber(AsMeasured(value).value);
}

}  // namespace

Cell::Cell(const Cell&) = default;
Cell::Cell(Cell&&) noexcept = default;
Cell& Cell::operator=(const Cell&) = default;
Cell& Cell::operator=(Cell&&) noexcept = default;
Cell::~Cell() = default;

std::string ExactReal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  // fmt ends whole numbers with .0, which a table of counts can do without.
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string ShowReal(double value, int digits, RealFormat format) {
  if (!std::isfinite(value)) return ExactReal(value);
  if (format == RealFormat::kScientific) return Scientific(value, digits);
  if (format == RealFormat::kSignificant) return fmt::format("{:#.{}g}", value, digits);
  if (std::abs(value) >= 1e15) return Scientific(value, digits);
  std::string text = fmt::format("{:.{}f}", value, digits);
  const bool shows_zero = text.find_first_of("123456789") == std::string::npos;
  if (!shows_zero) return text;
  if (value != 0) return Scientific(value, 0);
  return fmt::format("{:.{}f}", 0.0, digits);  // Not -0.
}

std::string CsvLine(const std::vector<std::string>& fields) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    const std::string& field = fields[i];
    // A lone empty field would be an empty line, which readers skip.
    const bool quoted = field.find_first_of(",\"\r\n") != std::string::npos ||
                        field.starts_with(' ') || field.ends_with(' ') ||
                        (field.empty() && fields.size() == 1);
    if (!quoted) {
      line += field;
      continue;
    }
    line += '"';
    for (const char c : field) line.append(c == '"' ? 2 : 1, c);
    line += '"';
  }
  return line;
}

std::string DumpJson(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Table::Table(std::string title)
    : title_(std::move(title)), meta_(std::make_shared<Json>(Json::object())) {}

Table& Table::AddColumn(Column column) {
  if (!rows_.empty()) {
    throw Error("[table] column " + column.name + " must be added before the first row but is not");
  }
  for (const Column& other : columns_) {
    if (other.name == column.name) {
      throw Error("[table] column names must be unique but " + column.name + " is given twice");
    }
  }
  columns_.push_back(std::move(column));
  return *this;
}

Table& Table::AddText(std::string name, Alignment alignment) {
  return AddColumn({std::move(name), ColumnType::kText, 0, "", RealFormat::kFixed, alignment});
}

Table& Table::AddInteger(std::string name, std::string unit) {
  return AddColumn({std::move(name), ColumnType::kInteger, 0, std::move(unit), RealFormat::kFixed,
                    Alignment::kRight});
}

Table& Table::AddReal(std::string name, int digits, std::string unit, RealFormat format) {
  return AddColumn(
      {std::move(name), ColumnType::kReal, digits, std::move(unit), format, Alignment::kRight});
}

Table& Table::AddMeasured(std::string name, int digits, std::string unit, RealFormat format) {
  return AddColumn(
      {std::move(name), ColumnType::kMeasured, digits, std::move(unit), format, Alignment::kRight});
}

Table& Table::AddRow(std::vector<Cell> cells) {
  if (cells.size() != columns_.size()) {
    throw Error(
        fmt::format("[table] a row must have {} cells but has {}", columns_.size(), cells.size()));
  }
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (Fits(cells[c].value(), columns_[c].type)) continue;
    throw Error("[table] cell of column " + columns_[c].name +
                " must be of the column's type but is of another");
  }
  rows_.push_back(std::move(cells));
  return *this;
}

Table& Table::SetMeta(const std::string& key, const Cell& value) {
  return SetMetaJson(key, CellJson(value.value()));
}

Table& Table::SetMetaJson(const std::string& key, const Json& value) {
  Json meta = *meta_;
  meta[key] = value;
  meta_ = std::make_shared<Json>(std::move(meta));
  return *this;
}

std::string Table::Heading(std::size_t c) const {
  const Column& column = columns_[c];
  return column.unit.empty() ? column.name : column.name + " (" + column.unit + ")";
}

std::string Table::Shown(std::size_t row, std::size_t c) const {
  const Cell::Value& value = rows_[row][c].value();
  const Column& column = columns_[c];
  if (std::holds_alternative<std::monostate>(value)) return "";
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* integer = std::get_if<std::int64_t>(&value);
      integer && column.type == ColumnType::kInteger) {
    return std::to_string(*integer);
  }
  const Measured measured = AsMeasured(value);
  std::string text = ShowReal(measured.value, column.digits, column.format);
  if (std::isfinite(measured.error)) {
    text += " ± " + ShowReal(measured.error, column.digits, column.format);
  }
  return text;
}

std::string Table::ToCsv() const {
  std::vector<std::string> fields;
  for (const Column& column : columns_) {
    fields.push_back(column.name);
    if (column.type == ColumnType::kMeasured) fields.push_back(column.name + "_error");
  }
  std::string out = CsvLine(fields) + "\n";
  for (const auto& row : rows_) {
    fields.clear();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const Cell::Value& value = row[c].value();
      const bool measured = columns_[c].type == ColumnType::kMeasured;
      if (std::holds_alternative<std::monostate>(value)) {
        fields.insert(fields.end(), measured ? 2 : 1, "");
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        fields.push_back(*text);
      } else if (const auto* integer = std::get_if<std::int64_t>(&value); integer && !measured) {
        fields.push_back(std::to_string(*integer));
      } else {
        const Measured number = AsMeasured(value);
        fields.push_back(ExactReal(number.value));
        if (measured) fields.push_back(ExactReal(number.error));
      }
    }
    out += CsvLine(fields) + "\n";
  }
  return out;
}

Json Table::ToJson() const {
  Json json;
  json["title"] = title_;
  json["meta"] = *meta_;
  json["columns"] = Json::array();
  for (const Column& column : columns_) {
    json["columns"].push_back(Json{{"name", column.name}, {"unit", column.unit}});
  }
  json["rows"] = Json::array();
  for (const auto& row : rows_) {
    Json object = Json::object();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const Cell::Value& value = row[c].value();
      const std::string& name = columns_[c].name;
      const bool measured = columns_[c].type == ColumnType::kMeasured;
      if (std::holds_alternative<std::monostate>(value)) {
        object[name] = nullptr;
        if (measured) object[name + "_error"] = nullptr;
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        object[name] = *text;
      } else if (const auto* integer = std::get_if<std::int64_t>(&value); integer && !measured) {
        object[name] = *integer;
      } else {
        const Measured number = AsMeasured(value);
        object[name] = JsonNumber(number.value);
        if (measured) object[name + "_error"] = JsonNumber(number.error);
      }
    }
    json["rows"].push_back(std::move(object));
  }
  return json;
}

std::string Table::ToJsonText() const { return DumpJson(ToJson()); }

void Table::WriteCsv(const std::filesystem::path& path) const { WriteFile(path, ToCsv()); }

void Table::WriteJson(const std::filesystem::path& path) const { WriteFile(path, ToJsonText()); }

}  // namespace ttr::report
