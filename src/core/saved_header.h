/// What stands before memory that a forward pass saved for the backward pass, and tells it from any
/// other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ttr {

struct SavedHeader {
  std::uint64_t magic = 0x74747220'6b657074;
  std::int64_t numbers[7] = {};  // all that the meaning of what follows depends on

  static constexpr std::size_t Bytes() { return 64; }

  /// Where what was saved begins: at a multiple of 64, as the memory does.
  static std::byte* Behind(std::span<std::byte> saved) { return saved.data() + Bytes(); }

  void WriteTo(std::span<std::byte> saved) const { std::memcpy(saved.data(), this, Bytes()); }
  bool StandsIn(std::span<std::byte> saved) const {
    return std::memcmp(saved.data(), this, Bytes()) == 0;
  }
};
static_assert(sizeof(SavedHeader) == SavedHeader::Bytes());

}  // namespace ttr
