#include "experiments/studies/run_parts.h"

#include <fmt/core.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "experiments/report/atomic_file.h"
#include "experiments/report/progress.h"
#include "ttr/error.h"
#include "ttr/version.h"

namespace ttr::experiments {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no numbers that are not finite: those are words.
Json Encode(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

double Decode(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto word = json.get<std::string>();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  return (word == "-inf" ? -1 : 1) * std::numeric_limits<double>::infinity();
}

class Cache {
 public:
  Cache(std::filesystem::path folder, std::string name, Json options, std::int64_t parts)
      : folder_(std::move(folder)), name_(std::move(name)), parts_(parts) {
    key_ = {{"study", name_}, {"version", Version()}, {"options", std::move(options)}};
  }

  std::filesystem::path PathOf(std::uint64_t seed) const {
    return folder_ / fmt::format("{}-{}.json", name_, seed);
  }

  // Nothing where there is no file, or one of other options, or a damaged one.
  std::optional<std::vector<Numbers>> Read(std::uint64_t seed) const {
    std::ifstream file(PathOf(seed), std::ios::binary);
    if (!file) return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    try {
      const Json json = Json::parse(text.str());
      if (json.at("key") != key_ || json.at("seed") != seed) return std::nullopt;
      std::vector<Numbers> parts;
      for (const Json& part : json.at("parts")) {
        Numbers& numbers = parts.emplace_back();
        for (const Json& number : part) numbers.push_back(Decode(number));
      }
      if (static_cast<std::int64_t>(parts.size()) != parts_) return std::nullopt;
      return parts;
    } catch (const Json::exception&) {
      return std::nullopt;
    }
  }

  void Write(std::uint64_t seed, const std::vector<Numbers>& parts) const {
    Json json = {{"key", key_}, {"seed", seed}, {"parts", Json::array()}};
    for (const Numbers& part : parts) {
      Json numbers = Json::array();
      for (const double x : part) numbers.push_back(Encode(x));
      json["parts"].push_back(std::move(numbers));
    }
    report::WriteFile(PathOf(seed), json.dump() + "\n");
  }

 private:
  std::filesystem::path folder_;
  std::string name_;
  std::int64_t parts_;
  Json key_;
};

}  // namespace

std::int64_t SeedCount(const StudyRun& run, std::int64_t default_seeds) {
  constexpr std::int64_t kMost = 1000000;
  if (run.seeds < 0 || run.seeds > kMost) {
    throw Error("experiment", "seeds", "1 to 1000000", std::to_string(run.seeds));
  }
  return run.seeds == 0 ? default_seeds : run.seeds;
}

std::string SeedRange(const StudyRun& run, std::int64_t default_seeds) {
  const std::int64_t count = SeedCount(run, default_seeds);
  return count == 1 ? std::to_string(run.first_seed)
                    : fmt::format("{}..{}", run.first_seed,
                                  run.first_seed + static_cast<std::uint64_t>(count) - 1);
}

PartResults RunParts(const StudyRun& run, const std::string& name, std::int64_t default_seeds,
                     const OptionFields& options, std::int64_t parts,
                     const std::function<Numbers(std::uint64_t, std::int64_t)>& work) {
  const std::int64_t seeds = SeedCount(run, default_seeds);
  PartResults results(static_cast<std::size_t>(seeds));
  const auto seed_at = [&](std::size_t s) {
    return run.first_seed + static_cast<std::uint64_t>(s);
  };

  std::optional<Cache> cache;
  if (!run.cache.empty()) {
    report::EnsureFolder(run.cache);
    cache.emplace(run.cache, name, Describe(options), parts);
  }
  std::vector<std::size_t> missing;
  std::int64_t outdated = 0;
  for (std::size_t s = 0; s < results.size(); ++s) {
    if (cache && run.resume) {
      if (auto cached = cache->Read(seed_at(s))) {
        results[s] = std::move(*cached);
        continue;
      }
      outdated += std::filesystem::exists(cache->PathOf(seed_at(s))) ? 1 : 0;
    }
    results[s].resize(static_cast<std::size_t>(parts));
    missing.push_back(s);
  }
  if (run.resume && run.note) {
    run.note(fmt::format("{} of {} seeds of {} are taken from {}", results.size() - missing.size(),
                         results.size(), name, run.cache.string()));
    if (outdated > 0) {
      run.note(fmt::format("{} were made with other options or another version, and are made anew",
                           outdated));
    }
  }

  // Parts of one seed lie next to each other, so that whole seeds are complete early.
  std::vector<std::atomic<std::int64_t>> left(missing.size());
  for (auto& count : left) count = parts;
  const auto tasks = static_cast<std::int64_t>(missing.size()) * parts;
  report::Progress progress(name, tasks, {.quiet = run.quiet});
  Executor& executor = run.executor != nullptr ? *run.executor : DefaultExecutor();
  executor.Run(tasks, [&](std::int64_t task) {
    const auto m = static_cast<std::size_t>(task / parts);
    const std::size_t s = missing[m];
    results[s][static_cast<std::size_t>(task % parts)] = work(seed_at(s), task % parts);
    if (left[m].fetch_sub(1) == 1 && cache) cache->Write(seed_at(s), results[s]);
    progress.Advance();
  });
  return results;
}

}  // namespace ttr::experiments
