// Choices of networks that contradict each other, with the reason and what fixes them.
#include "src/recipe/rules.h"

namespace ttr {
namespace {

using R = const Recipe&;

bool IsNetwork(R r) { return r.function.kind == FunctionClass::kNetwork; }
// Does the recipe read where mini-batches begin or end, and has none?
bool LacksBatches(R r) {
  const bool batches = IsNetwork(r) && r.optimizer.mini_batch > 1;
  return !batches && (r.reading.read == Read::kBatchStart || r.reading.read == Read::kBatchEnd);
}
bool IsAdapted(R r) { return IsNetwork(r) && r.optimizer.adapt != Adapt::kNone; }
bool IsAdapted(R r, Adapt adapt) { return IsAdapted(r) && r.optimizer.adapt == adapt; }

void ReadTokens(Recipe& r) {
  r.reading.read = r.reading.read == Read::kBatchStart ? Read::kBefore : Read::kAfter;
}

constexpr Rule kRules[] = {
    {[](R r) {
       const bool carries = r.optimizer.momentum || r.optimizer.weight_decay != WeightDecay::kNone;
       return r.optimizer.row_factor != RowFactor::kOne && (carries || IsAdapted(r));
     },
     "a row factor scales the sum of gradients of its mini-batch, which momentum, weight decay and "
     "adapted steps mix with older ones",
     [](Recipe& r) { r.optimizer.row_factor = RowFactor::kOne; }},
    {[](R r) { return IsAdapted(r) && r.optimizer.mini_batch > 1; },
     "steps adapted a weight are taken token by token, mini_batch: 1",
     [](Recipe& r) { r.optimizer.mini_batch = 1; }},
    {[](R r) { return IsAdapted(r, Adapt::kAdam) && !r.optimizer.momentum; },
     "adam averages gradients by its momentum", [](Recipe& r) { r.optimizer.momentum = true; }},
    {[](R r) { return IsAdapted(r, Adapt::kAdagrad) && r.optimizer.momentum; },
     "adagrad divides single gradients; adam those that momentum averages",
     [](Recipe& r) { r.optimizer.momentum = false; }},
    {[](R r) { return IsAdapted(r) && r.optimizer.eps <= 0; },
     "an adapted step needs an eps > 0 beside the root of what may be 0",
     [](Recipe& r) { r.optimizer.eps = 1e-8; }},
    {LacksBatches,
     "queries read where mini-batches begin or end: those of a network, mini_batch > 1",
     ReadTokens},
};

}  // namespace

std::span<const Rule> NetworkRules() { return kRules; }

}  // namespace ttr
