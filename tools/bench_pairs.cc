#include "tools/bench_pairs.h"

#include <optional>

namespace ttr::tools {
namespace {

using report::Cell;
using report::Table;

// A causal mask leaves T^2 / 2 pairs. Half of these are within (1 - sqrt(1/2)) T tokens.
constexpr double kHalf = 0.29289321881345254;

const Work* Find(const std::vector<Work>& works, const std::string& name, std::int64_t d,
                 const char* variant) {
  for (const Work& work : works) {
    const Setting& setting = work.setting();
    if (setting.measurement == Measurement::kPairs && work.name() == name &&
        setting.dims.key_dim == d && setting.variant == variant) {
      return &work;
    }
  }
  return nullptr;
}

// Times the other's time: for every token, and for every flop.
void AddTimes(std::vector<Cell>& row, const Work* work, const Work* other) {
  if (work == nullptr || other == nullptr) {
    row.insert(row.end(), {Cell(), Cell()});
    return;
  }
  row.emplace_back(work->Ns() / other->Ns());
  row.emplace_back(other->Gflops() / work->Gflops());
}

}  // namespace

std::vector<PairsLine> PairsLines() {
  const std::string compact = "nadaraya_watson{kernel: epanechnikov, bandwidth: 16}";
  return {
      {"softmax", "softmax"},
      {"softmax, bfloat16", "softmax", 1, DType::kBFloat16},
      {"Gaussian", "nadaraya_watson{bandwidth: 16}"},
      {"Laplace", "nadaraya_watson{kernel: laplace, bandwidth: 16}"},
      {"inverse distance", "softmax{kernel: inverse_distance}"},
      {"Epanechnikov", compact},
      {"Epanechnikov, half of the pairs out of reach", compact, 1, DType::kFloat32, kHalf},
      {"softmax, window 512", "softmax{window: 512}", 4},
      {"local linear, one head", "local_linear", 1, DType::kFloat32, 0, 1},
      {"kernel ridge, one head", "kernel_ridge", 2, DType::kFloat32, 0, 1},
  };
}

std::vector<PairsLine> PairsDecodeLines() {
  return {{"softmax", "softmax"},
          {"Gaussian", "nadaraya_watson{bandwidth: 16}"},
          {"local linear", "local_linear"}};
}

Table PairsTable(const std::vector<Work>& works, const Limits& limits) {
  Table table(
      "Kept pairs, beside softmax of the same shape: times its time for a token, for a flop");
  table.AddText("memory").AddInteger("d").AddInteger("T").AddInteger("H");
  table.AddReal("forward", 1, kNsUnit).AddReal("of peak", 1, "%");
  table.AddReal("times softmax", 2).AddReal("a flop", 2);
  table.AddReal("forward + backward", 1, kNsUnit).AddReal("both: of peak", 1, "%");
  table.AddReal("both: times softmax", 2).AddReal("both: a flop", 2);
  for (const Work& forward : works) {
    const Setting& setting = forward.setting();
    if (setting.measurement != Measurement::kPairs || setting.variant != "forward") continue;
    const std::int64_t d = setting.dims.key_dim;
    const double peak = limits.FmaPeak() * setting.threads;
    const std::string first = PairsLines().front().name;
    std::vector<Cell> row = {forward.name(),      d,
                             setting.dims.tokens, setting.dims.heads,
                             forward.Ns(),        100 * forward.Gflops() / peak};
    AddTimes(row, &forward, Find(works, first, d, "forward"));
    const Work* const both = Find(works, forward.name(), d, "both");
    if (both == nullptr) {
      row.insert(row.end(), {Cell(), Cell()});
    } else {
      row.insert(row.end(), {Cell(both->Ns()), Cell(100 * both->Gflops() / peak)});
    }
    AddTimes(row, both, Find(works, first, d, "both"));
    table.AddRow(std::move(row));
  }
  return table;
}

Table PairsDecodeTable(const std::vector<Work>& works, const Limits& limits) {
  Table table("Single tokens beside kept pairs of 64 MB in float32; the same pairs in bfloat16");
  table.AddText("memory").AddInteger("d").AddInteger("H").AddInteger("pairs");
  table.AddReal("float32", 1, kNsUnit).AddReal("of limit", 1, "%").AddText("limit");
  table.AddReal("bfloat16", 1, kNsUnit).AddReal("bfloat16: of limit", 1, "%");
  table.AddReal("times quicker", 2);
  for (const Work& wide : works) {
    const Setting& setting = wide.setting();
    if (setting.measurement != Measurement::kPairs || setting.variant != "DRAM") continue;
    const Work& narrow = *Find(works, wide.name(), setting.dims.key_dim, "DRAM, bfloat16");
    const auto share = [&](const Work& work) { return 100 * limits.BoundOf(work).ns / work.Ns(); };
    table.AddRow({wide.name(), setting.dims.key_dim, setting.dims.heads, setting.pairs, wide.Ns(),
                  share(wide), limits.BoundOf(wide).limit, narrow.Ns(), share(narrow),
                  wide.Ns() / narrow.Ns()});
  }
  return table;
}

}  // namespace ttr::tools
