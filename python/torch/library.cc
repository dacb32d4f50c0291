// The schemas of the operators. They are functional but those whose names end in `_`, which mutate
// the tensors marked (a!) and have no gradients.
#include <torch/csrc/stable/library.h>

#include <string>
#include <string_view>

#include "arguments.h"
#include "operators.h"

namespace ttr::pytorch {
namespace {

// Inputs and entries of a state are lists of what is given, beside a number whose bit i says that
// the i-th of input_names(), or of the recipe's state, is. {switches}: those of a call, by their
// names. `sizes`: the record of a memory (memory.h), a text.
constexpr const char* kSchemas[] = {
    "forward(str recipe, Tensor[] inputs, int given, Tensor[] initial, int entries, "
    "*, bool wants_final=True, bool saves=False, str? engine=None{switches}) "
    "-> (Tensor y, Tensor[] final, Tensor[] saved)",
    "backward(str recipe, Tensor[] inputs, int given, Tensor[] initial, int entries, Tensor? dy, "
    "Tensor[] dfinal, int dentries, Tensor[] saved, int wanted, *{switches}) -> Tensor[]",

    "step_(str recipe, Tensor(a!) memory, Tensor[] inputs, int given) -> Tensor",
    "step_state_(str recipe, Tensor(a!)[] state, Tensor[] inputs, int given) -> Tensor",
    "decoder_start_(str recipe, Tensor(a!) memory, str sizes, Tensor[] state) "
    "-> ()",
    "decoder_state_(str recipe, Tensor(a!) memory, str sizes) -> Tensor[]",
    "decoder_bytes(str recipe, str sizes) -> int",

    // A pool of slots, whose `sizes` are those of one stream. `memory` [slots, bytes of a slot].
    "pool_bytes(str recipe, str sizes, int slots) -> int",
    "pool_step_(str recipe, Tensor(a!) memory, str sizes, Tensor slots, Tensor[] "
    "inputs, int given) -> Tensor",
    "pool_start_(str recipe, Tensor(a!) memory, str sizes, int slot, Tensor[] "
    "state) "
    "-> ()",
    "pool_state_(str recipe, Tensor(a!) memory, str sizes, int slot) -> Tensor[]",
    "pool_pending(str recipe, Tensor memory, str sizes, int slot) -> int",
    "pool_roll_back_(str recipe, Tensor(a!) memory, str sizes, int slot, int "
    "tokens) "
    "-> ()",

    // What stands around a memory. `wanted` has a bit for each of the tensors of the operator that
    // is differentiated, in their order; gradients come for those that it names.
    "short_conv(Tensor x, Tensor weight, Tensor? bias, Tensor? state, Tensor? cu_seqlens, bool "
    "silu) "
    "-> (Tensor y, Tensor final)",
    "short_conv_backward(Tensor? dy, Tensor? dfinal, Tensor x, Tensor weight, Tensor? bias, "
    "Tensor? state, Tensor? cu_seqlens, bool silu, int wanted) -> Tensor[]",
    "short_conv_(Tensor(a!) state, Tensor x, Tensor weight, Tensor? bias, bool silu) -> Tensor",
    "norm(Tensor x, Tensor? weight, Tensor? bias, Tensor? gate, str kind, float eps, str "
    "gate_kind, "
    "bool gate_first) -> Tensor",
    "norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor? gate, str kind, "
    "float eps, str gate_kind, bool gate_first, int wanted) -> Tensor[]",
    "decay_gate(Tensor x, Tensor a, Tensor? bias) -> Tensor",
    "decay_gate_backward(Tensor dlog_decay, Tensor x, Tensor a, Tensor? bias, int wanted) "
    "-> Tensor[]",
    "step_gate(Tensor x, Tensor? bias, float low, float high) -> Tensor",
    "step_gate_backward(Tensor dstep, Tensor x, Tensor? bias, float low, float high, int wanted) "
    "-> Tensor[]",
    "skip_gate(Tensor y, Tensor? x, Tensor? d, Tensor? z) -> Tensor",
    "skip_gate_backward(Tensor dout, Tensor y, Tensor? x, Tensor? d, Tensor? z, int wanted) "
    "-> Tensor[]",

    "input_names() -> str",
    "size_names() -> str",
    "most_differences() -> int",
    "dims(str recipe, Tensor[] inputs, int given) -> str",
    "saved_bytes(str recipe, str sizes) -> int",
};

std::string WithSwitches(std::string schema) {
  constexpr std::string_view kPlace = "{switches}";
  const std::size_t at = schema.find(kPlace);
  return at == std::string::npos ? schema : schema.replace(at, kPlace.size(), SwitchKeywords());
}

}  // namespace
}  // namespace ttr::pytorch

STABLE_TORCH_LIBRARY(ttr, library) {
  using namespace ttr::pytorch;  // NOLINT: one table
  for (const char* const schema : kSchemas) library.def(WithSwitches(schema).c_str());
}

STABLE_TORCH_LIBRARY_IMPL(ttr, CPU, library) {
  using namespace ttr::pytorch;  // NOLINT: one table
  library.impl("forward", &Operator<Forward>);
  library.impl("backward", &Operator<Backward>);
  library.impl("step_", &Operator<Step>);
  library.impl("step_state_", &Operator<StepState>);
  library.impl("decoder_start_", &Operator<DecoderStart>);
  library.impl("decoder_state_", &Operator<DecoderState>);
  library.impl("pool_step_", &Operator<PoolStep>);
  library.impl("pool_start_", &Operator<PoolStart>);
  library.impl("pool_state_", &Operator<PoolState>);
  library.impl("pool_pending", &Operator<PoolPending>);
  library.impl("pool_roll_back_", &Operator<PoolRollBack>);
  library.impl("dims", &Operator<DimsOf>);

  library.impl("short_conv", &Operator<ShortConvForward>);
  library.impl("short_conv_backward", &Operator<ShortConvBackward>);
  library.impl("short_conv_", &Operator<ShortConvStep>);
  library.impl("norm", &Operator<NormForward>);
  library.impl("norm_backward", &Operator<NormBackward>);
  library.impl("decay_gate", &Operator<DecayGateForward>);
  library.impl("decay_gate_backward", &Operator<DecayGateBackward>);
  library.impl("step_gate", &Operator<StepGateForward>);
  library.impl("step_gate_backward", &Operator<StepGateBackward>);
  library.impl("skip_gate", &Operator<SkipGateForward>);
  library.impl("skip_gate_backward", &Operator<SkipGateBackward>);
}

STABLE_TORCH_LIBRARY_IMPL(ttr, CompositeExplicitAutograd, library) {
  using namespace ttr::pytorch;  // NOLINT: one table
  library.impl("input_names", &Operator<InputNames>);
  library.impl("size_names", &Operator<SizeNames>);
  library.impl("most_differences", &Operator<MostDifferences>);
  library.impl("decoder_bytes", &Operator<DecoderBytes>);
  library.impl("pool_bytes", &Operator<PoolBytes>);
  library.impl("saved_bytes", &Operator<SavedBytes>);
}
