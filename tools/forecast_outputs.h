// Where `ttr forecast` writes: standard output, a file, or a folder of tables and pictures.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/report/chart.h"
#include "experiments/report/table.h"
#include "ttr/util/atomic_file.h"

namespace ttr::tools {

// Does --out name a folder: one that is there, or ends in /?
bool IsFolder(const std::string& out);

// The files that such a folder receives.
bool IsForecastFile(std::string_view name);

// The resulting table, as its lines come: a file that is whole or not there, or standard output, or
// nowhere, where rows to come are printed instead. A file of JSON holds those rows alone. A folder
// has the table as forecast.csv, and what Add() is given.
class ForecastOutputs {
 public:
  ForecastOutputs(const std::string& out, bool ahead);

  bool is_file() const { return file_.has_value(); }
  bool is_folder() const { return !folder_.empty(); }
  bool is_json() const { return is_json_; }
  bool is_stdout() const { return !file_ && !nowhere_; }

  // A line of the table.
  void WriteLine(std::string_view text);
  void Write(std::string_view text);

  // Beside the table, NAME.csv, and NAME.svg with NAME.png; all at Commit().
  void Add(const std::string& name, const report::Table& table);
  void Add(const std::string& name, const report::Chart& chart);

  // Everything that may fail comes first.
  void Prepare();
  void Commit();
  // What is there now, for a note; empty unless in a folder.
  std::string Written() const;

 private:
  void AddFile(const std::string& name, std::string_view content);

  bool is_json_;
  bool nowhere_;
  std::filesystem::path folder_;  // empty: none
  std::optional<AtomicFile> file_;
  std::vector<std::unique_ptr<AtomicFile>> beside_;
  std::vector<std::string> names_;
};

}  // namespace ttr::tools
