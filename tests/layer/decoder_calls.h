// What tests of decoders share: sizes of a call, and steps by its tokens.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "tests/support/calls.h"
#include "ttr/decoder.h"
#include "ttr/error.h"

namespace ttr::test {

inline Dims SomeDims() {
  Dims dims;
  dims.tokens = 60;
  dims.key_dim = 21;
  dims.value_dim = 37;
  dims.heads = dims.key_heads = dims.value_heads = 2;
  dims.query_heads = 4;
  return dims;
}

// What an act is refused with.
template <class Act>
std::string ErrorOf(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Room for the answers to one token.
inline Tensor Token(const Call& call) {
  return Tensor(call.inputs.v.dtype(), {1, 1, call.dims.output_heads(), call.dims.value_dim});
}

inline Tensor Step(const Call& call, std::int64_t token, Decoder& decoder,
                   const CallOptions& options = {}) {
  Tensor y = Token(call);
  decoder.Step(TokensOf(call, token, 1), {.y = y}, options);
  return y;
}

// Tokens begin .. begin + count of all rows; what is not written is NaN.
inline Tensor Step(const Call& call, std::int64_t begin, std::int64_t count, Decoder& decoder,
                   const CallOptions& options = {}) {
  const Shape all = OutputShape(call.dims);
  Tensor y(call.inputs.v.dtype(), {all[0], count, all[2], all[3]});
  Fill(y, std::numeric_limits<double>::quiet_NaN());
  decoder.Step(TokensOf(call, begin, count), {.y = y}, options);
  return y;
}

}  // namespace ttr::test
