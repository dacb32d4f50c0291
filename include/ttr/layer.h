/// A planned recipe, ready to run on tensors.
///
///     ttr::Layer layer(ttr::ParseRecipe("gated_deltanet"));
///     ttr::State state;                                    // empty: the recipe's start
///     layer.Forward({.q = q, .k = k, .v = v, .log_decay = g, .step = beta}, state, {.y = y});
///
/// Whole = split anywhere = token by token, to rounding: `state` carries everything. The same
/// input on the same machine gives the same bits, whatever the number of threads.
///
/// Cost: `ttr plan RECIPE`, EstimateCost(). Errors: ttr::Error before any work, see CheckInputs().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ttr/executor.h"
#include "ttr/inputs.h"
#include "ttr/plan.h"
#include "ttr/recipe.h"

namespace ttr {

/// What became of the regression of one token and head. NaN or infinity in the data is data.
enum class Status : std::int8_t {
  kSolved = 0,
  kRegularised = 1,   ///< singular: the smallest-norm solution
  kNotConverged = 2,  ///< an iteration stopped at its limit, or an early factor failed
  kSingular = 3,      ///< no neighbour has weight, or nothing can be solved: y = 0
};

/// Memory of the caller's that receives results.
struct Outputs {
  TensorView y{};       ///< [B, T, max(H, Hq), Dv], float32, float64 or bfloat16
  TensorView status{};  ///< optional: int8 [B, T, max(H, Hq)], a Status each
  /// optional: int64 [B, T, max(H, Hq)], the steps that each answer took; 0: it was not iterated
  TensorView iterations{};
  /// optional: float64 [B, T, max(H, Hq)], |q - (A + R) x| / |q| as the iteration left it, of the
  /// system that an answer solves; 0: it was not iterated. As much work as one step more.
  TensorView residual{};
};

/// Where and in what a call runs.
struct Run {
  Executor* executor = nullptr;    ///< null: DefaultExecutor()
  std::span<std::byte> scratch{};  ///< at least ScratchBytes(); empty: allocated by the call
  /// At least KeptBytes(), or empty. Forward leaves there what Backward of the same call would
  /// compute anew; Backward reads it, as often as is wanted. Its place, the engine's target and the
  /// inputs must be the same. Any number of threads, on either side.
  std::span<std::byte> saved{};
  /// Step may leave the tensors of the state behind, and go by what takes the least: for least
  /// squares a factor that stands for "state.a" and "state", half of what is read and written; for
  /// memories that erase as they write (the delta family) the tensors as the token before left them
  /// and its write, which the next token does while it reads: one pass over the state, not two.
  /// Layer::Settle writes them when they are wanted. Where Layer::Defers() says no, Step writes
  /// them as ever; Forward and Memorize settle a state that is behind, and what takes a const State
  /// is an Error then.
  bool defers = false;
  /// Forward and Memorize may round what they multiply with the memory to bfloat16, where q, k and
  /// v are that: keys and queries as the memory meets them, the memory as it is read, and what is
  /// written of values. Processors that have the instruction (AVX512-BF16) take two such products
  /// in place of one; their sums, the state and what tokens of a chunk are to each other stay
  /// float32. Answers are off by some 1e-3 of their root mean square, and change by as much with
  /// how a sequence is cut into calls. Where Layer::HasBFloat16Products() says no, of a few tokens
  /// and of calls that keep, products are of float32 as ever.
  bool bfloat16_products = false;
};

class Layer {
 public:
  /// Validates and plans. `engine` given: that engine or an Error.
  explicit Layer(const Recipe& recipe);
  Layer(const Recipe& recipe, Engine engine);

  const Recipe& recipe() const { return requirements_.recipe; }
  const Requirements& requirements() const { return requirements_; }
  const Plan& plan() const { return plan_; }

  /// The start of the recipe's memory, as tensors: what an empty State means. `dtype` is float64
  /// where v is float64, else float32.
  State InitialState(const Inputs& inputs) const;

  /// Memorizes every token and answers every query. `state` is read, and left as after the last
  /// token; entries that it lacks are made (owned), those it has are updated in place.
  void Forward(const Inputs& inputs, State& state, const Outputs& outputs,
               const Run& run = {}) const;

  /// One token (T = 1): Forward without what long sequences need. In place, O(state).
  void Step(const Inputs& inputs, State& state, const Outputs& outputs, const Run& run = {}) const;

  /// Are there products in bfloat16 (Run::bfloat16_products), for this recipe on this processor?
  bool HasBFloat16Products() const;

  /// Can Step leave a state behind (Run::defers)?
  bool Defers() const;

  /// Writes the tensors of a state that Step left behind; of any other nothing. O(H D^3) for least
  /// squares, so now and then; as much as a token for the delta family. They are those of Step
  /// without Run::defers, to rounding.
  static void Settle(State& state, const Run& run = {});

  /// Writes without reading (inputs without q), and reads without writing (inputs with q alone,
  /// and the constants of the recipe).
  void Memorize(const Inputs& inputs, State& state, const Run& run = {}) const;
  void Retrieve(const Inputs& inputs, const State& state, const Outputs& outputs,
                const Run& run = {}) const;

  /// Gradients of a scalar loss. Given are the inputs and the state of the forward call at its
  /// start, `dy` = gradient of y, `dstate` = gradient of the final state (empty: zero). Written are
  /// the views of `dinputs` that are defined, shaped as the inputs, and into `dinitial` the
  /// gradient of the initial state. An engine that has gradients takes its recurrence backwards;
  /// else through the definition: central differences in double precision, one pair of forward
  /// calls per number, for small inputs.
  void Backward(const Inputs& inputs, const State& initial, const TensorView& dy,
                const State& dstate, const Inputs& dinputs, State& dinitial,
                const Run& run = {}) const;

  /// Bytes of scratch that Backward takes; 0 where it takes none.
  std::size_t BackwardScratchBytes(const Dims& dims, int threads) const;

  /// Bytes that Forward can keep for Backward where the state is of this dtype; 0: nothing. Fast
  /// weights: a state each 64 tokens and, where something is erased, as many numbers as v has.
  /// Scans: a state each 32 tokens.
  std::size_t SavedBytes(const Dims& dims, DType state = DType::kFloat32) const;

  /// Bytes of scratch that Forward needs at these sizes with this many threads.
  std::size_t ScratchBytes(const Dims& dims, int threads) const;

 private:
  Requirements requirements_;
  Plan plan_;
};

}  // namespace ttr
