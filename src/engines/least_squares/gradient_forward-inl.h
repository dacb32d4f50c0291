// Forward through a sequence for what its gradient needs: x and z of every answer. Compiled once
// for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_FORWARD_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_FORWARD_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/careful.h"
#include "src/engines/least_squares/carried-inl.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/gradient_layout.h"
#include "src/engines/least_squares/gradient_norms-inl.h"
#include "src/engines/least_squares/gradient_sides-inl.h"
#include "src/engines/least_squares/prefixes-inl.h"
#include "src/engines/least_squares/systems-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/strided-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// x_t = (A_t + R)^-1 q_t and z_t = (A_t + R)^-1 B_t dy_t, in s.x and s.z by answered token; x in
/// the scale of its part, in which A is 1 / c as large.
template <class T>
class GradientForward {
 public:
  GradientForward(const Options& options, const GradientMemory& memory,
                  const GradientScratch<T>& scratch)
      : options_(options),
        gradients_(memory),
        memory_(memory.memory),
        s_(scratch),
        carried_(memory_, s_.chunk),
        sides_(options, memory, scratch, carried_),
        norms_(memory, scratch),
        prefixes_(options, memory_, s_.chunk, carried_, &ahead_) {}

  /// Leaves A and B of the end in the scratch. Returns the number of parts.
  std::int64_t Run() {
    carried_.Load();
    const std::int64_t tokens = memory_.tokens;
    const bool reads = options_.causal;
    if (reads && options_.read_before && tokens > 0) Read(0, 1);
    if (reads && options_.own_systems() && Systems<T>::Pays(tokens)) {
      RunBlocks();
    } else {
      for (std::int64_t t = 0; t < tokens;) t += Next(t, reads);
    }
    for (std::int64_t t = 0; t < tokens && !reads; t += s_.chunk.chunk) {
      Read(t, std::min(s_.chunk.chunk, tokens - t));
    }
    return parts_;
  }

 private:
  using Block = ln::Block<T>;

  Block solutions() const { return {s_.solutions, s_.chunk.k_stride}; }

  std::int64_t Next(std::int64_t t, bool reads) {
    const std::int64_t most = reads && options_.own_systems() ? 1 : s_.chunk.chunk;
    const Fetch fetch = reads && most > 1 ? Fetch::kLater : Fetch::kNow;
    Chunk chunk = GatherChunk(memory_, t, most, s_.chunk, fetch);
    carried_.Fade(chunk.decay);
    const std::int64_t begin = t + (options_.read_before ? 1 : 0);
    const auto answered = [&] {
      return reads ? std::min(begin + chunk.tokens, memory_.tokens) - begin : 0;
    };
    bool singular = false;
    if (answered() > 0 && options_.ridge == Ridge::kRelative) {
      return NextAlone(chunk, begin);
    }
    bool told = false;
    if (answered() > 0) {
      GatherQueries(options_, memory_, begin, answered(), s_.chunk, fetch);
      FetchAfter(begin + chunk.tokens);
      const std::int64_t right = prefixes_.Begin(chunk.tokens, answered() * memory_.queries, false);
      if (right > 0) {
        patience_ = 1;
        carried_.Shorten(chunk, right);
        told = SolveTogether({t, chunk.tokens, begin, answered(), chunk.decay, chunk.end, 0});
      } else {
        patience_ = std::min<std::int64_t>(2 * patience_, kUnit);
        carried_.Shorten(chunk, std::min(chunk.tokens, patience_));
        sides_.Gather(begin, answered(), chunk.tokens);
        singular = SolveCarefully(begin, answered(), chunk.tokens);
      }
    }
    Keep({t, chunk.tokens, begin, answered(), chunk.decay, chunk.end, singular ? 1 : 0, told});
    carried_.Write(chunk);
    return chunk.tokens;
  }

  /// The rows of a chunk from this token on are fetched while the one before is solved.
  void FetchAfter(std::int64_t t) {
    ahead_ = AheadOf(memory_, s_.chunk, t);
    for (std::int64_t r = 0; r < memory_.queries; ++r) {
      ahead_.Add(OfQuery(gradients_.dy, gradients_.dy_head_stride, r), t, 0, memory_.value_dim);
    }
    const Scratch<T>& s = s_.chunk;
    ahead_.Start(TilesOf<T>(3, s.keys_unit, s.chunk + s.columns + s.values_unit));
  }

