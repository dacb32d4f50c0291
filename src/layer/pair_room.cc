#include "src/layer/pair_room.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "src/adapters/engine.h"
#include "src/core/pair_rows.h"
#include "src/recipe/family.h"
#include "ttr/error.h"

namespace ttr {
namespace {

bool Grows(const StateSpec& spec) {
  return std::ranges::find(spec.shape, Axis::kPairs) != spec.shape.end();
}

std::int64_t CapacityOf(const State& state) {
  const TensorView k = state.Get("state.k");
  return k.defined() ? k.size(1) : 0;
}

/// Pairs that memory [n, h] holds. A state without lengths is full.
std::int64_t Held(const State& state, std::int64_t n, std::int64_t h) {
  const TensorView length = state.Get("state.length");
  if (!length.defined()) return CapacityOf(state);
  return length.as<const std::int64_t>()[n * length.stride(0) + h * length.stride(1)];
}

std::int64_t TokensOf(const Dims& dims, const Inputs& inputs, std::int64_t n) {
  const TensorView& bounds = inputs.cu_seqlens;
  if (!bounds.defined()) return dims.tokens;
  const auto* at = bounds.as<const std::int64_t>() + n * bounds.stride(0);
  return at[bounds.stride(0)] - at[0];
}

/// The most that `count(pairs held, tokens added)` says of any memory.
std::int64_t Most(const Dims& dims, const Inputs& inputs, const State& state,
                  const std::function<std::int64_t(std::int64_t, std::int64_t)>& count) {
  std::int64_t most = 0;
  for (std::int64_t n = 0; n < dims.states(); ++n) {
    const std::int64_t tokens = TokensOf(dims, inputs, n);
    for (std::int64_t h = 0; h < dims.heads; ++h) {
      most = std::max(most, count(Held(state, n, h), tokens));
    }
  }
  return most;
}

/// What a call needs, and what a state that may grow would have.
struct Room {
  std::int64_t needed, wanted;

  Room(const Requirements& requirements, const Dims& dims, const Inputs& inputs, const State& state,
       std::int64_t capacity) {
    const std::int64_t window = requirements.recipe.weights.window;
    const PairRows rows{capacity, window};
    needed = Most(dims, inputs, state,
                  [&](std::int64_t held, std::int64_t added) { return rows.Needed(held, added); });
    wanted = Most(dims, inputs, state, [&](std::int64_t held, std::int64_t added) {
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

Tensor Lengths(const Dims& dims, const State& state) {
  Tensor lengths(DType::kInt64, {dims.states(), dims.heads});
  for (std::int64_t n = 0; n < dims.states(); ++n) {
    for (std::int64_t h = 0; h < dims.heads; ++h) {
      lengths.as<std::int64_t>()[static_cast<std::size_t>(n * dims.heads + h)] = Held(state, n, h);
    }
  }
  return lengths;
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
  const std::int64_t capacity = CapacityOf(state);
  const Room room(requirements, dims, inputs, state, capacity);
  const bool lacks = capacity < room.needed;
  bool bound = false;
  for (const State::Entry& entry : state.entries()) {
    const auto spec = std::ranges::find(requirements.state, entry.name, &StateSpec::name);
    if (grows_bound || spec == requirements.state.end() || !Grows(*spec)) continue;
    if (entry.owned.defined()) continue;
    if (lacks) FailFull(op, entry.name, room.needed, capacity);
    bound = true;
  }
  std::int64_t rows = capacity;
  if (lacks || (!bound && capacity < room.wanted)) {
    const std::int64_t window = requirements.recipe.weights.window;
    rows = std::max(room.wanted, window > 0 ? std::min(2 * capacity, 2 * window) : 2 * capacity);
  }
  if (!state.Get("state.length").defined()) state.Set("state.length", Lengths(dims, state));
  const DType dtype = ArithmeticType(inputs, state);
  for (const StateSpec& spec : requirements.state) {
    if (!Grows(spec)) continue;
    const TensorView held = state.Get(spec.name);
    if (held.defined() && rows == capacity) continue;
    state.Set(spec.name, WithRows(spec, requirements, dims, held, dtype, rows));
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
  const std::int64_t capacity = CapacityOf(final);
  const Room room(requirements, dims, inputs, initial, capacity);
  bool owned = true;
  for (const State::Entry& entry : final.entries()) {
    if (entry.owned.defined() || entry.name == "state.length") continue;
    if (capacity < room.needed) FailFull(op, entry.name, room.needed, capacity);
    owned = false;
  }
  const DType dtype = ArithmeticType(inputs, initial);
  const bool fits = capacity >= (owned ? room.wanted : room.needed) && capacity > 0;
  const std::int64_t rows = fits ? capacity : CapacityOf(initial);
  State result;
  if (rows == 0) return result;
  for (const StateSpec& spec : requirements.state) {
    const TensorView given = initial.Get(spec.name);
    const TensorView to = fits || spec.counts ? final.Get(spec.name) : TensorView();
    Tensor start = spec.counts ? Lengths(dims, initial)
                               : WithRows(spec, requirements, dims, given, dtype, rows);
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
  std::int64_t rows = -1;
  for (const State::Entry& entry : dstate.entries()) {
    const auto spec = std::ranges::find(requirements.state, entry.name, &StateSpec::name);
    if (spec == requirements.state.end() || !Grows(*spec)) continue;
    const std::int64_t given = entry.view.size(1);
    const PairRows lie{given, requirements.recipe.weights.window};
    const std::int64_t needed =
        Most(dims, inputs, initial,
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

}  // namespace ttr
