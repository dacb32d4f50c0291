#include "experiments/data/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include "experiments/data/csv_rows.h"
#include "experiments/data/text.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

constexpr std::size_t kMostNamesShown = 20;
constexpr std::size_t kMostBytesShown = 60;

std::string Shown(std::string_view text) {
  const bool cut = text.size() > kMostBytesShown;
  return fmt::format("'{}{}'", Printable(text.substr(0, kMostBytesShown)), cut ? "..." : "");
}

std::string ShownNames(std::span<const std::string> names) {
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNamesShown); ++i) {
    list += (i == 0 ? "" : ", ") + Shown(names[i]);
  }
  return list + (names.size() > kMostNamesShown ? ", ..." : "");
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos
             ? std::string_view{}
             : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool IsMissing(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  constexpr std::string_view kWords[] = {"", "na", "n/a", "nan", "-nan", "null", "?"};
  return std::find(std::begin(kWords), std::end(kWords), lower) != std::end(kWords);
}

// A decimal number that no double holds is too large or too small: is this one too small? The place
// of its first digit that is not 0, before or behind the point and moved by the exponent, tells.
bool IsTiny(std::string_view number) {
  const std::size_t e = std::min(number.find_first_of("eE"), number.size());
  std::int64_t exponent = 0;
  if (e < number.size()) {
    std::string_view digits = number.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error != std::errc()) return digits.starts_with('-');
  }
  const std::string_view mantissa = number.substr(0, e);
  const auto first = static_cast<std::int64_t>(mantissa.find_first_of("123456789"));
  const auto point = static_cast<std::int64_t>(std::min(mantissa.find('.'), mantissa.size()));
  return exponent < first - point;
}

}  // namespace

bool ParseValue(std::string_view field, double& value, char decimal) {
  if (decimal == ',') {
    if (field.find('.') != field.npos) return false;
    std::string pointed(field);
    std::replace(pointed.begin(), pointed.end(), ',', '.');
    return ParseValue(pointed, value);
  }
  std::string_view text = Trim(field);
  if (IsMissing(text)) {
    value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') {
    text.remove_prefix(1);  // from_chars knows no plus sign
  }
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end) return false;
  if (error == std::errc::result_out_of_range && IsTiny(text)) {
    value = 0;
    return true;
  }
  return error == std::errc() && std::isfinite(value);
}

std::string QuoteField(std::string_view field, char separator) {
  const std::string special = {separator, '"', '\n', '\r'};
  const auto pads = [](char c) { return c == ' ' || c == '\t'; };  // what a reader trims
  const bool padded = !field.empty() && (pads(field.front()) || pads(field.back()));
  if (field.find_first_of(special) == std::string_view::npos && !padded) {
    return std::string(field);
  }
  std::string quoted = "\"";
  for (const char c : field) {
    quoted.append(c == '"' ? 2 : 1, c);
  }
  return quoted + '"';
}

class TableReader::Impl {
 public:
  Impl(std::istream& in, std::string name, TableOptions options)
      : rows_(in, std::move(name), options.separator, kMaxRowBytes), decimal_(options.decimal) {
    TableRow first;
    if (!rows_.Next(first.fields, first.line)) {
      throw Error(fmt::format("[table] {} must hold a header line but is empty", rows_.name()));
    }
    if (HasHeader(options.header, first.fields)) {
      header_ = std::move(first.fields);
    } else {
      for (std::size_t i = 1; i <= first.fields.size(); ++i) {
        header_.push_back(std::to_string(i));
      }
      waiting_ = std::move(first);
      is_waiting_ = true;
    }
    for (const std::string& column : options.columns) {
      chosen_.push_back(FindColumn(column));
    }
  }

  const std::vector<std::string>& header() const { return header_; }
  const std::vector<std::int64_t>& chosen() const { return chosen_; }

  bool Next(TableRow& row) {
    if (!NextFields(row)) return false;
    row.number = ++count_;
    if (row.fields.size() != header_.size()) {
      throw Error(fmt::format("[table] {} line {} must have {} fields ({}) but has {}",
                              rows_.name(), row.line, header_.size(), ShownNames(header_),
                              row.fields.size()));
    }
    row.values.resize(chosen_.size());
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      std::string& field = row.fields[chosen_[i]];
      if (!ParseValue(field, row.values[i], decimal_)) {
        throw Error(fmt::format(
            "[table] {} line {} column {} must be a finite number{}, or empty, NA, NaN, null or "
            "? where it is missing, but is {}",
            rows_.name(), row.line, Shown(header_[chosen_[i]]),
            decimal_ == ',' ? " with a decimal comma" : "", Shown(field)));
      }
      if (decimal_ == ',') std::replace(field.begin(), field.end(), ',', '.');
    }
    return true;
  }

 private:
  // The next row; a table of one column also gives the empty lines before it.
  bool NextFields(TableRow& row) {
    if (empty_ == 0 && !is_waiting_) {
      if (!rows_.Next(waiting_.fields, waiting_.line)) return false;
      is_waiting_ = true;
      if (header_.size() == 1 && count_ > 0) empty_ = rows_.empty_lines();
    }
    if (empty_ > 0) {
      row.fields.assign(1, "");
      row.line = waiting_.line - empty_--;
      return true;
    }
    row.fields.swap(waiting_.fields);
    row.line = waiting_.line;
    is_waiting_ = false;
    return true;
  }

  bool HasHeader(TableOptions::Header header, const std::vector<std::string>& first) const {
    if (header != TableOptions::Header::kAuto) {
      return header == TableOptions::Header::kYes;
    }
    double value = 0;
    bool any_number = false;
    for (const std::string& field : first) {
      if (!ParseValue(field, value, decimal_)) {
        return true;
      }
      any_number = any_number || !std::isnan(value);
    }
    return !any_number;
  }

  std::int64_t FindColumn(const std::string& wanted) const {
    const auto found = std::find(header_.begin(), header_.end(), wanted);
    if (found != header_.end()) {
      if (std::find(found + 1, header_.end(), wanted) != header_.end()) {
        throw Error(
            fmt::format("[table] {}: column must name one column, or give its number, but {} "
                        "stands in the header more than once",
                        rows_.name(), Shown(wanted)));
      }
      return found - header_.begin();
    }
    std::int64_t number = 0;
    const char* end = wanted.data() + wanted.size();
    const auto [stop, error] = std::from_chars(wanted.data(), end, number);
    const auto most = static_cast<std::int64_t>(header_.size());
    if (error == std::errc() && stop == end && number >= 1 && number <= most) {
      return number - 1;
    }
    throw Error(fmt::format("[table] {}: column must be one of {}, or a number in 1..{}, but is {}",
                            rows_.name(), ShownNames(header_), most, Shown(wanted)));
  }

  CsvRows rows_;
  char decimal_;
  std::vector<std::string> header_;
  std::vector<std::int64_t> chosen_;
  TableRow waiting_;  // a first row that was no header, or one behind empty lines
  bool is_waiting_ = false;
  std::int64_t empty_ = 0;  // lines before it that are rows, too
  std::int64_t count_ = 0;
};

TableReader::TableReader(std::istream& in, std::string name, TableOptions options)
    : impl_(std::make_unique<Impl>(in, std::move(name), std::move(options))) {}
TableReader::~TableReader() = default;

const std::vector<std::string>& TableReader::header() const { return impl_->header(); }
const std::vector<std::int64_t>& TableReader::chosen() const { return impl_->chosen(); }
bool TableReader::Next(TableRow& row) { return impl_->Next(row); }

}  // namespace ttr::experiments
