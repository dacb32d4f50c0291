/// What stands before memory that a forward pass kept for the backward pass, and tells it from any
/// other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ttr {

struct SavedHeader {
  static constexpr std::size_t kAlignment = 64;

  std::uint64_t magic = 0x74747220'6b657074;  // "ttr kept"
  std::int64_t numbers[7] = {};               // all that the meaning of what follows depends on

  /// Bytes of the note and of what lies before it. What was kept follows, aligned.
  static constexpr std::size_t Bytes() { return 2 * kAlignment; }

  /// Where the note of this memory stands.
  static std::byte* In(std::span<std::byte> kept) {
    const auto address = reinterpret_cast<std::uintptr_t>(kept.data());
    return kept.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
  /// Where what was kept begins.
  static std::byte* Behind(std::span<std::byte> kept) { return In(kept) + kAlignment; }

  void WriteTo(std::span<std::byte> kept) const { std::memcpy(In(kept), this, sizeof(*this)); }
  bool StandsIn(std::span<std::byte> kept) const {
    return std::memcmp(In(kept), this, sizeof(*this)) == 0;
  }
};
static_assert(sizeof(SavedHeader) == SavedHeader::kAlignment);

}  // namespace ttr
