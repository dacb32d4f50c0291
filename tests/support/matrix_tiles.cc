#include "tests/support/matrix_tiles.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#if defined(__x86_64__) && defined(__linux__)
#include <ucontext.h>
#endif

namespace ttr::test {
namespace {

std::atomic<long> emulated{0};

#if defined(__x86_64__) && defined(__linux__)

// One thread's registers. LDTILECFG sets the shapes and zeros all; TILERELEASE leaves no shapes.
struct Tiles {
  static constexpr int kCount = 8, kMostRows = 16, kMostBytes = 64;

  bool shaped = false;
  int rows[kCount] = {}, row_bytes[kCount] = {};
  std::uint8_t data[kCount][kMostRows][kMostBytes] = {};

  template <class Number>
  Number Get(int tile, int row, int at) const {
    Number number;
    std::memcpy(&number, data[tile][row] + at * sizeof(Number), sizeof(Number));
    return number;
  }
  void Put(int tile, int row, int at, float number) {
    std::memcpy(data[tile][row] + at * sizeof(float), &number, sizeof(float));
  }
};

thread_local Tiles tiles;

// Denormal operands and results are zero.
float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.f, x) : x; }

// What hardware makes a fault of, tests make an end of the process of.
void Require(bool condition) {
  if (!condition) std::abort();
}

void Configure(const std::uint8_t* from) {
  tiles = Tiles();
  if (from[0] == 0) return;
  Require(from[0] == 1 && from[1] == 0);
  for (int i = 2; i < 16; ++i) Require(from[i] == 0);
  for (int i = 0; i < 16; ++i) {
    std::uint16_t bytes = 0;
    std::memcpy(&bytes, from + 16 + 2 * i, sizeof(bytes));
    const int rows = from[48 + i];
    if (i >= Tiles::kCount) {
      Require(bytes == 0 && rows == 0);
      continue;
    }
    Require(bytes <= Tiles::kMostBytes && rows <= Tiles::kMostRows);
    Require((bytes == 0) == (rows == 0));
    tiles.row_bytes[i] = bytes;
    tiles.rows[i] = rows;
  }
  tiles.shaped = true;
}

// `sum` += `left` `right`: both products of a pair have sums of their own, which are then added.
void AddProducts(int sum, int left, int right) {
  Require(sum != left && left != right && sum != right);
  Require(tiles.rows[sum] == tiles.rows[left] && tiles.row_bytes[sum] == tiles.row_bytes[right] &&
          tiles.row_bytes[left] == 4 * tiles.rows[right] && tiles.row_bytes[sum] % 4 == 0);
  const auto widen = [](std::uint16_t bits) {
    return Flushed(std::bit_cast<float>(std::uint32_t{bits} << 16));
  };
  for (int row = 0; row < tiles.rows[sum]; ++row) {
    for (int column = 0; column < tiles.row_bytes[sum] / 4; ++column) {
      float halves[2] = {};
      for (int pair = 0; pair < tiles.rows[right]; ++pair) {
        for (int half = 0; half < 2; ++half) {
          const float a = widen(tiles.Get<std::uint16_t>(left, row, 2 * pair + half));
          const float b = widen(tiles.Get<std::uint16_t>(right, pair, 2 * column + half));
          halves[half] = Flushed(std::fma(a, b, halves[half]));
        }
      }
      const float before = Flushed(tiles.Get<float>(sum, row, column));
      tiles.Put(sum, row, column, Flushed(before + Flushed(halves[0] + halves[1])));
    }
  }
  // Rows and columns beyond a shape are zero as it is, because nothing else writes them.
}

