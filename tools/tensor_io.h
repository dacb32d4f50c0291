// Between safetensors files and the inputs, states and gradients of a layer.
#pragma once

#include <string>
#include <string_view>

#include "ttr/inputs.h"
#include "ttr/state.h"
#include "ttr/util/safetensors.h"

namespace ttr::tools {

// What an input file holds, as views into `file` (which outlives them).
struct LayerFile {
  Inputs inputs;
  State state;    // copies, of the dtype that states have beside these inputs
  TensorView dy;  // gradient of y
  State dstate;   // gradient of the final state
};

// Sorts the tensors of a file by their names. A name that is none is an Error that lists the names
// that `recipe` takes.
LayerFile SortTensors(const std::string& path, const TensorFile& file, const Recipe& recipe);

// The dtype of states beside these inputs: float64 where v (or q) is, else float32.
DType StateDType(const Inputs& inputs);

// Tokens begin .. begin + count of every per-token input; the constants as they are. Packed
// sequences are cut in place; `cu_seqlens` receives their new bounds.
Inputs SliceTokens(const Recipe& recipe, const Inputs& inputs, std::int64_t begin,
                   std::int64_t count, Tensor& cu_seqlens);

}  // namespace ttr::tools
