// The measurement `operators` of `ttr bench`: what stands around a memory, beside the bandwidth of
// a stream of as many bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "tools/bench_inputs.h"
#include "tools/bench_limits.h"
#include "tools/bench_samples.h"
#include "tools/bench_work.h"

namespace ttr::tools {

// An operator at one size, doing one thing.
struct OperatorSetting {
  std::string name;   // "norm: RMS, SiLU gate"
  std::string doing;  // "forward", "both", "one token"
  std::int64_t d = 0;
  double units = 0;  // tokens times heads of a call
  double bytes = 0;  // that a call reads and writes at the least
  int threads = 1;
};

class OperatorWork {
 public:
  OperatorWork(OperatorSetting setting, std::function<void()> run)
      : setting_(std::move(setting)), run_(std::move(run)) {}

  // Times the work once more, unless it has had its share of time.
  void Sample();
  // Times it in any case.
  void Again();

  const OperatorSetting& setting() const { return setting_; }
  const Samples& samples() const { return ns_; }
  double Ns() const { return ns_.Median(); }  // a token and head
  double BytesPerUnit() const { return setting_.bytes / setting_.units; }

 private:
  double Once(int count) const;

  OperatorSetting setting_;
  std::function<void()> run_;
  int count_ = 0;  // calls a sample
  double spent_ = 0;
  Samples ns_;
};

// None unless the measurement is asked for.
std::vector<OperatorWork> MakeOperatorWorks(const BenchOptions& options, Executor& executor,
                                            BenchMemory& memory);

report::Table OperatorsTable(const std::vector<OperatorWork>& works, const Limits& limits);

}  // namespace ttr::tools
