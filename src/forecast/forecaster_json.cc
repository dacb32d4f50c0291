// What the parts of a forecaster save as JSON, and take over from it: all of it in one file, since
// what defines JSON takes longer to compile than all that the parts do besides.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "src/forecast/combination.h"
#include "src/forecast/forecaster.h"
#include "ttr/error.h"

namespace ttr::forecasting {
namespace {

// JSON has no NaN: null stands for it.
std::vector<double> Numbers(const nlohmann::json& json) {
  constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> numbers;
  for (const auto& item : json) numbers.push_back(item.is_null() ? kMissing : item.get<double>());
  return numbers;
}

template <class Load>
void FromText(std::string_view saved, Load&& load) {
  try {
    load(nlohmann::json::parse(saved));
  } catch (const nlohmann::json::exception& error) {
    throw Error("resume", "the forecaster", "what one saved",
                std::string("damaged: ") + error.what());
  }
}

}  // namespace

nlohmann::json BandwidthSelector::Save() const {
  return {{"keys", keys_}, {"mean", mean_}, {"squares", squares_}, {"losses", losses_}};
}

void BandwidthSelector::Load(const nlohmann::json& saved) {
  const auto mean = saved.at("mean").get<std::vector<double>>();
  const auto losses = saved.at("losses").get<std::vector<double>>();
  if (mean.size() != mean_.size() || losses.size() != losses_.size()) {
    throw Error("resume", "the bandwidths", "of these sizes", "not");
  }
  keys_ = saved.at("keys").get<std::int64_t>();
  squares_ = saved.at("squares").get<double>();
  mean_ = mean;
  std::copy(losses.begin(), losses.end(), losses_.begin());
}

nlohmann::json Residuals::Save() const {
  nlohmann::json saved = {{"skipped", skipped_}, {"count", count_}, {"scale", scale_}};
  if (recent_) saved["recent"] = recent_->sizes();
  return saved;
}

void Residuals::Load(const nlohmann::json& saved) {
  const auto skipped = saved.at("skipped").get<std::int64_t>();
  const auto count = saved.at("count").get<std::int64_t>();
  const auto scale = saved.at("scale").get<double>();
  const bool whole = skipped >= 0 && skipped <= skip_ && count >= 0 && scale >= 0 &&
                     (count == 0 || skipped == skip_);
  if (!whole) {
    throw Error("resume", "the residuals",
                std::to_string(skip_) + " skipped before the first that counts", saved.dump());
  }
  if (recent_) {
    for (const double size : saved.at("recent")) recent_->Add(size);
  }
  skipped_ = skipped;
  count_ = count;
  scale_ = scale;
}

nlohmann::json LeadErrors::Save() const {
  nlohmann::json paths = nlohmann::json::array(), residuals = nlohmann::json::array();
  for (const Path& path : paths_) {
    paths.push_back({{"age", path.age}, {"forecasts", path.forecasts}});
  }
  for (const Residuals& lead : residuals_) residuals.push_back(lead.Save());
  return {{"ahead", options_.ahead}, {"rows", rows_}, {"paths", paths}, {"residuals", residuals}};
}

void LeadErrors::Load(const nlohmann::json& saved) {
  if (saved.at("ahead") != options_.ahead) return;
  if (saved.at("residuals").size() != residuals_.size()) {
    throw Error("resume", "the errors beyond the horizon", "of these sizes", "not");
  }
  std::deque<Path> paths;
  for (const auto& item : saved.at("paths")) {
    Path& path = paths.emplace_back();
    path.age = item.at("age").get<std::int64_t>();
    path.forecasts = Numbers(item.at("forecasts"));
    if (path.forecasts.size() != residuals_.size() || path.age < 0 || path.age >= options_.ahead) {
      throw Error("resume", "every path beyond the horizon", "of these sizes", "not");
    }
  }
  for (std::size_t i = 0; i < residuals_.size(); ++i) {
    residuals_[i].Load(saved.at("residuals").at(i));
  }
  rows_ = saved.at("rows").get<std::int64_t>();
  paths_ = std::move(paths);
}

nlohmann::json Combination::Save() const {
  nlohmann::json pending = nlohmann::json::array();
  for (const Pending& made : pending_) {
    pending.push_back({{"forecast", made.forecast}});
    if (!made.margin.empty()) pending.back()["margin"] = made.margin;
  }
  nlohmann::json saved = {{"pending", pending}};
  if (errors_) saved["errors"] = errors_->Save();
  return saved;
}

void Combination::Load(const nlohmann::json& saved) {
  const auto columns = static_cast<std::size_t>(options_.columns);
  std::deque<Pending> pending;
  for (const auto& item : saved.at("pending")) {
    Pending& made = pending.emplace_back();
    made.forecast = Numbers(item.at("forecast"));
    if (options_.level > 0) made.margin = Numbers(item.at("margin"));
    if (made.forecast.size() != columns ||
        made.margin.size() != (options_.level > 0 ? columns : 0)) {
      throw Error("resume", "every combined forecast", "of these sizes", "not");
    }
  }
  if (static_cast<std::int64_t>(pending.size()) > options_.horizon) {
    throw Error("resume", "the combined forecasts", "of these sizes", "not");
  }
  if (errors_) errors_->Load(saved.at("errors"));
  pending_ = std::move(pending);
}

nlohmann::json LagWindow::Save() const {
  std::vector<double> rows;  // the oldest first
  for (std::int64_t age = rows_ - 1; age >= 0; --age) {
    for (std::int64_t c = 0; c < columns_; ++c) rows.push_back(At(age, c));
  }
  return {{"rows", rows}, {"unit", unit_}, {"running", running_}};
}

void LagWindow::Load(const nlohmann::json& saved) {
  const auto rows = saved.at("rows").get<std::vector<double>>();
  const auto unit = saved.at("unit").get<std::vector<double>>();
  if (rows.size() > ring_.size() || rows.size() % unit_.size() != 0 ||
      unit.size() != unit_.size()) {
    throw Error("resume", "the lag buffer",
                std::to_string(lags_) + " rows of " + std::to_string(columns_) + " numbers",
                std::to_string(rows.size()) + " numbers");
  }
  next_ = rows_ = 0;
  for (std::size_t i = 0; i < rows.size(); i += unit_.size()) {
    Push(std::span(rows).subspan(i, unit_.size()));
  }
  unit_ = unit;
  running_ = saved.at("running").get<double>();
}

nlohmann::json MemoryForecaster::Save() const {
  nlohmann::json pending = nlohmann::json::array();
  for (const Pending& p : pending_) {
    pending.push_back({{"key", p.window.key},
                       {"centre", p.window.centre},
                       {"scale", p.window.scale},
                       {"flat", p.window.flat},
                       {"forecast", p.forecast}});
    if (!p.margin.empty()) pending.back()["margin"] = p.margin;
    if (!p.candidates.empty()) pending.back()["candidates"] = p.candidates;
  }
  nlohmann::json saved = {
      {"window", window_.Save()}, {"pending", pending}, {"gap", gap_}, {"rows", rows_}};
  for (const Residuals& residuals : residuals_) saved["residuals"].push_back(residuals.Save());
  if (outliers_.run() > 0) saved["outliers"] = outliers_.run();
  if (bandwidths_) saved["bandwidths"] = bandwidths_->Save();
  if (!options_.differences.empty()) saved["differenced"] = differences_.rows();
  if (leads_) saved["leads"] = leads_->Save();
  if (regressors_.count() > 0) saved["regressors"] = regressors_.Save();
  return saved;
}

void MemoryForecaster::Load(AssociativeMemory memory, const nlohmann::json& saved) {
  const auto fail = [](const char* what) { throw Error("resume", what, "of these sizes", "not"); };
  std::deque<Pending> pending;
  for (const auto& item : saved.at("pending")) {
    Pending& p = pending.emplace_back();
    p.window.key = Numbers(item.at("key"));
    p.window.centre = Numbers(item.at("centre"));
    p.window.scale = item.at("scale").get<double>();
    p.window.flat = item.at("flat").get<bool>();
    p.forecast = Numbers(item.at("forecast"));
    if (options_.interval > 0) p.margin = Numbers(item.at("margin"));
    if (item.contains("candidates")) p.candidates = Numbers(item.at("candidates"));
    const std::size_t candidates = bandwidths_ ? BandwidthSelector::kRatios.size() : 0;
    if (!p.candidates.empty() && p.candidates.size() != candidates * value_.size()) {
      fail("the answers of every bandwidth");
    }
    if (p.window.key.size() != key_.size() || p.window.centre.size() != value_.size() ||
        p.forecast.size() != value_.size() ||
        p.margin.size() != (options_.interval > 0 ? residuals_.size() : 0)) {
      fail("every pending forecast");
    }
  }
  if (static_cast<std::int64_t>(pending.size()) > options_.horizon) fail("the pending forecasts");
  const auto outliers = saved.value("outliers", std::int64_t{0});
  if (outliers < 0) {
    throw Error("resume", "the count of outliers", "0 or more", std::to_string(outliers));
  }
  const auto gap = saved.at("gap").get<std::vector<std::int64_t>>();
  if (gap.size() != gap_.size()) fail("the counts of missing rows");
  for (std::size_t c = 0; c < residuals_.size(); ++c) {
    residuals_[c].Load(saved.at("residuals").at(c));
  }
  if (bandwidths_) bandwidths_->Load(saved.at("bandwidths"));
  if (leads_ && saved.contains("leads")) leads_->Load(saved.at("leads"));
  if (!options_.differences.empty()) {
    const std::vector<double> rows = Numbers(saved.at("differenced"));
    if (rows.size() % value_.size() != 0) fail("the rows behind differences");
    differences_ = Differences(options_.differences, options_.columns);
    for (std::size_t i = 0; i < rows.size(); i += value_.size()) {
      differences_.Push(std::span(rows).subspan(i, value_.size()));
    }
    if (!differences_.empty()) std::ranges::copy(differences_.latest(), filled_.begin());
  }
  window_.Load(saved.at("window"));
  if (regressors_.count() > 0) regressors_.Load(saved.at("regressors"));
  // Files of before do not say it: what a window shows of it.
  rows_ = saved.value("rows", std::max(memory.count(), window_.rows()));
  pending_ = std::move(pending);
  gap_ = gap;
  outliers_.set_run(outliers);
  memory_ = std::move(memory);
}

std::string MemoryForecaster::SaveText() const { return Save().dump(); }

void MemoryForecaster::LoadText(AssociativeMemory memory, std::string_view saved) {
  FromText(saved, [&](const nlohmann::json& json) { Load(std::move(memory), json); });
}

std::string Combination::SaveText() const { return Save().dump(); }

void Combination::LoadText(std::string_view saved) {
  FromText(saved, [&](const nlohmann::json& json) { Load(json); });
}

}  // namespace ttr::forecasting
