/// Memory that a forward pass leaves for the backward pass of the same call: a header, which
/// differs from that of any other call, and behind it what the engine saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/adapters/engine.h"
#include "ttr/call.h"
#include "ttr/inputs.h"

namespace ttr {

/// All that the meaning of what was saved depends on, and the recipe besides.
struct SavedHeader {
  std::uint64_t magic = 0x74747220'6b657074;
  std::uint64_t recipe = 0, dims = 0, packing = 0, dtypes = 0, target = 0;
  std::uint64_t rest[2] = {};

  /// `dtype` is that of the arithmetic.
  SavedHeader(std::size_t recipe_hash, const Dims& of, const Inputs& inputs, DType dtype);
};
static_assert(sizeof(SavedHeader) == 64);  // what follows begins at a multiple of 64, as it does

/// Bytes of all; 0 where the engine saves nothing.
std::size_t SavedBytesOf(const Engine& engine, const Recipe& recipe, const Dims& dims, DType dtype);

/// The memory that a call is given, checked: empty where it is given none or has nothing to save.
std::span<std::byte> CheckSaved(std::string_view op, const CallOptions& options,
                                std::size_t needed);

/// The engine's part of the saved memory. Forward writes the header; Backward throws where another
/// one is there.
std::span<std::byte> WriteHeader(const SavedHeader& header, std::span<std::byte> saved);
std::span<std::byte> RequireHeader(std::string_view op, const SavedHeader& header,
                                   std::span<std::byte> saved);

}  // namespace ttr
