#include "tools/bench_samples.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "ttr/util/machine.h"

namespace ttr::tools {
namespace {

// Below this share of the greatest rate the core was shared: at least half is then left, and clocks
// differ less.
constexpr double kQuietShare = 0.7;

std::atomic<double> greatest_rate = 0;

}  // namespace

double IssueRate(int threads) {
  std::vector<double> rates(static_cast<std::size_t>(threads));
  if (threads == 1) {
    rates[0] = MeasureIssueRate();
  } else {
    std::barrier start(threads);
    std::vector<std::jthread> workers;
    for (double& rate : rates) {
      workers.emplace_back([&start, &rate] {
        start.arrive_and_wait();
        rate = MeasureIssueRate();
      });
    }
  }
  const auto [least, greatest] = std::minmax_element(rates.begin(), rates.end());
  greatest_rate = std::max(greatest_rate.load(), *greatest);
  return *least;
}

void Samples::Add(double value, double issue_rate) { values_.push_back({value, issue_rate}); }

std::size_t Samples::quiet() const {
  const double least = kQuietShare * greatest_rate;
  return static_cast<std::size_t>(std::count_if(
      values_.begin(), values_.end(), [&](const Value& v) { return v.issue_rate >= least; }));
}

std::vector<double> Samples::Counted() const {
  const double least = quiet() == 0 ? 0 : kQuietShare * greatest_rate;
  std::vector<double> counted;
  for (const Value& v : values_) {
    if (v.issue_rate >= least) counted.push_back(v.value);
  }
  return counted;
}

double Samples::Median() const { return tools::Median(Counted()); }

double Samples::Least() const {
  const std::vector<double> counted = Counted();
  return *std::min_element(counted.begin(), counted.end());
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace ttr::tools
