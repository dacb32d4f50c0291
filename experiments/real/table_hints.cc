#include "experiments/real/table_hints.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "experiments/data/text.h"
#include "experiments/real/stamp_text.h"

namespace ttr::experiments {
namespace {

using Fields = std::vector<std::string>;

constexpr std::size_t kLinesLookedAt = 20;

std::vector<std::string_view> FirstLines(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() < kLinesLookedAt) {
    const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Without the quotes and the blanks around them. Good enough for a guess.
Fields Split(std::string_view line, char separator) {
  Fields fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == separator && !quoted) {
      fields.emplace_back();
    } else if (c != ' ' || !fields.back().empty()) {
      fields.back() += c;
    }
  }
  for (std::string& field : fields) field.erase(field.find_last_not_of(' ') + 1);
  return fields;
}

// Has every line as many fields as the first, and more than one?
bool Separates(const std::vector<std::string_view>& lines, char separator) {
  const std::size_t count = Split(lines[0], separator).size();
  return count > 1 && std::all_of(lines.begin(), lines.end() - 1, [&](std::string_view line) {
           return Split(line, separator).size() == count;
         });
}

// The separator given, unless another one is what the lines have.
char LikelySeparator(const std::vector<std::string_view>& lines, char given) {
  if (Separates(lines, given)) return given;
  for (const char other : {';', '\t', '|', ','}) {
    if (other != given && Separates(lines, other)) return other;
  }
  return given;
}

bool HasDecimalComma(std::string_view field) {
  const std::size_t comma = field.find(',');
  if (comma == 0 || comma == field.npos) return false;
  std::string number(field);
  number[comma] = '.';
  double value = 0;
  return ParseValue(number, value) && !std::isnan(value);
}

bool IsNumber(const std::string& field) {
  double value = 0;
  return ParseValue(field, value) && !std::isnan(value);
}

bool IsData(const std::string& field) {
  const auto stamp = ParseStamp(field, Stamp::Order::kYearFirst);
  return IsNumber(field) || (stamp && stamp->separator != 0);
}

std::string Lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// Letters to change, add or drop, as capitals do not count.
std::size_t Distance(const std::string& one, const std::string& other) {
  const std::string a = Lower(one), b = Lower(other);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

bool IsColumn(const std::string& wanted, const Fields& names) {
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return true;
  std::size_t number = 0;
  const char* end = wanted.data() + wanted.size();
  const auto [stop, error] = std::from_chars(wanted.data(), end, number);
  return error == std::errc() && stop == end && number >= 1 && number <= names.size();
}

}  // namespace

std::string NearestName(const std::string& wanted, const std::vector<std::string>& names) {
  // A name without its unit: "power" for "Power [kW]".
  const auto begins = [&](const auto& name) { return Lower(name).starts_with(Lower(wanted)); };
  if (std::count_if(names.begin(), names.end(), begins) == 1) {
    return *std::find_if(names.begin(), names.end(), begins);
  }
  const auto nearest = std::min_element(
      names.begin(), names.end(),
      [&](const auto& a, const auto& b) { return Distance(wanted, a) < Distance(wanted, b); });
  // A third of the letters may be wrong.
  return 3 * Distance(wanted, *nearest) <= std::max(wanted.size(), nearest->size()) ? *nearest : "";
}

namespace {

std::string SeparatorHint(char separator) {
  if (separator == '\t') return "; its fields are separated by tabs: --separator $'\\t'";
  return fmt::format("; its fields are separated by '{0}': --separator '{0}'", separator);
}

std::string ColumnHint(const Fields& names, const TableOptions& options) {
  const auto unknown = std::find_if(options.columns.begin(), options.columns.end(),
                                    [&](const auto& wanted) { return !IsColumn(wanted, names); });
  if (unknown == options.columns.end()) return "";
  if (std::any_of(names.begin(), names.end(), IsData)) {
    return fmt::format(
        "; its first line is data ('{}'), not names: put a line of names before it, or give the "
        "column's number",
        Printable(*std::find_if(names.begin(), names.end(), IsData)));
  }
  const std::string nearest = NearestName(*unknown, names);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", Printable(nearest));
}

}  // namespace

RecordingBuffer::int_type RecordingBuffer::underflow() {
  const int_type first = source_.sbumpc();
  if (first == traits_type::eof()) return first;
  buffer_[0] = traits_type::to_char_type(first);
  const std::streamsize waiting = std::max<std::streamsize>(source_.in_avail(), 0);
  const auto room = static_cast<std::streamsize>(buffer_.size() - 1);
  const std::streamsize more = source_.sgetn(&buffer_[1], std::min(waiting, room));
  const auto count = static_cast<std::size_t>(1 + more);
  setg(buffer_.data(), buffer_.data(), buffer_.data() + count);
  beginning_.append(buffer_.data(), std::min(count, kMostRemembered - beginning_.size()));
  return first;
}

std::string TableHint(std::string_view beginning, const TableOptions& options) {
  const std::vector<std::string_view> lines = FirstLines(beginning);
  if (lines.empty()) return "";
  const char separator = LikelySeparator(lines, options.separator);
  std::string hint = separator == options.separator ? "" : SeparatorHint(separator);
  for (const std::string_view line : lines) {
    if (options.decimal == ',') break;
    const Fields fields = Split(line, separator);
    if (std::none_of(fields.begin(), fields.end(), HasDecimalComma)) continue;
    return hint + "; its numbers have decimal commas: --decimal ,";
  }
  return hint.empty() ? ColumnHint(Split(lines[0], separator), options) : hint;
}

HintedTable::HintedTable(const std::string& path, const TableOptions& options)
    : options_(options), input_(path), buffer_(input_.stream()), stream_(&buffer_) {
  reader_ = Read([&] { return std::make_unique<TableReader>(stream_, input_.name(), options_); });
}

void HintedTable::Fail(const Error& error) const {
  const std::string what = error.what();
  if (!what.starts_with("[table]")) throw error;
  throw Error(what + TableHint(buffer_.beginning(), options_));
}

std::vector<std::string> NumberColumns(const std::string& path, const TableOptions& read) {
  HintedTable table(path, read);
  const std::vector<std::string>& header = table.reader().header();
  std::vector<bool> may_be(header.size(), true), is(header.size(), false);
  TableRow row;
  for (std::size_t line = 0; line < kLinesLookedAt; ++line) {
    if (!table.Read([&] { return table.reader().Next(row); })) break;
    for (std::size_t c = 0; c < header.size(); ++c) {
      double value = 0;
      may_be[c] = may_be[c] && ParseValue(row.fields[c], value, read.decimal);
      is[c] = is[c] || (may_be[c] && !std::isnan(value));
    }
  }
  std::vector<std::string> names;
  for (std::size_t c = 0; c < header.size(); ++c) {
    if (may_be[c] && is[c]) names.push_back(header[c]);
  }
  return names;
}

}  // namespace ttr::experiments