  /// The answers of a part whose tokens share a factor. Are k . x and v . dy - k . z kept, too? Of
  /// tokens without weight they are not known.
  bool SolveTogether(const Part& part) {
    const std::int64_t queries = memory_.queries;
    const std::int64_t columns = RoundUp(part.reading * queries, kUnit);
    const std::int64_t unit = RoundUp(part.tokens, kUnit);
    const std::int64_t first = part.begin * queries;
    FindScales(memory_, part, s_);
    const bool told =
        std::none_of(s_.weight, s_.weight + part.tokens, [](double weight) { return weight == 0; });
    GatherAnswerGradients(gradients_, part.begin, part.reading, s_.chunk);
    const Block dyt{s_.dyt, s_.rows_stride};
    sn::TransposeStrided(s_.chunk.y, s_.chunk.y_stride, columns, s_.chunk.values_unit, dyt.data,
                         dyt.stride);
    prefixes_.Pairs(queries, dyt, [&](const Block& solved, const Block& products, bool is_x) {
      sn::TransposeStrided(solved.data, solved.stride, s_.chunk.keys_unit, columns,
                           (is_x ? s_.x : s_.z) + first * s_.chunk.k_stride, s_.chunk.k_stride);
      if (!told) return;
      for (std::int64_t i = 0; i < part.tokens; ++i) {
        const T root = static_cast<T>(std::sqrt(s_.weight[i]));
        sn::Multiply(products.Row(i), columns, 1 / root);
      }
      sn::TransposeStrided(products.data, products.stride, unit, columns,
                           (is_x ? s_.kx_rows : s_.rest_rows) + first * s_.tokens_stride,
                           s_.tokens_stride);
    });
    return told;
  }

  /// One token under a ridge that grows with what it writes.
  std::int64_t NextAlone(const Chunk& chunk, std::int64_t begin) {
    Part part{chunk.first, 1, begin, 1, chunk.decay, chunk.end, 0};
    norms_.Find(part);
    carried_.Write(chunk);
    part.pairs = SolveMemory(begin, 1) ? 1 : 0;
    s_.parts[parts_++] = part;
    return 1;
  }

  void Keep(const Part& part) {
    if (options_.ridge == Ridge::kRelative) norms_.Find(part);
    s_.parts[parts_++] = part;
  }

  /// Tokens that each have a system of their own, in blocks.
  void RunBlocks() {
    const std::int64_t most = Systems<T>::BlockTokens();
    for (std::int64_t t = 0; t < memory_.tokens; t += most) {
      const std::int64_t tokens = std::min(most, memory_.tokens - t);
      const std::int64_t first_part = parts_;
      CopyMemory(s_.chunk.a, s_.chunk.b, s_.a_before, s_.b_before);
      GatherBlock(t, tokens);
      Systems<T> systems(memory_.ridge, options_.ridge == Ridge::kRelative, memory_.key_dim,
                         s_.systems);
      systems.Solve({s_.a_before, s_.chunk.a_stride}, tokens, 2 * memory_.queries);
      if (std::find(s_.systems.regularised, s_.systems.regularised + tokens, true) ==
          s_.systems.regularised + tokens) {
        for (std::int64_t p = first_part; p < parts_; ++p) KeepOwn(s_.parts[p], t);
        continue;
      }
      // With second pairs of solutions, then, one by one.
      CopyMemory(s_.a_before, s_.b_before, s_.chunk.a, s_.chunk.b);
      carried_.BeginSums();
      parts_ = first_part;
      for (std::int64_t i = t; i < t + tokens;) i += Next(i, true);
    }
  }

  void CopyMemory(const T* from_a, const T* from_b, T* to_a, T* to_b) const {
    std::copy(from_a, from_a + s_.chunk.keys_unit * s_.chunk.a_stride, to_a);
    std::copy(from_b, from_b + s_.chunk.keys_unit * s_.chunk.b_stride, to_b);
  }

