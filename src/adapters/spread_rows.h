/// Tokens of several rows, for an engine that knows one row a token: the rows are its tokens, of
/// which one fades the memory and one reads it.
#pragma once

#include <cstdint>

#include "src/core/call_scratch.h"
#include "ttr/tensor.h"

namespace ttr {

/// Row `place` of every token, [B, T, ...], of rows [B, T steps, ...].
TensorView RowOfTokens(const TensorView& rows, std::int64_t steps, std::int64_t place);

/// A number or vector a token, [B, T, ...], as row `place` of its `steps` rows, the others zero;
/// the view itself where there is one row.
TensorView SpreadOverRows(const TensorView& tokens, std::int64_t steps, std::int64_t place,
                          CallScratch& scratch);

}  // namespace ttr
