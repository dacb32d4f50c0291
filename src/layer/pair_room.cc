#include "src/layer/pair_room.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/adapters/engine.h"
#include "src/core/pair_rows.h"
#include "src/recipe/family.h"
#include "src/recipe/pair_entries.h"
#include "ttr/error.h"

namespace ttr {
namespace {

/// How many pairs every memory of a state holds. A state without counts of them is full.
class PairsHeld {
 public:
  PairsHeld(const Requirements& requirements, const State& state)
      : counts_(EntryOf(requirements, state, EntryRole::kPairCount)),
        capacity_(PairCapacity(requirements, state)) {}

  std::int64_t At(std::int64_t n, std::int64_t h) const {
    if (!counts_.defined()) return capacity_;
    return counts_.as<const std::int64_t>()[n * counts_.stride(0) + h * counts_.stride(1)];
  }

  Tensor Counts(const Dims& dims) const {
    Tensor counts(DType::kInt64, {dims.states(), dims.heads});
    for (std::int64_t n = 0; n < dims.states(); ++n) {
      for (std::int64_t h = 0; h < dims.heads; ++h) {
        counts.as<std::int64_t>()[static_cast<std::size_t>(n * dims.heads + h)] = At(n, h);
      }
    }
    return counts;
  }

 private:
  TensorView counts_;
  std::int64_t capacity_;
};

std::int64_t TokensOf(const Dims& dims, const Inputs& inputs, std::int64_t n) {
  const TensorView& bounds = inputs.cu_seqlens;
  if (!bounds.defined()) return dims.tokens;
  const auto* at = bounds.as<const std::int64_t>() + n * bounds.stride(0);
  return at[bounds.stride(0)] - at[0];
}

/// The most that `count(pairs held, tokens added)` says of any memory.
template <class Count>
std::int64_t Most(const Dims& dims, const Inputs& inputs, const PairsHeld& held,
                  const Count& count) {
  std::int64_t most = 0;
  for (std::int64_t n = 0; n < dims.states(); ++n) {
    const std::int64_t tokens = TokensOf(dims, inputs, n);
    for (std::int64_t h = 0; h < dims.heads; ++h) {
      most = std::max(most, count(held.At(n, h), tokens));
    }
  }
  return most;
}

/// What a call needs, and what a state that may grow would have.
struct Room {
  std::int64_t needed, wanted;

