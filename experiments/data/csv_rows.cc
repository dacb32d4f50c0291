#include "experiments/data/csv_rows.h"

#include <fmt/core.h>

#include <new>
#include <utility>

#include "ttr/error.h"

namespace ttr::experiments {

CsvRows::CsvRows(std::istream& in, std::string name, char separator, std::size_t max_row_bytes)
    : bytes_(in, std::move(name)),
      max_row_bytes_(max_row_bytes),
      blank_(separator == '\t'  ? " \r\n"
             : separator == ' ' ? "\t\r\n"
                                : " \t\r\n") {
  if (csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI) != 0) {
    throw std::bad_alloc();
  }
  csv_set_delim(&parser_, static_cast<unsigned char>(separator));
}

CsvRows::~CsvRows() { csv_free(&parser_); }

// Both callbacks run inside libcsv, which is C: nothing may be thrown through it.
void CsvRows::OnField(void* text, std::size_t length, void* self) {
  auto& rows = *static_cast<CsvRows*>(self);
  try {
    rows.fields_.emplace_back(static_cast<const char*>(text), length);
  } catch (...) {
    rows.failure_ = std::current_exception();
  }
}

void CsvRows::OnRow(int /*terminator*/, void* self) {
  static_cast<CsvRows*>(self)->row_ended_ = true;
}

void CsvRows::SkipByteOrderMark() {
  at_start_ = false;
  const int first = bytes_.Peek();
  if (first == 0xFE || first == 0xFF) {
    throw Error(fmt::format("[table] {} must be UTF-8 but begins like UTF-16", name()));
  }
  for (const int mark : {0xEF, 0xBB, 0xBF}) {
    if (bytes_.Peek() != mark) {
      return;  // what was taken is text: another character that begins like the mark
    }
    taken_.push_back(static_cast<char>(bytes_.Get()));
  }
  taken_.clear();
}

// Collects bytes up to the end of a line, so that the parser ends one row at most. False at the end
// of the input.
bool CsvRows::ReadPiece() {
  piece_ = std::exchange(taken_, {});
  while (true) {
    const int byte = bytes_.Get();
    if (byte == ByteReader::kEnd) {
      return !piece_.empty();
    }
    piece_.push_back(static_cast<char>(byte));
    if (++row_bytes_ > max_row_bytes_) {
      throw Error(fmt::format(
          "[table] {} line {}: a row must be at most {} bytes but the one that begins here is "
          "longer (was a quote left open?)",
          name(), row_line_, max_row_bytes_));
    }
    if (byte == '\n' || byte == '\r') {
      // CR LF is one end of line in two pieces; the row ends with the first.
      line_ += byte == '\r' || !after_return_;
      after_return_ = byte == '\r';
      return true;
    }
    after_return_ = false;
  }
}

void CsvRows::FailParsing() {
  if (csv_error(&parser_) != CSV_EPARSE) {
    throw std::bad_alloc();
  }
  throw Error(fmt::format(
      "[table] {} line {}: field {} must have quotes around it only, and those inside doubled, but "
      "has a quote elsewhere",
      name(), row_line_, fields_.size() + 1));
}

void CsvRows::Parse() {
  if (csv_parse(&parser_, piece_.data(), piece_.size(), OnField, OnRow, this) != piece_.size()) {
    FailParsing();
  }
}

bool CsvRows::Next(std::vector<std::string>& fields, std::int64_t& line) {
  if (at_start_) {
    SkipByteOrderMark();
  }
  fields_.clear();
  row_ended_ = false;
  started_ = false;
  empty_lines_ = 0;
  while (!row_ended_) {
    if (!started_) {
      row_line_ = line_;
      row_bytes_ = 0;
    }
    if (!ReadPiece()) {
      if (!started_) {
        return false;
      }
      // The end of the input ends the last row, unless a quote is still open.
      if (csv_fini(&parser_, OnField, OnRow, this) != 0) {
        throw Error(fmt::format(
            "[table] {} line {}: field {} must end with a quote, as it begins with one, "
            "but the input ends first",
            name(), row_line_, fields_.size() + 1));
      }
      break;
    }
    if (!started_ && piece_.find_first_not_of(blank_) == std::string::npos) {
      empty_lines_ += line_ - row_line_;  // LF behind CR begins no line
      continue;
    }
    started_ = true;
    Parse();
  }
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  fields.swap(fields_);
  line = row_line_;
  return true;
}

}  // namespace ttr::experiments
