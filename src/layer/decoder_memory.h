/// How the memory of a decoder is laid out: a header, the entries of the state, then what the
/// engine keeps beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/adapters/engine.h"
#include "ttr/decoder.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

/// Where the parts of a decoder's memory begin: at multiples of so many bytes.
inline constexpr std::size_t kDecoderUnit = 64;

constexpr std::size_t RoundToDecoderUnit(std::size_t bytes) {
  return (bytes + kDecoderUnit - 1) / kDecoderUnit * kDecoderUnit;
}

/// The header. All zeros: nothing has been memorized.
struct Decoder::Header {
  std::uint64_t fingerprint = 0;
  std::int64_t started = 0;  // are the entries of the state there?
  std::int64_t defers = 0;   // are the engine's numbers those of steps that defer?
  std::int64_t stale = 0;    // have they what the entries lack?
  std::int64_t numbers = 0;  // of them, a memory; 0: there are none
  bool operator==(const Header&) const = default;
};

inline DType DecoderTypeOf(const StateSpec& spec, DType dtype) {
  if (spec.counts()) return DType::kInt64;
  return spec.role == EntryRole::kWrittenMatrix ? dtype : WideOf(dtype);
}

/// Bytes of an entry.
inline std::size_t DecoderBytesOf(const StateSpec& spec, const Recipe& recipe, const Dims& dims,
                                  DType dtype) {
  const auto elements = static_cast<std::size_t>(StateShape(spec, recipe, dims).elements());
  return RoundToDecoderUnit(elements * SizeOf(DecoderTypeOf(spec, dtype)));
}

/// Errors: a layer that has no decoder; a draft that memory of the caller's cannot keep.
void CheckDecoder(const Layer& layer, std::int64_t draft, bool in_callers_memory);

/// How the writes of such a decoder wait.
Pendency PendencyOf(const DecoderOptions& options);

/// That so many bytes fit, from a multiple of 64 on.
void CheckDecoderMemory(std::string_view op, std::span<const std::byte> memory, std::size_t bytes);

}  // namespace ttr