  Room(const Dims& dims, const Inputs& inputs, const PairsHeld& pairs, std::int64_t capacity,
       std::int64_t window) {
    const PairRows rows{capacity, window};
    needed = Most(dims, inputs, pairs,
                  [&](std::int64_t held, std::int64_t added) { return rows.Needed(held, added); });
    wanted = Most(dims, inputs, pairs, [&](std::int64_t held, std::int64_t added) {
      const std::int64_t all = held + added;
      return window > 0 && added > 0 ? std::min(all, std::max(held, 2 * window)) : all;
    });
  }
};

/// A tensor with `capacity` rows, the first of them those of `from`.
Tensor WithRows(const StateSpec& spec, const Requirements& requirements, const Dims& dims,
                const TensorView& from, DType dtype, std::int64_t capacity) {
  const DType made = from.defined() ? from.dtype() : dtype;
  Tensor tensor(made, StateShape(spec, requirements.recipe, dims, capacity));
  if (from.defined()) {
    const std::int64_t rows = std::min(from.size(1), capacity);
    CopyInto(from.Slice(1, 0, rows), tensor.view().Slice(1, 0, rows));
  }
  return tensor;
}

[[noreturn]] void FailFull(std::string_view op, std::string_view name, std::int64_t needed,
                           std::int64_t capacity) {
  throw Error(
      op, name,
      "of S >= " + std::to_string(needed) + " pairs, as memory of the caller's does not grow",
      "of S = " + std::to_string(capacity));
}

void Grow(std::string_view op, const Requirements& requirements, const Dims& dims,
          const Inputs& inputs, State& state, bool grows_bound) {
  if (!KeepsPairs(requirements.recipe) || requirements.state.empty()) return;
  const std::int64_t capacity = PairCapacity(requirements, state);
  const std::int64_t window = requirements.recipe.weights.window;
  const PairsHeld pairs(requirements, state);
  const Room room(dims, inputs, pairs, capacity, window);
  const bool lacks = capacity < room.needed;
  bool bound = false;
  for (const State::Entry& entry : state.entries()) {
    const auto spec = std::ranges::find(requirements.state, entry.name, &StateSpec::name);
    if (grows_bound || spec == requirements.state.end() || !HasPairRows(*spec)) continue;
    if (entry.owned.defined()) continue;
    if (lacks) FailFull(op, entry.name, room.needed, capacity);
    bound = true;
  }
  std::int64_t rows = capacity;
  if (lacks || (!bound && capacity < room.wanted)) {
    rows = std::max(room.wanted, window > 0 ? std::min(2 * capacity, 2 * window) : 2 * capacity);
  }
  const DType dtype = ArithmeticType(inputs, state);
  for (const StateSpec& spec : requirements.state) {
    const TensorView held = state.Get(spec.name);
    if (HasPairRows(spec) && !(held.defined() && rows == capacity)) {
      state.Set(spec.name, WithRows(spec, requirements, dims, held, dtype, rows));
    } else if (spec.role == EntryRole::kPairCount && !held.defined()) {
      state.Set(spec.name, pairs.Counts(dims));
    }
  }
}

}  // namespace

void MakePairRoom(std::string_view op, const Requirements& requirements, const Dims& dims,
                  const Inputs& inputs, State& state) {
  Grow(op, requirements, dims, inputs, state, false);
}

void ReservePairs(std::string_view op, const Requirements& requirements, const Dims& dims,
                  const Inputs& inputs, State& state) {
  CheckState(op, requirements, dims, state);
  Grow(op, requirements, dims, inputs, state, true);
}

State PairsFor(std::string_view op, const Requirements& requirements, const Dims& dims,
               const Inputs& inputs, const State& initial, const State& final) {
  const std::int64_t capacity = PairCapacity(requirements, final);
  const PairsHeld pairs(requirements, initial);
  const Room room(dims, inputs, pairs, capacity, requirements.recipe.weights.window);
  bool owned = true;
  for (const State::Entry& entry : final.entries()) {
    if (entry.owned.defined() || !IsFloating(entry.view.dtype())) continue;  // counts do not grow
    if (capacity < room.needed) FailFull(op, entry.name, room.needed, capacity);
    owned = false;
  }
  const DType dtype = ArithmeticType(inputs, initial);
  const bool fits = capacity >= (owned ? room.wanted : room.needed) && capacity > 0;
  const std::int64_t rows = fits ? capacity : PairCapacity(requirements, initial);
  State result;
  if (rows == 0) return result;
  for (const StateSpec& spec : requirements.state) {
    const TensorView given = initial.Get(spec.name);
    const TensorView to = fits || spec.counts() ? final.Get(spec.name) : TensorView();
    Tensor start =
        spec.counts() ? pairs.Counts(dims) : WithRows(spec, requirements, dims, given, dtype, rows);
    if (!to.defined() || to.dtype() != start.dtype()) {  // arithmetic is that of `initial`
      result.Set(spec.name, std::move(start));
      continue;
    }
    CopyInto(start, to);
    result.Bind(spec.name, to);
  }
  return result;
}

void CheckPairGradients(std::string_view op, const Requirements& requirements, const Dims& dims,
                        const Inputs& inputs, const State& initial, const State& dstate) {
  if (!KeepsPairs(requirements.recipe)) return;
  const PairsHeld pairs(requirements, initial);
  std::int64_t rows = -1;
  for (const State::Entry& entry : dstate.entries()) {
    const auto spec = std::ranges::find(requirements.state, entry.name, &StateSpec::name);
    if (spec == requirements.state.end() || !HasPairRows(*spec)) continue;
    const std::int64_t given = entry.view.size(1);
    const PairRows lie{given, requirements.recipe.weights.window};
    const std::int64_t needed =
        Most(dims, inputs, pairs,
             [&](std::int64_t held, std::int64_t added) { return lie.Needed(held, added); });
    if (given < needed) {
      throw Error(op, "d" + entry.name, "of S >= " + std::to_string(needed),
                  "of S = " + std::to_string(given));
    }
    if (rows >= 0 && given != rows) {
      throw Error(op, "d" + entry.name,
                  "of as many pairs as other entries, S = " + std::to_string(rows),
                  "of S = " + std::to_string(given));
    }
    rows = given;
  }
}

void CheckPairBias(std::string_view op, const Requirements& requirements, const Dims& dims,
                   const Inputs& inputs, Needs needs, const State& state) {
  const TensorView& bias = inputs.pair_bias;
  if (!bias.defined() || needs == Needs::kWrite) return;
  const std::int64_t pairs = Most(dims, inputs, PairsHeld(requirements, state),
                                  [&](std::int64_t held, std::int64_t tokens) {
                                    return needs == Needs::kRead ? held : held + tokens;
                                  });
  if (bias.size(3) >= pairs) return;
  throw Error(op, "pair_bias",
              "[B,T,Hq,S] with a column for each of S = " + std::to_string(pairs) +
                  " pairs that the call sees",
              "of S = " + std::to_string(bias.size(3)));
}

}  // namespace ttr
