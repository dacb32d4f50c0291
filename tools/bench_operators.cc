#include "tools/bench_operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "ttr/gates.h"
#include "ttr/norm.h"
#include "ttr/short_conv.h"

namespace ttr::tools {
namespace {

constexpr std::int64_t kConvWidth = 4;
constexpr double kStateBytes = 2 << 20;  // of all states of a decoded convolution

double BytesOf(std::initializer_list<TensorView> views) {
  double bytes = 0;
  for (const TensorView& view : views) {
    bytes +=
        static_cast<double>(view.shape().elements()) * static_cast<double>(SizeOf(view.dtype()));
  }
  return bytes;
}

// The works at one d. Parameters are small, and count for nothing among the bytes.
class OperatorCollector {
 public:
  OperatorCollector(const BenchOptions& options, std::int64_t d, Executor& executor,
                    BenchMemory& memory)
      : options_(options), d_(d), executor_(executor), memory_(memory) {}

  void Collect() {
    Convolution();
    ConvolutionOfOneToken(true);
    ConvolutionOfOneToken(false);
    NormOf("norm: L2", {.kind = RowNorm::kL2}, false);
    NormOf("norm: RMS, SiLU gate", {.weight = Parameter("weight", {heads(), d_})}, true);
    NormOf("norm: SiLU gate, then RMS",
           {.weight = Parameter("weight", {heads(), d_}), .gate_first = true}, true);
    DecayGateOf("decay gate, [B,T,H]", {1, options_.tokens, heads()});
    DecayGateOf("decay gate, [B,T,H,D]", rows());
    StepGateOf();
    SkipGateOf();
  }

  std::vector<OperatorWork> works;

 private:
  std::int64_t heads() const { return options_.HeadsOf(Measurement::kOperators); }
  Shape rows() const { return {1, options_.tokens, heads(), d_}; }

  // Numbers within -1 .. 1; `name` tells tensors of a call apart.
  TensorView Take(const std::string& name, const Shape& shape) {
    const TensorView view = memory_.Take("operators, " + name, DType::kFloat32, shape);
    float* const numbers = view.as<float>();
    std::uint32_t random = 1;
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      random = random * 1664525u + 1013904223u;
      numbers[i] = static_cast<float>(random >> 8) * 0x1p-23f - 1;
    }
    return view;
  }
  TensorView Parameter(const std::string& name, const Shape& shape) { return Take(name, shape); }

  void Add(std::string name, std::string doing, double units, double bytes,
           std::function<void()> run) {
    works.emplace_back(
        OperatorSetting{std::move(name), std::move(doing), d_, units, bytes, options_.threads},
        std::move(run));
  }

  // Forward, then forward and backward: `read` and `written` by the one, and by the other.
  void AddBoth(const std::string& name, double forward_bytes, double backward_bytes,
               const std::function<void()>& forward, const std::function<void()>& backward) {
    const auto units = static_cast<double>(options_.tokens * heads());
    Add(name, "forward", units, forward_bytes, forward);
    Add(name, "both", units, forward_bytes + backward_bytes, [=] {
      forward();
      backward();
    });
  }

  void Convolution() {
    const ShortConv conv{.weight = Parameter("taps", {heads(), d_, kConvWidth}), .silu = true};
    const TensorView x = Take("x", rows()), y = Take("y", rows()), dx = Take("dx", rows());
    const TensorView dweight = Parameter("dtaps", conv.weight.shape());
    AddBoth(
        "short convolution", BytesOf({x, y}), BytesOf({x, y, dx}),
        [=, executor = &executor_] { ApplyShortConv(conv, {.x = x}, {}, y, *executor); },
        [=, executor = &executor_] {
          ApplyShortConvGradient(conv, {.x = x}, {}, y, {}, {.dx = dx, .dweight = dweight},
                                 *executor);
        });
  }

  // States as engines keep them, or as [B, C, W], tokens innermost.
  void ConvolutionOfOneToken(bool tokens_innermost) {
    const std::int64_t rows = tokens_innermost ? kConvWidth : kConvWidth - 1;
    const std::int64_t numbers = heads() * d_ * rows;
    const auto batch =
        static_cast<std::int64_t>(std::max(1.0, kStateBytes / (4 * static_cast<double>(numbers))));
    const TensorView memory = Take(fmt::format("state of {}", rows), {batch, numbers});
    const std::array<std::int64_t, 4> strides = {numbers, 1, d_ * rows, rows};
    const Shape shape{batch, rows, heads(), d_};
    const TensorView state = tokens_innermost
                                 ? TensorView(memory.data(), DType::kFloat32, shape, strides)
                                 : TensorView(memory.data(), DType::kFloat32, shape);
    const ShortConv conv{.weight = Parameter("taps", {heads(), d_, kConvWidth}), .silu = true};
    const TensorView x = Take("token", {batch, 1, heads(), d_});
    const TensorView y = Take("token's y", {batch, 1, heads(), d_});
    Add(tokens_innermost ? "short convolution, state [B,C,W]" : "short convolution", "one token",
        static_cast<double>(batch * heads()), BytesOf({x, y, state, state}),
        [=, executor = &executor_] { ApplyShortConv(conv, {.x = x}, state, y, *executor); });
  }

