/// An engine as a layer sees it: what it takes, what that costs, how a call runs on it.
///
/// An adapter translates a recipe and its tensors into the options and operands of one engine and
/// overrides what the engine has; `Forward` and `Covers` are all that it must. registry.h lists the
/// engines. Everything that an adapter is handed has been checked: names, shapes, dtypes, strides,
/// overlap, ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/adapters/prepared.h"
#include "ttr/call.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

/// Where packed sequences begin and end; empty where they are not packed.
inline std::span<const std::int64_t> CuSeqlens(const Inputs& inputs, const Dims& dims) {
  if (!inputs.cu_seqlens.defined()) return {};
  return {inputs.cu_seqlens.as<std::int64_t>(), static_cast<std::size_t>(dims.sequences + 1)};
}

/// How a Decoder wants the writes of single tokens to wait beside the state.
struct Pendency {
  std::int64_t window = 0;  ///< tokens that wait at most, beside `draft`; 0: the engine's choice
  std::int64_t draft = 0;   ///< tokens that can be taken back at any time

  bool asked() const { return window > 0 || draft > 0; }
};

/// One call, checked.
struct EngineCall {
  const Requirements& requirements;
  const Dims& dims;
  const Inputs& inputs;
  Needs needs;
  DType dtype;               ///< of the arithmetic, and of what the state gets: ArithmeticType()
  const Prepared& prepared;  ///< the layer's constants
  Executor& executor;
  std::span<std::byte> scratch{};
  std::span<std::byte> saved{};
  bool bfloat16_products = false;
  /// What the engine keeps beside the state of a Decoder, AuxiliaryNumbers() of every memory; zeros
  /// at first. Undefined elsewhere.
  TensorView auxiliary{};
  const Pendency* pendency = nullptr;  ///< if given, `auxiliary` may be part of the memory
  /// Where sequence n has its state: in row slots[n] of the entries, and of `auxiliary`, whose
  /// views may be of fewer rows than there are. Empty: in row n. Only where TakesSlots().
  std::span<const std::int64_t> slots{};

  const Recipe& recipe() const { return requirements.recipe; }
};

/// What a backward pass is given and gives. Rows of dy are contiguous; entries of dstate and
/// dinitial are contiguous and have the shape and the dtype of those of the state.
struct BackwardTensors {
  const TensorView& dy;
  const State& dstate;    ///< entries may be missing: zero
  const Inputs& dinputs;  ///< views may be undefined: not wanted
  State& dinitial;        ///< complete, but for counts
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string_view name() const = 0;

  /// Does the engine cover recipes of this kind? The first in the registry that says so is taken.
  virtual bool Covers(const Recipe& recipe) const = 0;
  /// Why the engine does not take this recipe among those; null where it does.
  virtual const char* Obstacle(const Recipe&) const { return nullptr; }
  /// Why the engine does not take calls of these sizes, which the definition then runs; null where
  /// it does.
  virtual const char* SizeObstacle(const Recipe&, const Dims&) const { return nullptr; }
  /// How the engine runs the recipe, in one sentence.
  virtual std::string_view How(const Recipe&) const { return ""; }
  /// Useful floating-point operations a token and memory, the leading terms; a multiply-add is two.
  virtual double FlopsPerToken(const Recipe&, const Dims&) const { return 0; }
  /// Bytes that a call on so many pairs forms beside the state, where they may be more than a
  /// machine has; of a backward pass, or of any other.
  virtual double WorkBytes(const Recipe&, const Dims&, std::int64_t /*pairs*/,
                           bool /*backward*/) const {
    return 0;
  }
  /// Bytes of a number of the state, where the inputs do not ask for more.
  virtual double NumberBytes() const { return 4; }

  /// Runs a call. `state` gets the entries that it lacks. Writes the `outputs` that are defined;
  /// status, iterations and residual are zero before, and only other values are written.
  virtual void Forward(const EngineCall& call, State& state, const Outputs& outputs) const = 0;
  virtual std::size_t ScratchBytes(const Recipe&, const Dims&, int /*threads*/) const { return 0; }
  /// Does Forward write this output where it is asked for? The definition does.
  virtual bool HasReport(const ReportField& report) const {
    return report.view == &Outputs::status || report.view == &Outputs::iterations ||
           report.view == &Outputs::residual;
  }
  virtual bool HasBFloat16Products(const Recipe&) const { return false; }

  virtual bool HasGradients() const { return false; }
  /// `initial` may lack entries. Only where HasGradients().
  virtual void Backward(const EngineCall&, const State& /*initial*/, const BackwardTensors&) const {
  }
  virtual std::size_t BackwardScratchBytes(const Recipe&, const Dims&, int /*threads*/) const {
    return 0;
  }
  /// Bytes that Forward saves for Backward, where the arithmetic is of this dtype.
  virtual std::size_t SavedBytes(const Recipe&, const Dims&, DType) const { return 0; }

  /// Numbers of EngineCall::auxiliary a memory, for decoding where writes wait or (null) do not; 0:
  /// it keeps none.
  virtual std::int64_t AuxiliaryNumbers(const Recipe&, const Dims&, DType, const Pendency*) const {
    return 0;
  }
  /// Numbers of EngineCall::auxiliary a memory that keeps its pairs, in a state with room for
  /// `capacity` of them.
  virtual std::int64_t PairAuxiliaryNumbers(const Recipe&, const Dims&, DType,
                                            std::int64_t /*capacity*/) const {
    return 0;
  }
  /// Does Forward look at EngineCall::slots?
  virtual bool TakesSlots(const Recipe&) const { return false; }
  /// Can what tokens write wait, and is it faster where states are of this size?
  virtual bool Defers(const Recipe&, const Dims&, DType) const { return false; }
  /// Can the last tokens of those that wait be taken back?
  virtual bool RollsBack(const Recipe&) const { return false; }
  /// Writes into `state` what waits. Reads the state and `auxiliary` alone.
  virtual void Flush(const Recipe&, State& /*state*/, const TensorView& /*auxiliary*/,
                     const Pendency&, Executor&) const {}
  /// Tokens of all sequences that RollBack() can take back, and that; only where RollsBack().
  virtual std::int64_t PendingTokens(const Recipe&, State& /*state*/,
                                     const TensorView& /*auxiliary*/, const Pendency&) const {
    return 0;
  }
  virtual void RollBack(const Recipe&, State& /*state*/, const TensorView& /*auxiliary*/,
                        const Pendency&, std::int64_t /*tokens*/) const {}
};

/// What the numbers of an entry are where nothing has been memorized: zero, or the maximum of
/// nothing (minus infinity).
double StartOf(const StateSpec& spec);

/// Adds the entries that a state lacks, as they start. Not for entries that grow, nor for those
/// that begin with something else.
void AddMissing(const Recipe& recipe, std::span<const StateSpec> specs, const Dims& dims,
                DType dtype, State& state);

}  // namespace ttr
