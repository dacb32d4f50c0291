/// What stands before memory that a forward pass saved for the backward pass, and tells it from any
/// other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ttr {

struct SavedHeader {
  static constexpr std::size_t kAlignment = 64;

  std::uint64_t magic = 0x74747220'6b657074;
  std::int64_t numbers[7] = {};  // all that the meaning of what follows depends on

  /// Bytes of the header and of what aligns it. What was saved follows, aligned.
  static constexpr std::size_t Bytes() { return 2 * kAlignment; }

  /// Where the header of this memory stands.
  static std::byte* In(std::span<std::byte> saved) {
    const auto address = reinterpret_cast<std::uintptr_t>(saved.data());
    return saved.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
  /// Where what was saved begins.
  static std::byte* Behind(std::span<std::byte> saved) { return In(saved) + kAlignment; }

  void WriteTo(std::span<std::byte> saved) const { std::memcpy(In(saved), this, sizeof(*this)); }
  bool StandsIn(std::span<std::byte> saved) const {
    return std::memcmp(In(saved), this, sizeof(*this)) == 0;
  }
};
static_assert(sizeof(SavedHeader) == SavedHeader::kAlignment);

}  // namespace ttr
