/// Matrix tiles of x86-64 (AMX): eight registers of up to 16 rows of 64 bytes, and an instruction
/// that adds a product of two of them to a third: of 16 rows of 32 bfloat16, and 16 rows of 16
/// pairs, to 16 rows of 16 floats. Denormal numbers are zero to it.
///
/// Instructions by their names: compilers have them for targets of their own only.
#pragma once

#include <cstdint>

#if defined(__x86_64__)

namespace ttr::simd {

/// Rows of a tile, and numbers of 32 bits in a row.
inline constexpr std::int64_t kTileSide = 16;

/// The shape of each register, laid out as the instruction reads it.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};  // of register i; the last eight are none
  std::uint8_t rows[16] = {};
};

/// The registers have these shapes from now on, in this thread, and are zero.
inline void SetTileShapes(const TileShapes& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

/// The registers have no shapes from now on: the system need not save them.
inline void ReleaseTiles() { asm volatile("tilerelease" : : : "memory"); }

template <int TILE>
inline void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(TILE));
}

/// Rows `stride` bytes apart.
template <int TILE>
inline void LoadTile(const void* rows, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(TILE) : "memory");
}

template <int TILE>
inline void StoreTile(void* rows, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(stride), "i"(TILE) : "memory");
}

/// SUM += LEFT RIGHT: rows of bfloat16 by rows of pairs.
template <int SUM, int LEFT, int RIGHT>
inline void AddTileProducts() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUM), "i"(LEFT), "i"(RIGHT));
}

}  // namespace ttr::simd

#endif  // defined(__x86_64__)
