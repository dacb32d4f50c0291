/// A table of comma-separated values (RFC 4180), read row by row from any stream: a row is handed
/// over as soon as its line has ended, so standard input works live, and memory is bounded by one
/// row (kMaxRowBytes), however many there are. libcsv does the parsing.
///
/// Read: UTF-8 with or without byte order mark; lines ended by LF, CRLF or CR, the last one also by
/// the end of the input; quoted fields with separators, line ends and doubled quotes inside; spaces
/// around a field do not count. Empty lines are skipped; between the rows of a table of one column
/// each is a missing value. The first line is the header; with Header::kAuto a first line that
/// holds nothing but numbers and missing values is the first row instead, and the columns are
/// called 1, 2, 3, ...
///
/// A number: decimal, with or without exponent, point as decimal mark (or comma, where the options
/// say so; in the fields of chosen columns it becomes a point), finite; one that is smaller
/// than every double is 0. Missing (NaN): an
/// empty field, NA, N/A, NaN, null or ?, in capitals or not. Only chosen columns must hold numbers;
/// all others (dates, text) pass through as they are.
///
/// Errors (ttr::Error) name the input, the line, the column, what was required and what was given:
/// a row with more or fewer fields than the header, a chosen field that is no number, a misplaced
/// or unclosed quote, a column that does not exist, an empty table. SystemError: reading failed.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ttr::experiments {

struct TableOptions {
  enum class Header { kAuto, kYes, kNo };

  /// The columns of numbers: names, or numbers from 1 where no column has that name.
  std::vector<std::string> columns;
  char separator = ',';
  char decimal = '.';  // or ','
  Header header = Header::kAuto;
};

struct TableRow {
  std::int64_t number = 0;          // 1 for the first row below the header
  std::int64_t line = 0;            // the line of the input where it begins, from 1
  std::vector<std::string> fields;  // all columns as text, in the order of the table
  std::vector<double> values;       // the chosen columns, in the order chosen; NaN where missing
};

class TableReader {
 public:
  static constexpr std::size_t kMaxRowBytes = std::size_t{1} << 24;

  /// Reads the header (and with kAuto the first row, if there is no header). `in` must outlive the
  /// reader; `name` is for messages.
  TableReader(std::istream& in, std::string name, TableOptions options);
  ~TableReader();

  /// The names of all columns.
  const std::vector<std::string>& header() const;
  /// The index in header() of every chosen column.
  const std::vector<std::int64_t>& chosen() const;

  /// Reads the next row; false at the end of the table.
  bool Next(TableRow& row);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// What a field of a table says, by the rules above. False if it is neither number nor missing.
/// Where the decimal mark is a comma, a point would part thousands, or be another table's.
bool ParseValue(std::string_view field, double& value, char decimal = '.');

/// A field as it is written to a table: in quotes if it needs them.
std::string QuoteField(std::string_view field, char separator = ',');

}  // namespace ttr::experiments
