/// What is likely wrong with a table that cannot be read as it was asked to be, and what to do.
#pragma once

#include <array>
#include <istream>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/data/input.h"
#include "experiments/data/table.h"
#include "ttr/error.h"

namespace ttr::experiments {

/// Hands a stream on as its bytes come, and remembers the first of them.
class RecordingBuffer : public std::streambuf {
 public:
  static constexpr std::size_t kMostRemembered = 1 << 14;

  explicit RecordingBuffer(std::istream& in) : source_(*in.rdbuf()) {}

  const std::string& beginning() const { return beginning_; }

 protected:
  int_type underflow() override;

 private:
  std::streambuf& source_;
  std::array<char, 1 << 16> buffer_;
  std::string beginning_;
};

/// The name that was likely meant; empty where none is near.
std::string NearestName(const std::string& wanted, const std::vector<std::string>& names);

/// Behind the message of an error, "; ...": another separator, decimal commas, a missing header, or
/// the column whose name is nearest. Nothing where none of these is seen in the table's beginning.
std::string TableHint(std::string_view beginning, const TableOptions& options);

/// Columns that hold nothing but numbers, one at the least, in the first rows of a file. Error: it
/// is no table.
std::vector<std::string> NumberColumns(const std::string& path, const TableOptions& read);

/// A table whose errors end with a hint.
class HintedTable {
 public:
  HintedTable(const std::string& path, const TableOptions& options);

  TableReader& reader() { return *reader_; }
  const std::string& name() const { return input_.name(); }

  /// call(), which reads the table.
  template <class Call>
  auto Read(Call&& call) {
    try {
      return call();
    } catch (const Error& error) {
      Fail(error);
    }
  }

 private:
  [[noreturn]] void Fail(const Error& error) const;

  TableOptions options_;
  Input input_;
  RecordingBuffer buffer_;
  std::istream stream_;
  std::unique_ptr<TableReader> reader_;
};

}  // namespace ttr::experiments
