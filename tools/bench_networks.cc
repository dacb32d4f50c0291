#include "tools/bench_networks.h"

#include <utility>

namespace ttr::tools {
namespace {

using report::Cell;
using report::Table;

bool IsForward(const Work& work) {
  return work.setting().measurement == Measurement::kNetworks &&
         work.setting().variant == "forward";
}

// The other work of the same network and d.
const Work& Find(const std::vector<Work>& works, const Work& forward, const char* variant) {
  for (const Work& work : works) {
    const Setting& setting = work.setting();
    if (setting.measurement == Measurement::kNetworks && work.name() == forward.name() &&
        setting.dims.key_dim == forward.setting().dims.key_dim && setting.variant == variant) {
      return work;
    }
  }
  return forward;
}

// Bytes that every token writes: all of the memory, where its mini-batch has one token; else 0.
double WrittenBytes(const Work& forward) {
  const Recipe& recipe = forward.recipe();
  if (recipe.optimizer.mini_batch > 1) return 0;
  return EstimateCost(recipe, forward.plan(), forward.setting().dims).state_bytes;
}

Cell Times(const Work& one, const Work& several) { return one.Ns() / several.Ns(); }

}  // namespace

std::vector<NetworkLine> NetworkLines() {
  return {{"TTT-Linear", "ttt_linear"},
          {"TTT-MLP", "ttt_mlp"},
          {"Titans, mini-batch 16", "titans{mini_batch: 16}"},
          {"Titans", "titans"}};
}

void AddNetworkLimits(const std::vector<Work>& works, Limits& limits) {
  for (const Work& work : works) {
    if (IsForward(work) && WrittenBytes(work) > 0) limits.AddInPlace(WrittenBytes(work));
  }
}

Table NetworksTable(const std::vector<Work>& works, const Limits& limits) {
  Table table(
      "Networks that are trained while they read, float32; one thread, then several; single tokens "
      "that end a mini-batch each, states of 2 MB in all");
  table.AddText("memory").AddInteger("d").AddInteger("T").AddInteger("H");
  table.AddReal("forward", 1, kNsUnit).AddReal("of peak", 1, "%").AddReal("of in-place", 1, "%");
  table.AddReal("forward + backward", 1, kNsUnit).AddReal("both / forward", 2);
  table.AddReal("both: of peak", 1, "%").AddReal("both: memory", 1, "MB");
  table.AddInteger("threads").AddReal("heads: speed-up", 2, "x");
  table.AddReal("one head: speed-up", 2, "x");
  table.AddReal("token", 1, kNsUnit).AddReal("token: of in-place", 1, "%");
  for (const Work& forward : works) {
    if (!IsForward(forward)) continue;
    const Dims& dims = forward.setting().dims;
    const Work& both = Find(works, forward, "both");
    const Work& several = Find(works, forward, "heads, threads");
    const Work& token = Find(works, forward, "cache");
    const double written = WrittenBytes(forward);
    const Cell in_place =
        written > 0 ? Cell(100 * limits.InPlaceBound(written).ns / forward.Ns()) : Cell();
    table.AddRow(
        {forward.name(), dims.key_dim, dims.tokens, dims.heads, forward.Ns(),
         100 * forward.Gflops() / limits.FmaPeak(), in_place, both.Ns(), both.Ns() / forward.Ns(),
         100 * both.Gflops() / limits.FmaPeak(), both.Bytes() / 1e6, several.setting().threads,
         Times(forward, several),
         Times(Find(works, forward, "one head"), Find(works, forward, "one head, threads")),
         token.Ns(), 100 * limits.MemoryBound(token).ns / token.Ns()});
  }
  return table;
}

}  // namespace ttr::tools
