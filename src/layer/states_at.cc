// Forward that leaves states at inner tokens: the call in pieces, each of which goes on from the
// last.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/adapters/registry.h"
#include "src/layer/check_writes.h"
#include "src/layer/copy_of_all.h"
#include "src/layer/run_call.h"
#include "src/layer/tokens_of.h"
#include "src/recipe/family.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

constexpr std::string_view kForward = "Forward";

void CheckPlaces(const Recipe& recipe, const Dims& dims, std::span<const std::int64_t> at,
                 std::span<const State> states, const CallOptions& options) {
  if (at.size() != states.size()) {
    throw Error(kForward, "states", std::to_string(at.size()) + ", one for each place",
                std::to_string(states.size()));
  }
  std::int64_t last = 0;
  for (const std::int64_t place : at) {
    if (place <= last || place > dims.tokens) {
      throw Error(kForward, "at",
                  "rising from 1 to " + std::to_string(dims.tokens) + ", the number of tokens",
                  std::to_string(place) + " behind " + std::to_string(last));
    }
    last = place;
  }
  if (dims.sequences > 0 && KeepsPairs(recipe)) {
    throw Error(kForward, "at", "absent for packed sequences of a memory that keeps pairs",
                std::to_string(at.size()) + " places");
  }
  if (!options.saved.empty()) {
    throw Error(kForward, "saved", "empty where states at inner tokens are wanted",
                std::to_string(options.saved.size()) + " bytes");
  }
}

/// Rows first .. first + count of all entries.
State SequenceRows(const State& state, std::int64_t first, std::int64_t count) {
  State rows;
  for (const State::Entry& entry : state.entries()) {
    rows.Bind(entry.name, entry.view.Slice(0, first, count));
  }
  return rows;
}

/// Sequences that have tokens begin .. end, with what they have of them.
struct Packed {
  std::int64_t first, count;
  Tensor bounds;

  Packed(const Inputs& inputs, std::int64_t begin, std::int64_t end) {
    const auto* const all = inputs.cu_seqlens.as<const std::int64_t>();
    const auto* const last = all + inputs.cu_seqlens.size(0) - 1;
    first = std::upper_bound(all, last + 1, begin) - all - 1;
    count = std::lower_bound(all, last + 1, end) - all - first;
    bounds = Tensor(DType::kInt64, {count + 1});
    for (std::int64_t n = 0; n <= count; ++n) {
      bounds.as<std::int64_t>()[static_cast<std::size_t>(n)] =
          std::clamp(all[first + n], begin, end) - begin;
    }
  }
};

}  // namespace

State Layer::Complete(const State& state, const Dims& dims, const Inputs& inputs) const {
  State whole = StartIn(state, state, inputs);
  for (const StateSpec& spec : requirements_.state) {
    const TensorView from = whole.Get(spec.name);
    const Shape shape = StateShape(spec, recipe(), dims);
    if (from.shape() == shape) continue;
    Tensor rows(from.dtype(), shape);  // start weights that all sequences share
    for (std::int64_t n = 0; n < shape[0]; ++n) {
      const TensorView row = rows.view().Slice(0, n, 1);
      CopyInto(from, TensorView(row.data(), row.dtype(), from.shape()));
    }
    whole.Set(spec.name, std::move(rows));
  }
  return whole;
}

void Layer::Forward(const Inputs& inputs, State& state, const Outputs& outputs,
                    std::span<const std::int64_t> at, std::span<State> states,
                    const CallOptions& options) const {
  const Dims dims = CheckCall(kForward, requirements_, inputs, state, Needs::kBoth);
  CheckFits(kForward, requirements_, dims, state, engine_);
  CheckOutputs(kForward, dims, inputs, {state, nullptr}, outputs, options, Needs::kBoth);
  CheckPlaces(recipe(), dims, at, states, options);
  if (!recipe().reading.causal && !at.empty()) {
    throw Error(kForward, "recipe", "causal: one that has states at inner tokens",
                ToString(recipe()));
  }
  const Operator runs{kForward, requirements_, *engine_, recipe_hash_, *prepared_};
  const bool packed = dims.sequences > 0 && !at.empty();
  State whole = packed ? Complete(state, dims, inputs) : State();
  std::int64_t begin = 0;
  for (std::size_t i = 0; i <= at.size(); ++i) {
    const std::int64_t end = i < at.size() ? at[i] : dims.tokens;
    if (begin == end && !(begin == 0 && i == at.size())) continue;
    Inputs part = TokensOf(requirements_, inputs, begin, end - begin);
    Dims sizes = dims;
    sizes.tokens = end - begin;
    const Outputs answers = TokensOf(outputs, begin, end - begin);
    if (packed) {
      const Packed pieces(inputs, begin, end);
      part.cu_seqlens = pieces.bounds;
      sizes.sequences = pieces.count;
      State rows = SequenceRows(whole, pieces.first, pieces.count);
      RunChecked(runs, sizes, part, rows, answers, options);
      if (i < at.size()) states[i] = CopyOfAll(SequenceRows(rows, pieces.count - 1, 1));
    } else {
      RunChecked(runs, sizes, part, state, answers, options);
      if (i < at.size()) states[i] = CopyOfAll(state);
    }
    begin = end;
  }
  for (const State::Entry& entry : whole.entries()) {
    if (!state.Get(entry.name).defined() || state.Get(entry.name).data() != entry.view.data()) {
      state.Set(entry.name, Tensor::Copy(entry.view));
    }
  }
}

}  // namespace ttr
