/// Rows of fields out of comma-separated text: what a table is before its columns have a meaning.
#pragma once

#include <csv.h>

#include <cstdint>
#include <exception>
#include <istream>
#include <string>
#include <vector>

#include "experiments/data/input.h"

namespace ttr::experiments {

class CsvRows {
 public:
  CsvRows(std::istream& in, std::string name, char separator, std::size_t max_row_bytes);
  ~CsvRows();
  CsvRows(const CsvRows&) = delete;
  CsvRows& operator=(const CsvRows&) = delete;

  /// The fields of the next row that is not an empty line, and the line where it begins. False at
  /// the end. Throws Error for text that is no table.
  bool Next(std::vector<std::string>& fields, std::int64_t& line);

  /// Empty lines before the row that came last.
  std::int64_t empty_lines() const { return empty_lines_; }

  const std::string& name() const { return bytes_.name(); }

 private:
  static void OnField(void* text, std::size_t length, void* self);
  static void OnRow(int terminator, void* self);

  void SkipByteOrderMark();
  bool ReadPiece();
  void Parse();
  [[noreturn]] void FailParsing();

  ByteReader bytes_;
  std::size_t max_row_bytes_;
  const char* blank_;  // what an empty line may consist of
  csv_parser parser_;
  std::string taken_;                // read ahead while looking for a byte order mark
  std::string piece_;                // up to and including the end of a line
  std::vector<std::string> fields_;  // of the row being read
  bool row_ended_ = false;
  bool started_ = false;  // inside a row
  bool at_start_ = true;  // nothing read yet
  bool after_return_ = false;
  std::size_t row_bytes_ = 0;
  std::int64_t line_ = 1;  // of the next byte
  std::int64_t empty_lines_ = 0;
  std::int64_t row_line_ = 1;  // where the row being read began
  std::exception_ptr failure_;
};

}  // namespace ttr::experiments
