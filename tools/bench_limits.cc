#include "tools/bench_limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <thread>

namespace ttr::tools {
namespace {

// Above this no cache plays a part, and longer passes only take longer.
constexpr std::size_t kMostBytes = std::size_t{128} << 20;

// A power of two of bytes near a work's own, so that works share what is measured.
std::size_t Rounded(double bytes) {
  const auto size = static_cast<std::size_t>(std::max(bytes * std::sqrt(0.5), 4096.0));
  return std::min(std::bit_ceil(size), kMostBytes);
}

std::string ShowBytes(std::size_t bytes) {
  return bytes >= (1 << 20) ? fmt::format("{} MB", bytes >> 20) : fmt::format("{} KB", bytes >> 10);
}

// Inputs and outputs count where the state does not dwarf them: an update of a large state is held
// against the bandwidth for that state alone.
double MovedBytes(const Demand& demand) {
  const double state = demand.state_bytes + demand.pairs_bytes;
  const bool dwarfed = state > 8 * demand.stream_bytes;
  return state + (dwarfed ? 0 : demand.stream_bytes);
}

// GFLOP/s of all together: what is called a processor may be half of a core.
double FmaPeakOf(int threads) {
  if (threads == 1) return MeasureFmaPeak();
  std::barrier start(threads);
  std::vector<double> peaks(static_cast<std::size_t>(threads));
  std::vector<std::jthread> workers;
  for (double& peak : peaks) {
    workers.emplace_back([&start, &peak] {
      start.arrive_and_wait();
      MeasureFmaPeak();
      peak = MeasureFmaPeak();  // while all others are at work
      MeasureFmaPeak();
    });
  }
  workers.clear();  // waits for them
  return std::accumulate(peaks.begin(), peaks.end(), 0.0);
}

}  // namespace

Limits::Limits(const std::vector<Work>& works, bool levels) {
  fma_[1];
  for (const Work& work : works) {
    fma_[work.setting().threads];
    const Demand& demand = work.demand();
    (this->*BandwidthOf(demand).sizes)[Rounded(demand.footprint)];
  }
  if (!levels) return;
  std::size_t largest = 0;
  for (const MemoryLevel& level : MemoryLevels()) {
    const bool main_memory = level.bytes == 0;
    largest = std::max(largest, level.bytes);
    const std::size_t bytes = main_memory ? std::max(kMostBytes, 2 * largest) : level.bytes / 2;
    levels_.push_back({std::string(level.name), bytes});
    for (Sizes* sizes : {&in_place_, &stream_, &read_}) (*sizes)[bytes];
  }
}

void Limits::AddStream(double bytes) { stream_[Rounded(bytes)]; }
void Limits::AddInPlace(double bytes) { in_place_[Rounded(bytes)]; }

Bound Limits::StreamBound(double bytes, int threads) const {
  const std::size_t size = Rounded(bytes);
  return {bytes / (stream_.at(size).Median() * threads), "stream " + ShowBytes(size)};
}

Bound Limits::InPlaceBound(double bytes) const {
  const std::size_t size = Rounded(bytes);
  return {2 * bytes / InPlace(size), "in-place " + ShowBytes(size)};
}

void Limits::Sample() {
  for (auto& [threads, samples] : fma_) {
    const double before = IssueRate(threads), peak = FmaPeakOf(threads);
    samples.Add(peak, std::min(before, IssueRate(threads)));
  }
  auto add = [](Samples& samples, const auto& measure, auto... of) {
    const double before = IssueRate(1), value = measure(of...);
    samples.Add(value, std::min(before, IssueRate(1)));
  };
  add(exp_, MeasureExpRate);
  for (auto& [bytes, samples] : in_place_) add(samples, MeasureInPlaceBandwidth, bytes);
  for (auto& [bytes, samples] : stream_) add(samples, MeasureStreamBandwidth, bytes);
  for (auto& [bytes, samples] : read_) add(samples, MeasureReadBandwidth, bytes);
}

Limits::Bandwidth Limits::BandwidthOf(const Demand& demand) {
  if (demand.state_bytes > 0) return {&Limits::in_place_, "in-place "};
  if (demand.pairs_bytes > 0) return {&Limits::read_, "read "};
  return {&Limits::stream_, "stream "};
}

Bound Limits::MemoryBound(const Work& work) const {
  const Demand& demand = work.demand();
  const std::size_t bytes = Rounded(demand.footprint);
  const auto [sizes, name] = BandwidthOf(demand);
  const double one_thread = (this->*sizes).at(bytes).Median();
  return {MovedBytes(demand) / (one_thread * work.setting().threads), name + ShowBytes(bytes)};
}

Bound Limits::BoundOf(const Work& work) const {
  const Demand& demand = work.demand();
  const int threads = work.setting().threads;
  const Bound bounds[] = {{demand.flops / fma_.at(threads).Median(), "FMA"},
                          {demand.exps / (exp_.Median() * threads), "exp"},
                          MemoryBound(work)};
  return *std::max_element(std::begin(bounds), std::end(bounds),
                           [](const Bound& a, const Bound& b) { return a.ns < b.ns; });
}

report::Table Limits::ToTable() const {
  report::Table table("Limits, of one thread unless said otherwise, measured between the works");
  table.AddText("limit").AddReal("value", 1).AddText("unit");
  table.AddRow({"fused multiply-adds, float32", FmaPeak(), "GFLOP/s"});
  for (const auto& [threads, samples] : fma_) {
    if (threads == 1) continue;
    const std::string of = fmt::format("fused multiply-adds, float32, {} threads at once", threads);
    table.AddRow({of, samples.Median(), "GFLOP/s"});
  }
  table.AddRow({"exponentials, float32", exp_.Median(), "Gexp/s"});
  for (const Level& level : levels_) {
    const std::string where = fmt::format(", {} ({})", level.name, ShowBytes(level.bytes));
    table.AddRow({"read" + where, read_.at(level.bytes).Median(), "GB/s"});
    table.AddRow({"read + write in place" + where, InPlace(level.bytes), "GB/s"});
    table.AddRow({"two read, one written" + where, stream_.at(level.bytes).Median(), "GB/s"});
  }
  return table;
}

}  // namespace ttr::tools
