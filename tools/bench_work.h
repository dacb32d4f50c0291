// What `ttr bench` times: one layer, at one size, doing one thing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench_inputs.h"
#include "tools/bench_samples.h"
#include "ttr/decoder.h"
#include "ttr/layer.h"
#include "ttr/state_pool.h"

namespace ttr::tools {

enum class Measurement {
  kLimits,        // of every level of memory
  kPrefill,       // a whole sequence
  kDecode,        // single tokens, the states in cache or in main memory
  kTrain,         // forward and backward
  kThreads,       // one memory, several threads
  kBf16,          // bfloat16 inputs
  kLeastSquares,  // memories that carry a Gram matrix, beside the delta rule
  kPairs,         // memories that keep their pairs, beside softmax
  kNetworks,      // networks that are trained while they read
  kOperators,     // what stands around a memory (bench_operators.h)
  kCurves,        // cost against T, d, H, threads
};
inline constexpr std::string_view kMeasurementNames[] = {
    "limits",        "prefill", "decode",   "train",     "threads", "bf16",
    "least_squares", "pairs",   "networks", "operators", "curves"};
inline std::string_view Name(Measurement measurement) {
  return kMeasurementNames[static_cast<std::size_t>(measurement)];
}

struct BenchOptions {
  std::vector<std::string> what;
  std::vector<std::string> measurements;
  std::vector<std::int64_t> dims{64, 128};
  std::int64_t tokens = 2048;
  std::int64_t heads = 0;  // 0: as many as suit the measurement
  int threads = 1;
  int repeats = 9;

  // A token of kept pairs or of a network takes many times as long as one of other memories.
  std::int64_t HeadsOf(Measurement measurement) const {
    if (heads > 0) return heads;
    return measurement == Measurement::kPairs ? 8 : measurement == Measurement::kNetworks ? 4 : 32;
  }
};

// What a work needs at the least, a token and memory.
struct Demand {
  double flops = 0;         // useful ones
  double exps = 0;          // exponentials of gates; a sine and a cosine count one each
  double stream_bytes = 0;  // inputs read and answers written, once
  double state_bytes = 0;   // of the memory, read and written for every token (decode)
  double pairs_bytes = 0;   // of kept pairs, read for every token (decode)
  double footprint = 0;     // bytes that one call touches, all in all
};

enum class Doing { kForward, kSteps, kForwardBackward };

// Where and how a work runs.
struct Setting {
  Measurement measurement = Measurement::kPrefill;
  Doing doing = Doing::kForward;
  std::string
      variant{};  // tells works of one measurement, layer and d apart: "cache", "DRAM", "T", ...
  Dims dims{};
  int threads = 1;
  DType dtype = DType::kFloat32;   // of q, k, v and y, and of kept pairs
  DType state = DType::kFloat32;   // of a decoder's memory
  bool decoder = false;            // single tokens by a Decoder, else by Layer::Step
  bool draft = false;              // all tokens at once by a Decoder that could take them back
  bool slots = false;              // rows of the batch in mixed slots of a StatePool
  bool bfloat16_products = false;  // those of ttr::CallOptions
  std::int64_t pairs = 0;          // that a memory keeps while single tokens are timed
  // Keys and queries drift: pairs this share of the sequence apart are a bandwidth apart. 0: none.
  double reach = 0;
};

// What calls need beside their tensors.
struct WorkMemory {
  std::span<std::byte> scratch, saved, decoder;

  std::size_t bytes() const { return scratch.size() + saved.size() + decoder.size(); }
};

class Work {
 public:
  Work(std::string name, const Recipe& recipe, Setting setting, Executor& executor,
       BenchMemory& memory);

  // Times the work once more, unless it has had its share of time: a slow work has few samples.
  void Sample();
  // Times it in any case.
  void Again();

  const std::string& name() const { return name_; }
  const Setting& setting() const { return setting_; }
  const Plan& plan() const { return plan_; }  // of its sizes
  const Recipe& recipe() const { return layer_->recipe(); }
  const Demand& demand() const { return demand_; }
  double x() const;  // on the curve that `variant` names

  // Median over the samples that count, ns a token and memory.
  double Ns() const { return ns_.Median(); }
  double LeastNs() const { return ns_.Least(); }
  const Samples& samples() const { return ns_; }
  // Inputs, answers, gradients, the memory, and all that a call needs beside them.
  double Bytes() const;
  // The smallest share, over the samples, of answers that are exact solutions; 1 where answers have
  // no status.
  double solved() const { return solved_; }
  // Useful GFLOP/s.
  double Gflops() const { return demand_.flops / Ns(); }

  // The answers from the recipe's start; all inputs (as they were rounded) and answers in float32
  // if `wide`.
  Tensor Answers(bool wide) const;

 private:
  void Run();
  // Every head's state is that of the start.
  void Fill(const State& state) const;
  double Once(int count);
  State OneHead(BenchMemory& memory) const;
  void Restore();
  DecoderOptions DecoderSetting() const;
  void KeepPairs(BenchMemory& memory);
  void FindDemand();
  void MixSlots(BenchMemory& memory);
  double SolvedShare() const;

  std::string name_;
  Setting setting_;
  Plan plan_;
  std::shared_ptr<const Layer> layer_;
  Executor* executor_;
  Inputs inputs_, gradients_;
  State state_, initial_gradient_;
  State start_;  // of one head, where what calls leave must not pile up
  Outputs outputs_;
  std::optional<Decoder> decoder_;  // where it holds the state
  std::optional<StatePool> pool_;   // or the pool
  std::vector<std::int64_t> slots_;
  WorkMemory memory_;
  Demand demand_;
  int count_ = 0;  // calls a sample
  Samples ns_;
  double spent_ = 0;  // seconds on samples
  double solved_ = 1;
};

// Memories whose state is the list of their pairs: it has no size of its own.
bool KeepsPairs(const Recipe& recipe);

// Gradients by an engine; the definition's, two calls a number, are no measure of speed.
bool HasFastBackward(const Recipe& recipe);

// Does a Decoder keep more than the state?
bool HasDecoder(const Recipe& recipe, const Dims& dims);

// The works of all measurements that are asked for. `executor` gives the executor of a number of
// threads.
std::vector<Work> MakeWorks(const BenchOptions& options,
                            const std::function<Executor&(int threads)>& executor,
                            BenchMemory& memory);

}  // namespace ttr::tools
