// The schemas of the operators. They are functional but those whose names end in `_`, which mutate
// the tensors marked (a!) and have no gradients.
#include <torch/csrc/stable/library.h>

#include <string>

#include "arguments.h"
#include "operators.h"

namespace ttr::pytorch {
namespace {

void Define(torch::stable::detail::StableLibrary& library) {
  const std::string inputs = InputArguments();
  const auto define = [&](const std::string& schema) { library.def(schema.c_str()); };
  define("forward(str recipe, Tensor[] initial, int entries, " + inputs +
         "bool save=False, bool bfloat16_products=False, str? engine=None) "
         "-> (Tensor, Tensor[], Tensor)");
  define(
      "backward(str recipe, Tensor[] initial, int entries, Tensor[] dstate, int dstate_entries, " +
      inputs + "Tensor? dy=None, Tensor? saved=None, int wanted=0) -> Tensor[]");
  define("step_(str recipe, Tensor(a!) memory, " + inputs.substr(0, inputs.size() - 2) +
         ") -> Tensor");
  define("step_state_(str recipe, Tensor(a!)[] state, " + inputs.substr(0, inputs.size() - 2) +
         ") -> Tensor");
  define(
      "decoder_start_(str recipe, Tensor(a!) memory, int[] dims, bool is_float64, "
      "Tensor[] state) -> ()");
  define(
      "decoder_state_(str recipe, Tensor(a!) memory, int[] dims, bool is_float64) -> Tensor[]");
  define("decoder_bytes(str recipe, int[] dims, bool is_float64) -> int");
  define("dims(str recipe, " + inputs.substr(0, inputs.size() - 2) + ") -> int[]");
  define("describe(str recipe) -> str");
  define("phi_dim(str recipe, int key_dim, int features) -> int");
  define("saved_bytes(str recipe, int[] dims, bool is_float64) -> int");
}

}  // namespace
}  // namespace ttr::pytorch

STABLE_TORCH_LIBRARY(ttr, library) { ttr::pytorch::Define(library); }

STABLE_TORCH_LIBRARY_IMPL(ttr, CPU, library) {
  using namespace ttr::pytorch;  // NOLINT: one table
  library.impl("forward", &Operator<Forward>);
  library.impl("backward", &Operator<Backward>);
  library.impl("step_", &Operator<Step>);
  library.impl("step_state_", &Operator<StepState>);
  library.impl("decoder_start_", &Operator<DecoderStart>);
  library.impl("decoder_state_", &Operator<DecoderState>);
  library.impl("dims", &Operator<DimsOf>);
}

STABLE_TORCH_LIBRARY_IMPL(ttr, CompositeExplicitAutograd, library) {
  using namespace ttr::pytorch;  // NOLINT: one table
  library.impl("describe", &Operator<Describe>);
  library.impl("decoder_bytes", &Operator<DecoderBytes>);
  library.impl("phi_dim", &Operator<PhiDimOf>);
  library.impl("saved_bytes", &Operator<SavedBytesOf>);
}
