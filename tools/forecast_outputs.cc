#include "tools/forecast_outputs.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "experiments/report/atomic_file.h"
#include "ttr/error.h"

namespace ttr::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFiles[] = {"forecast.csv", "ahead.csv", "errors.csv", "forecast.svg",
                                       "forecast.png", "watch.svg", "watch.png"};

}  // namespace

bool IsFolder(const std::string& out) {
  if (out.empty() || out == "-") return false;
  std::error_code error;
  return out.ends_with('/') || fs::is_directory(out, error);
}

bool IsForecastFile(std::string_view name) {
  return std::find(std::begin(kFiles), std::end(kFiles), name) != std::end(kFiles);
}

ForecastOutputs::ForecastOutputs(const std::string& out, bool ahead)
    : is_json_(out.ends_with(".json")), nowhere_(out.empty() && ahead) {
  if (is_json_ && !ahead) {
    throw Error("forecast", "--out", "a file of CSV (one of JSON holds rows to come: --ahead)",
                out);
  }
  if (IsFolder(out)) {
    folder_ = out;
    report::EnsureFolder(folder_);
    names_.emplace_back("forecast.csv");
    file_.emplace(folder_ / names_.back());
  } else if (!out.empty() && out != "-") {
    file_.emplace(out);
  }
}

void ForecastOutputs::WriteLine(std::string_view text) {
  if (!is_json_ && !nowhere_) Write(text);
}

void ForecastOutputs::Write(std::string_view text) {
  if (file_) {
    file_->Write(text);
  } else if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
             std::fflush(stdout) != 0) {
    throw SystemError(std::string("standard output cannot be written: ") + std::strerror(errno));
  }
}

void ForecastOutputs::Add(const std::string& name, const report::Table& table) {
  AddFile(name + ".csv", table.ToCsv());
}

void ForecastOutputs::Add(const std::string& name, const report::Chart& chart) {
  AddFile(name + ".svg", report::RenderSvg(chart));
  AddFile(name + ".png", report::RenderPng(chart));
}

void ForecastOutputs::AddFile(const std::string& name, std::string_view content) {
  names_.push_back(name);
  beside_.push_back(std::make_unique<AtomicFile>(folder_ / name));
  beside_.back()->Write(content);
}

void ForecastOutputs::Prepare() {
  if (file_) file_->Prepare();
  for (const auto& file : beside_) file->Prepare();
}

void ForecastOutputs::Commit() {
  if (file_) file_->Commit();
  for (const auto& file : beside_) file->Commit();
}

std::string ForecastOutputs::Written() const {
  if (!is_folder()) return "";
  return fmt::format("{} has {}", folder_.string(), fmt::join(names_, ", "));
}

}  // namespace ttr::tools