std::uint64_t Register(const ucontext_t& context, int number) {
  constexpr int kPlaces[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                             REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                             REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<std::uint64_t>(context.uc_mcontext.gregs[kPlaces[number]]);
}

// A VEX instruction of three bytes of prefix, an opcode, ModRM, and an address.
struct Instruction {
  int opcode, prefix;     // none, 66, F3, F2 as 0 to 3
  int destination, mask;  // of ModRM: reg; and of VEX: vvvv
  bool registers;         // rm is a register, number `source`
  int source;
  std::uint64_t base = 0, index = 0;  // the address, and what tiles add to it for every row
  int length;
};

std::optional<Instruction> Decode(const std::uint8_t* at, const ucontext_t& context) {
  // C4, map 0F38, W = 0 and 128 bits: none other is one of tiles.
  if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return std::nullopt;
  const bool extends_index = (at[1] & 0x40) == 0, extends_base = (at[1] & 0x20) == 0;
  const int mod = at[4] >> 6, rm = at[4] & 7;
  Instruction found{.opcode = at[3],
                    .prefix = at[2] & 3,
                    .destination = at[4] >> 3 & 7,
                    .mask = ~at[2] >> 3 & 15,
                    .registers = mod == 3,
                    .source = rm,
                    .length = 5};
  if (found.registers) return found;
  int base = rm;
  if (rm == 4) {
    const std::uint8_t sib = at[5];
    ++found.length;
    base = sib & 7;
    const int index = (sib >> 3 & 7) + (extends_index ? 8 : 0);
    if (index != 4) found.index = Register(context, index) << (sib >> 6);
  }
  if (base == 5 && mod == 0) return std::nullopt;  // relative to the instruction, or absolute
  std::int64_t offset = 0;
  if (mod == 1) {
    offset = static_cast<std::int8_t>(at[found.length]);
    found.length += 1;
  } else if (mod == 2) {
    std::int32_t wide = 0;
    std::memcpy(&wide, at + found.length, sizeof(wide));
    offset = wide;
    found.length += 4;
  }
  found.base =
      Register(context, base + (extends_base ? 8 : 0)) + static_cast<std::uint64_t>(offset);
  return found;
}

// Is it an instruction of tiles? Then it is done.
bool Emulate(const Instruction& at) {
  const int tile = at.destination;
  const auto row_at = [&](int row) {
    return reinterpret_cast<std::uint8_t*>(at.base + static_cast<std::uint64_t>(row) * at.index);
  };
  if (at.opcode == 0x49 && at.prefix == 0 && !at.registers) {
    Configure(reinterpret_cast<const std::uint8_t*>(at.base + at.index));
    return true;
  }
  if (at.opcode == 0x49 && at.prefix == 0) {
    tiles = Tiles();
    return true;
  }
  Require(tiles.shaped && tiles.rows[tile] > 0);
  const auto bytes = static_cast<std::size_t>(tiles.row_bytes[tile]);
  if (at.opcode == 0x49 && at.prefix == 3 && at.registers) {
    std::memset(tiles.data[tile], 0, sizeof(tiles.data[tile]));
  } else if (at.opcode == 0x4b && at.prefix == 3 && !at.registers) {
    for (int row = 0; row < tiles.rows[tile]; ++row) {
      std::memcpy(tiles.data[tile][row], row_at(row), bytes);
    }
  } else if (at.opcode == 0x4b && at.prefix == 2 && !at.registers) {
    for (int row = 0; row < tiles.rows[tile]; ++row) {
      std::memcpy(row_at(row), tiles.data[tile][row], bytes);
    }
  } else if (at.opcode == 0x5c && at.prefix == 2 && at.registers) {
    AddProducts(tile, at.source, at.mask);
  } else {
    return false;
  }
  return true;
}

void Handle(int, siginfo_t*, void* raw) {
  ucontext_t& context = *static_cast<ucontext_t*>(raw);
  greg_t& rip = context.uc_mcontext.gregs[REG_RIP];
  const std::optional<Instruction> found =
      Decode(reinterpret_cast<const std::uint8_t*>(rip), context);
  if (!found || !Emulate(*found)) {
    std::signal(SIGILL, SIG_DFL);  // meets the same instruction again
    return;
  }
  ++emulated;
  rip += found->length;
}

bool IsEmulated(simd::Bf16Products products) {
  return products == simd::Bf16Products::kTiles && !simd::TheBf16Processor().may_use_tiles;
}

struct sigaction before;

void Install() {
  struct sigaction action = {};
  action.sa_sigaction = &Handle;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &before);
}
void Uninstall() { sigaction(SIGILL, &before, nullptr); }

constexpr bool kEmulates = true;

#else

bool IsEmulated(simd::Bf16Products) { return false; }
void Install() {}
void Uninstall() {}
constexpr bool kEmulates = false;

#endif

}  // namespace

bool HasMatrixTiles() {
  const simd::Bf16Processor& processor = simd::TheBf16Processor();
  return processor.may_use_tiles || (kEmulates && processor.has_pairs);
}

WithBf16Products::WithBf16Products(simd::Bf16Products products) : products_(products) {
  if (IsEmulated(products_)) Install();
  simd::ForceBf16Products(&products_);
}

WithBf16Products::~WithBf16Products() {
  simd::ForceBf16Products(nullptr);
  if (IsEmulated(products_)) Uninstall();
}

long EmulatedTileInstructions() { return emulated; }

}  // namespace ttr::test