  /// Keys, decays and right-hand sides of a block, whose tokens are written chunk by chunk.
  void GatherBlock(std::int64_t t, std::int64_t tokens) {
    const SystemsScratch<T>& block = s_.systems;
    const std::int64_t sides = 2 * memory_.queries;
    std::fill(block.right, block.right + tokens * sides * block.stride, T(0));
    for (std::int64_t i = 0; i < tokens;) {
      const Chunk chunk =
          GatherChunk(memory_, t + i, std::min(s_.chunk.chunk, tokens - i), s_.chunk);
      carried_.Fade(chunk.decay);
      const std::int64_t begin = t + i + (options_.read_before ? 1 : 0);
      const std::int64_t answered = std::min(begin + chunk.tokens, memory_.tokens) - begin;
      if (answered > 0) sides_.Gather(begin, answered, chunk.tokens);
      double log_c = 0;
      for (std::int64_t j = 0; j < chunk.tokens; ++j) {
        const double log_decay = LogDecay(memory_, t + i + j);
        if (j > 0) log_c += log_decay;
        block.decay[i + j] = static_cast<T>(std::exp(log_decay));
        const double importance =
            memory_.importance ? sn::LoadOne<double>(memory_.importance, t + i + j) : 1;
        LoadScaled(memory_.k, t + i + j, memory_.key_dim, static_cast<T>(std::sqrt(importance)),
                   block.keys + (i + j) * block.stride, block.keys_unit);
        for (std::int64_t r = 0; r < sides && j < answered; ++r) {
          const T* const side = s_.chunk.q + (j * sides + r) * s_.chunk.k_stride;
          T* const to = block.right + ((i + j) * sides + r) * block.stride;
          std::copy(side, side + block.keys_unit, to);
          // u was found from B / c.
          if (r >= memory_.queries && log_c != 0) {
            sn::Multiply(to, block.keys_unit, static_cast<T>(std::exp(log_c)));
          }
        }
      }
      Keep({t + i, chunk.tokens, begin, answered, chunk.decay, chunk.end, 0});
      carried_.Write(chunk);
      i += chunk.tokens;
    }
  }

  /// The solutions of a part of the block that begins at token t, x times c.
  void KeepOwn(const Part& part, std::int64_t t) {
    const SystemsScratch<T>& block = s_.systems;
    const std::int64_t queries = memory_.queries;
    double log_c = 0;
    for (std::int64_t j = 0; j < part.reading; ++j) {
      if (j > 0) log_c += LogDecay(memory_, part.first + j);
      const T* const solved = block.right + (part.first + j - t) * 2 * queries * block.stride;
      for (std::int64_t r = 0; r < queries; ++r) {
        const T* const x = solved + r * block.stride;
        const T* const z = solved + (queries + r) * block.stride;
        const std::int64_t at = ((part.begin + j) * queries + r) * s_.chunk.k_stride;
        std::copy(x, x + block.keys_unit, s_.x + at);
        std::copy(z, z + block.keys_unit, s_.z + at);
        if (log_c != 0) sn::Multiply(s_.x + at, block.keys_unit, static_cast<T>(std::exp(log_c)));
      }
    }
  }

  /// Answers of the memory as it is.
  void Read(std::int64_t begin, std::int64_t reading) {
    const bool singular = SolveMemory(begin, reading);
    Keep({begin, 0, begin, reading, 1, 1, singular ? 1 : 0});
  }

  /// Is it singular?
  bool SolveMemory(std::int64_t begin, std::int64_t reading) {
    sides_.Gather(begin, reading, 0);
    const std::int64_t rows = reading * 2 * memory_.queries;
    if (!prefixes_.SolveColumns(rows)) return SolveCarefully(begin, reading, 0);
    const Block x = prefixes_.columns();
    sn::TransposeStrided(x.data, x.stride, s_.chunk.keys_unit, RoundUp(rows, kUnit),
                         solutions().data, solutions().stride);
    sides_.Keep(solutions(), begin, reading);
    return false;
  }

  /// One by one, in double, with the second pairs of singular systems. Were there any?
  bool SolveCarefully(std::int64_t begin, std::int64_t reading, std::int64_t tokens) {
    CarefulMemory<T> careful(memory_, options_, s_.chunk);
    const std::int64_t queries = memory_.queries;
    const std::int64_t stride = s_.chunk.k_stride;
    bool singular = false;
    for (std::int64_t t = 0; t < std::max(reading, tokens); ++t) {
      if (t < tokens) careful.Add(s_.chunk.k + t * stride, s_.chunk.v + t * s_.chunk.v_stride);
      for (std::int64_t r = 0; r < queries && t < reading; ++r) {
        const std::int64_t at = ((begin + t) * queries + r) * stride;
        for (T* const row : {s_.x + at, s_.z + at, s_.more_x + at, s_.more_z + at}) {
          std::fill(row, row + s_.chunk.keys_unit, T(0));
        }
        const T* const q = s_.chunk.q + (2 * t * queries + r) * stride;
        const T* const u = s_.chunk.q + ((2 * t + 1) * queries + r) * stride;
        singular |= careful.Solutions(q, u, s_.x + at, s_.z + at, s_.more_x + at, s_.more_z + at);
      }
    }
    return singular;
  }

  const Options& options_;
  const GradientMemory& gradients_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Carried<T> carried_;
  const GradientSides<T> sides_;
  const GradientNorms<T> norms_;
  Prefetcher ahead_{0};
  Prefixes<T> prefixes_;
  std::int64_t parts_ = 0;
  std::int64_t patience_ = 1;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_FORWARD_INL_H_
