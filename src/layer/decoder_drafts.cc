// Drafts of a Decoder: steps of several tokens, and their way back.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "src/adapters/engine.h"
#include "src/layer/check_writes.h"
#include "src/layer/copy_of_all.h"
#include "src/layer/run_call.h"
#include "src/layer/tokens_of.h"
#include "src/recipe/family.h"
#include "src/recipe/pair_entries.h"
#include "ttr/decoder.h"
#include "ttr/error.h"

namespace ttr {
namespace {

/// Is going back a matter of how many pairs count?
bool CountsPairs(const Requirements& requirements) {
  return requirements.recipe.weights.window == 0 &&
         std::ranges::all_of(requirements.state, [](const StateSpec& spec) {
           return spec.role == EntryRole::kPairs || spec.role == EntryRole::kPairCount;
         });
}

}  // namespace

bool Decoder::KeepsDrafts(const Layer& layer) { return layer.engine_->RollsBack(layer.recipe()); }

void Decoder::StepOneByOne(const Inputs& inputs, const Outputs& outputs,
                           const CallOptions& options) {
  const Dims dims = CheckCall("Step", layer_->requirements(), inputs, state_, Needs::kBoth);
  CheckOutputs("Step", dims, inputs, {.state = State(), .before = memory_}, outputs, options,
               Needs::kBoth);
  const bool counts = memory_.empty() && CountsPairs(layer_->requirements());
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    Kept before = counts ? Kept() : Snapshot();
    Run("Step", TokensOf(layer_->requirements(), inputs, t, 1), TokensOf(outputs, t, 1), true,
        options);
    if (counts) {
      ++tokens_kept_;
      continue;
    }
    if (static_cast<std::int64_t>(kept_.size()) == draft_) kept_.erase(kept_.begin());
    kept_.push_back(std::move(before));
  }
}

Decoder::Kept Decoder::Snapshot() const {
  Kept kept;
  if (!memory_.empty()) {
    kept.memory = Tensor(DType::kInt8, {static_cast<std::int64_t>(memory_.size())});
    std::memcpy(kept.memory.data(), memory_.data(), memory_.size());
  } else {
    kept.state = CopyOfAll(state_);
    kept.pair_numbers = pair_numbers_;
  }
  return kept;
}

void Decoder::ForgetDrafts() {
  kept_.clear();
  tokens_kept_ = 0;
}

std::int64_t Decoder::pending() const {
  if (!PairsWait()) return std::max(tokens_kept_, static_cast<std::int64_t>(kept_.size()));
  if (!stale()) return 0;
  State shared = state_.Shared();
  return layer_->engine_->PendingTokens(layer_->recipe(), shared, Auxiliary(), pendency());
}

void Decoder::RollBack(std::int64_t tokens) {
  const std::int64_t most = pending();
  if (tokens < 0 || tokens > most) {
    throw Error("RollBack", "tokens", "from 0 to " + std::to_string(most), std::to_string(tokens));
  }
  if (tokens == 0) return;
  if (PairsWait()) {
    return layer_->engine_->RollBack(layer_->recipe(), state_, Auxiliary(), pendency(), tokens);
  }
  if (kept_.empty()) {  // pairs that are counted
    const TensorView length = EntryOf(layer_->requirements(), state_, EntryRole::kPairCount);
    for (std::int64_t i = 0; i < length.shape().elements(); ++i) {
      length.as<std::int64_t>()[i] -= tokens;
    }
    pair_numbers_ = {};
    tokens_kept_ -= tokens;
    return;
  }
  const auto first = kept_.end() - static_cast<std::ptrdiff_t>(tokens);
  if (!memory_.empty()) {
    std::memcpy(memory_.data(), first->memory.data(), memory_.size());
    Attach(memory_);
  } else {
    state_ = CopyOfAll(first->state);
    pair_numbers_ = std::move(first->pair_numbers);
  }
  kept_.erase(first, kept_.end());
}

}  // namespace ttr
