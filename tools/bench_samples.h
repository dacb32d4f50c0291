// What `ttr bench` measured again and again, and how quiet the machine was meanwhile.
//
// What is called a processor is often one of two hardware threads of a core, and the other one
// somebody else's: while that one works, up to half of the instructions that the core can issue are
// gone, and a kernel takes up to twice its time. Such samples say nothing about the kernel. They
// are recognised by the rate of instructions that do nothing, taken before and after, and left out.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace ttr::tools {

// The least rate of `threads` threads at once, and note of the greatest so far.
double IssueRate(int threads);

// A slow work has so many, and any work should have so many that are quiet.
inline constexpr std::size_t kLeastSamples = 3;

// A sample lasts at least so long, so that neither the clock nor the call itself is what is timed.
inline constexpr double kSampleSeconds = 2e-3;
// What has been sampled kLeastSamples times and so long is sampled no more.
inline constexpr double kShareSeconds = 1;

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Samples {
 public:
  // `issue_rate`: the lesser of those before and after.
  void Add(double value, double issue_rate);

  std::size_t size() const { return values_.size(); }
  std::size_t quiet() const;
  // How many are left out: none where there would be none left.
  std::size_t left_out() const { return quiet() == 0 ? 0 : size() - quiet(); }

  double Median() const;
  double Least() const;

 private:
  struct Value {
    double value, issue_rate;
  };
  std::vector<double> Counted() const;
  std::vector<Value> values_;
};

double Median(std::vector<double> values);

}  // namespace ttr::tools
