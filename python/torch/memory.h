/// The record of a memory: what Python keeps of its sizes and of how it is kept, a text in JSON.
///
///     {"B": 1, "Hq": 4, "H": 4, "Dk": 64, "Dv": 64, ..., "float64": false, "draft": 4, "window":
///     0}
///
/// Sizes by the names of their axes (python/sizes.h); what is absent has the default of
/// DimsFrom() and of DecoderOptions.
#pragma once

#include <string>
#include <string_view>

#include "ttr/decoder.h"
#include "ttr/inputs.h"

namespace ttr::pytorch {

struct Memory {
  Dims dims;
  DecoderOptions options;
};

/// The sizes of a call, without how a memory is kept.
std::string RecordOf(const Dims& dims);
/// Error: no such text, sizes that no call can have.
Memory MemoryFrom(std::string_view op, const Recipe& recipe, const std::string& record);

}  // namespace ttr::pytorch