  void NormOf(const std::string& name, const Norm& norm, bool gated) {
    const TensorView x = Take("x", rows()), y = Take("y", rows()), dx = Take("dx", rows());
    TensorView gate, dgate, dweight;
    if (gated) gate = Take("gate", rows()), dgate = Take("dgate", rows());
    if (norm.weight.defined()) dweight = Parameter("dweight", norm.weight.shape());
    AddBoth(
        name, BytesOf({x, gate, y}), BytesOf({x, gate, y, dx, dgate}),
        [=, executor = &executor_] { ApplyNorm(norm, {x, gate}, y, *executor); },
        [=, executor = &executor_] {
          ApplyNormGradient(norm, {x, gate}, y, {.dx = dx, .dweight = dweight, .dgate = dgate},
                            *executor);
        });
  }

  void DecayGateOf(const std::string& name, const Shape& shape) {
    const TensorView x = Take("x", shape), y = Take("y", shape), dx = Take("dx", shape);
    const bool channels = shape.rank() == 4;
    const Shape of_bias = channels ? Shape{heads(), d_} : Shape{heads()};
    const DecayGate gate{Parameter("a", {heads()}), Parameter("bias", of_bias)};
    const TensorView da = Parameter("da", {heads()}), dbias = Parameter("dbias", of_bias);
    AddBoth(
        name, BytesOf({x, y}), BytesOf({x, y, dx}),
        [=, executor = &executor_] { ApplyDecayGate(gate, x, y, *executor); },
        [=, executor = &executor_] {
          ApplyDecayGateGradient(gate, x, y, {dx, da, dbias}, *executor);
        });
  }

  // A step for every channel, as Mamba has it.
  void StepGateOf() {
    const Shape shape{1, options_.tokens, heads() * d_};
    const TensorView x = Take("x", shape), y = Take("y", shape), dx = Take("dx", shape);
    const StepGate gate{Parameter("step bias", {heads() * d_})};
    const TensorView dbias = Parameter("step dbias", {heads() * d_});
    AddBoth(
        "step gate, [B,T,H D]", BytesOf({x, y}), BytesOf({x, y, dx}),
        [=, executor = &executor_] { ApplyStepGate(gate, x, y, *executor); },
        [=, executor = &executor_] { ApplyStepGateGradient(gate, x, y, {dx, dbias}, *executor); });
  }

  void SkipGateOf() {
    const SkipGate gate{Parameter("a", {heads()})};
    const SkipGateInputs in{Take("gate", rows()), Take("x", rows()), Take("z", rows())};
    const TensorView out = Take("y", rows()), dd = Parameter("da", {heads()});
    const TensorView dy = Take("dgate", rows()), dx = Take("dx", rows()), dz = Take("dz", rows());
    AddBoth(
        "skip gate", BytesOf({in.y, in.x, in.z, out}), BytesOf({in.y, in.x, in.z, out, dy, dx, dz}),
        [=, executor = &executor_] { ApplySkipGate(gate, in, out, *executor); },
        [=, executor = &executor_] {
          ApplySkipGateGradient(gate, in, out, {dy, dx, dz, dd}, *executor);
        });
  }

  const BenchOptions& options_;
  std::int64_t d_;
  Executor& executor_;
  BenchMemory& memory_;
};

}  // namespace

double OperatorWork::Once(int count) const {
  const double start = Now();
  for (int i = 0; i < count; ++i) run_();
  return (Now() - start) / count;
}

void OperatorWork::Sample() {
  if (ns_.size() >= kLeastSamples && spent_ > kShareSeconds) return;
  Again();
}

void OperatorWork::Again() {
  const double before = IssueRate(setting_.threads);
  const double once = Once(1);  // brings what it reads back into the caches
  if (count_ == 0) {
    count_ = static_cast<int>(std::clamp(kSampleSeconds / std::min(once, Once(1)), 1.0, 1e5));
  }
  const double seconds = Once(count_);
  const double after = IssueRate(setting_.threads);
  spent_ += seconds * count_;
  ns_.Add(1e9 * seconds / setting_.units, std::min(before, after));
}

std::vector<OperatorWork> MakeOperatorWorks(const BenchOptions& options, Executor& executor,
                                            BenchMemory& memory) {
  std::vector<OperatorWork> works;
  if (std::ranges::find(options.measurements, Name(Measurement::kOperators)) ==
      options.measurements.end())
    return works;
  for (const std::int64_t d : options.dims) {
    OperatorCollector collector(options, d, executor, memory);
    collector.Collect();
    std::ranges::move(collector.works, std::back_inserter(works));
  }
  return works;
}

report::Table OperatorsTable(const std::vector<OperatorWork>& works, const Limits& limits) {
  report::Table table("Operators around a memory, float32, beside a stream of as many bytes");
  table.AddText("operator").AddText("doing").AddInteger("d").AddReal("time", 1, "ns/token/head");
  table.AddReal("moved", 0, "bytes/token/head").AddReal("bandwidth", 1, "GB/s");
  table.AddReal("of stream", 1, "%").AddText("stream");
  for (const OperatorWork& work : works) {
    const OperatorSetting& setting = work.setting();
    const Bound stream = limits.StreamBound(setting.bytes, setting.threads);
    table.AddRow({setting.name, setting.doing, setting.d, work.Ns(), work.BytesPerUnit(),
                  work.BytesPerUnit() / work.Ns(), 100 * stream.ns / setting.units / work.Ns(),
                  stream.limit});
  }
  return table;
}

}  // namespace ttr::tools
