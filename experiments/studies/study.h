/// What an experiment is: a function from options and seeds to a StudyResult, which the command
/// prints and saves and the demo page shows.
///
/// Seeds run in parallel, each layer by itself on one thread, and numbers are put together in the
/// order of the seeds: the same numbers for every number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/report/chart.h"
#include "experiments/report/table.h"
#include "ttr/executor.h"

namespace ttr::experiments {

/// Something that a paper says or that mathematics promises, checked on the data.
struct Claim {
  std::string what;
  bool holds = false;
  std::string evidence;  ///< the figures that decide
};

/// `stem` is the name of its files, without an ending: "online-regression-loss".
struct StudyTable {
  std::string stem;
  report::Table table;
};
struct StudyChart {
  std::string stem;
  report::Chart chart;
  std::string caption = {};  ///< what it shows of this run
};

struct StudyResult {
  std::string name;                    ///< "online-regression"
  std::string title;                   ///< "Online regression"
  std::vector<std::string> sentences;  ///< two: what one sees, and why
  std::string command;                 ///< what makes this result again
  std::vector<StudyTable> tables;      ///< the first is the one to show
  std::vector<StudyChart> charts;      ///< the first is the one to show
  std::vector<Claim> claims;
};

/// How a study is run; nothing here but `seeds` and `first_seed` changes a number.
struct StudyRun {
  std::int64_t seeds = 0;  ///< 0: the study's own number
  std::uint64_t first_seed = 1;
  Executor* executor = nullptr;  ///< null: DefaultExecutor()
  bool quiet = true;             ///< no progress bar on standard error
  /// Where results of each seed are kept (NAME-SEED.json) as soon as they are there; empty:
  /// nowhere.
  std::filesystem::path cache = {};
  bool resume = false;  ///< takes what the cache has; what was made with other options is made anew
  std::function<void(const std::string&)> note = {};  ///< receives notes for a person
};

/// One table of claims: what, holds or does not, evidence.
report::Table ClaimsTable(const std::vector<Claim>& claims);

/// Everything, for machines: title, sentences, command, claims, tables with their meta.
nlohmann::ordered_json ToJson(const StudyResult& result);
std::string ToJsonText(const StudyResult& result);

/// The seeds of a run, as the first table says: "1..20".
std::string SeedsOf(const StudyResult& result);

/// DIR/STEM.csv and .json of every table, DIR/STEM.svg and .png of every chart, DIR/NAME.json of
/// the whole; each file whole or not at all. Makes the folder. Throws ttr::SystemError.
void Save(const StudyResult& result, const std::filesystem::path& folder);

}  // namespace ttr::experiments
