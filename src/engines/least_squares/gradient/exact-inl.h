// Forward through a sequence for what its gradient needs, where systems are solved. Compiled once
// for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_EXACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_EXACT_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_EXACT_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_EXACT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/exact/interleaved_systems-inl.h"
#include "src/engines/least_squares/exact/minimum_norm_memory.h"
#include "src/engines/least_squares/exact/prefixes-inl.h"
#include "src/engines/least_squares/gradient/norm_slope-inl.h"
#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/gradient/sides-inl.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// x_t = (A_t + R)^-1 q_t and z_t = (A_t + R)^-1 B_t dy_t of every output; x in the scale of its
/// stretch, in which A is 1 / c as large.
template <class T>
class ExactSolutions {
 public:
  ExactSolutions(const Options& options, const GradientMemory& memory,
                 const GradientScratch<T>& scratch)
      : options_(options),
        m_(memory),
        memory_(memory.memory),
        s_(scratch),
        c_(scratch.chunk),
        to_(scratch.solutions),
        sums_(memory_, c_),
        sides_(options, memory, scratch),
        norm_slope_(memory, scratch),
        prefixes_(options, memory_, c_, sums_, &prefetcher_) {}
  ExactSolutions(const ExactSolutions&) = delete;
  ExactSolutions& operator=(const ExactSolutions&) = delete;

  /// Leaves A and B of the end in the scratch. Returns the number of stretches.
  std::int64_t Run() {
    sums_.Load();
    const std::int64_t tokens = memory_.tokens;
    const bool reads = options_.causal;
    if (reads && options_.read_before && tokens > 0) Read(0, 1);
    if (reads && options_.own_systems() && InterleavedSystems<T>::Pays(tokens)) {
      RunBlocks();
    } else {
      for (std::int64_t t = 0; t < tokens;) t += Next(t, reads);
    }
    for (std::int64_t t = 0; t < tokens && !reads; t += c_.chunk) {
      Read(t, std::min(c_.chunk, tokens - t));
    }
    return stretches_;
  }

 private:
  bool relative() const { return options_.ridge == Ridge::kRelative; }

  /// The stretch of a chunk, with the outputs that read it.
  Stretch StretchOf(const Chunk& chunk, bool reads) const {
    const std::int64_t begin = chunk.first + (options_.read_before ? 1 : 0);
    const std::int64_t reading = reads ? std::min(begin + chunk.tokens, memory_.tokens) - begin : 0;
    return {chunk.first, chunk.tokens, begin, reading, chunk.decay, chunk.end};
  }

  std::int64_t Next(std::int64_t t, bool reads) {
    const std::int64_t most = reads && options_.own_systems() ? 1 : c_.chunk;
    const Fetch fetch = reads && most > 1 ? Fetch::kLater : Fetch::kNow;
    Chunk chunk = GatherChunk(memory_, t, most, c_, fetch);
    if (most == 1) {  // the rows behind, which products of whole units take along
      linalg::ZeroRows(c_.k, 1, kUnit, c_.keys_unit);
      linalg::ZeroRows(c_.v, 1, kUnit, c_.values_unit);
    }
    sums_.Fade(chunk.decay);
    Stretch stretch = StretchOf(chunk, reads);
    if (stretch.reading > 0 && relative()) return NextAlone(chunk);
    if (stretch.reading > 0) stretch = SolveChunk(chunk, fetch);
    AddStretch(stretch);
    sums_.Write(chunk);
    return chunk.tokens;
  }

  /// Shortens a chunk to what can be solved together, or to a few tokens of a singular memory.
  Stretch SolveChunk(Chunk& chunk, Fetch fetch) {
    Stretch stretch = StretchOf(chunk, true);
    GatherQueries(options_, memory_, stretch.begin, stretch.reading, c_, fetch);
    prefetcher_ =
        PrefetchChunk(memory_, c_, stretch.begin + chunk.tokens, m_.dy, m_.dy_head_stride);
    const std::int64_t right =
        prefixes_.Begin(chunk.tokens, stretch.reading * memory_.queries, false);
    single_tokens_ = right > 0 ? 1 : std::min<std::int64_t>(2 * single_tokens_, kUnit);
    sums_.Shorten(chunk, right > 0 ? right : std::min(chunk.tokens, single_tokens_));
    stretch = StretchOf(chunk, true);
    if (right > 0) {
      stretch.has_products = SolveTogether(stretch);
    } else {
      sides_.Gather(stretch.begin, stretch.reading, chunk.tokens);
      stretch.pairs = SolveByMinimumNorm(stretch.begin, stretch.reading, chunk.tokens) ? 1 : 0;
    }
    return stretch;
  }

  /// Solves for the outputs of a stretch whose tokens share a factor. Returns whether k . x and v .
  /// dy
  /// - k . z are saved, too: they are unknown for tokens without weight.
  bool SolveTogether(const Stretch& stretch) {
    const std::int64_t queries = memory_.queries;
    const std::int64_t columns = RoundUp(stretch.reading * queries, kUnit);
    const std::int64_t unit = RoundUp(stretch.tokens, kUnit);
    const std::int64_t first = stretch.begin * queries;
    FindScales(memory_, stretch, s_);
    const bool saves = std::none_of(s_.weight, s_.weight + stretch.tokens,
                                    [](double weight) { return weight == 0; });
    GatherOutputGradients(m_, stretch.begin, stretch.reading, c_);
    ln::Transpose(c_.y, columns, c_.values_unit, s_.dyt);
    prefixes_.Pairs(s_.dyt, [&](const Block<T>& solved, const Block<T>& products, bool is_x) {
      ln::Transpose(solved, c_.keys_unit, columns, (is_x ? to_.x : to_.z).Rows(first));
      if (!saves) return;
      for (std::int64_t i = 0; i < stretch.tokens; ++i) {
        const T root = static_cast<T>(std::sqrt(s_.weight[i]));
        sn::Multiply(products.Row(i), columns, 1 / root);
      }
      ln::Transpose(products, unit, columns, (is_x ? to_.kx : to_.rest).Rows(first));
    });
    return saves;
  }

  /// One token under a ridge that grows with what it writes.
  std::int64_t NextAlone(const Chunk& chunk) {
    Stretch stretch = StretchOf(chunk, true);
    norm_slope_.Find(stretch);
    sums_.Write(chunk);
    stretch.pairs = SolveMemory(stretch.begin, 1) ? 1 : 0;
    to_.stretches[stretches_++] = stretch;
    return 1;
  }

  void AddStretch(const Stretch& stretch) {
    if (relative()) norm_slope_.Find(stretch);
    to_.stretches[stretches_++] = stretch;
  }

  /// Tokens that each have a system of their own, in blocks.
  void RunBlocks() {
    const std::int64_t most = InterleavedSystems<T>::BlockTokens();
    const ForwardScratch<T>& f = s_.forward;
    for (std::int64_t t = 0; t < memory_.tokens; t += most) {
      const std::int64_t tokens = std::min(most, memory_.tokens - t);
      const std::int64_t first_stretch = stretches_;
      linalg::CopyRows(c_.a, c_.keys_unit, c_.a.stride, f.a_before);
      linalg::CopyRows(c_.b, c_.keys_unit, c_.b.stride, f.b_before);
      GatherBlock(t, tokens);
      InterleavedSystems<T> systems(memory_.ridge, relative(), memory_.key_dim(), *s_.systems);
      systems.Solve(f.a_before, tokens, 2 * memory_.queries);
      const bool* const singular = s_.systems->regularised;
      if (std::find(singular, singular + tokens, true) == singular + tokens) {
        for (std::int64_t p = first_stretch; p < stretches_; ++p) StoreOwn(to_.stretches[p], t);
        continue;
      }
      // A singular system has second pairs of solutions: the block is taken once more, one by one.
      linalg::CopyRows(f.a_before, c_.keys_unit, c_.a.stride, c_.a);
      linalg::CopyRows(f.b_before, c_.keys_unit, c_.b.stride, c_.b);
      sums_.BeginSums();
      stretches_ = first_stretch;
      for (std::int64_t i = t; i < t + tokens;) i += Next(i, true);
    }
  }

  /// Keys, decays and right-hand sides of a block, whose tokens are written chunk by chunk.
  void GatherBlock(std::int64_t t, std::int64_t tokens) {
    const std::int64_t sides = 2 * memory_.queries;
    linalg::ZeroRows(s_.systems->right, 0, tokens * sides, s_.systems->right.stride);
    for (std::int64_t i = 0; i < tokens;) {
      const Chunk chunk = GatherChunk(memory_, t + i, std::min(c_.chunk, tokens - i), c_);
      sums_.Fade(chunk.decay);
      const Stretch stretch = StretchOf(chunk, true);
      if (stretch.reading > 0) sides_.Gather(stretch.begin, stretch.reading, chunk.tokens);
      GatherSystems(stretch, i);
      AddStretch(stretch);
      sums_.Write(chunk);
      i += chunk.tokens;
    }
  }

  /// Gathers the systems of a stretch, which begins with token `first` of the block.
  void GatherSystems(const Stretch& stretch, std::int64_t first) const {
    const InterleavedScratch<T>& block = *s_.systems;
    const std::int64_t sides = 2 * memory_.queries;
    double log_c = 0;
    for (std::int64_t j = 0; j < stretch.tokens; ++j) {
      const std::int64_t t = stretch.first + j;
      const double log_decay = LogDecay(memory_, t);
      if (j > 0) log_c += log_decay;
      block.decay[first + j] = static_cast<T>(std::exp(log_decay));
      LoadScaled(memory_.k, t, memory_.key_dim(),
                 static_cast<T>(std::sqrt(ImportanceOf(memory_, t))), block.keys.Row(first + j),
                 block.keys_unit);
      for (std::int64_t r = 0; r < sides && j < stretch.reading; ++r) {
        const T* const side = c_.q.Row(j * sides + r);
        T* const to = block.right.Row((first + j) * sides + r);
        std::copy(side, side + block.keys_unit, to);
        // u was found from B / c.
        if (r >= memory_.queries && log_c != 0) {
          sn::Multiply(to, block.keys_unit, static_cast<T>(std::exp(log_c)));
        }
      }
    }
  }

  /// The solutions of a stretch of the block that begins at token t, x times c.
  void StoreOwn(const Stretch& stretch, std::int64_t t) {
    sides_.Store(s_.systems->right.Rows((stretch.first - t) * 2 * memory_.queries), stretch.begin,
                 stretch.reading);
    double log_c = 0;
    for (std::int64_t j = 1; j < stretch.reading; ++j) {
      log_c += LogDecay(memory_, stretch.first + j);
      if (log_c == 0) continue;
      const T c = static_cast<T>(std::exp(log_c));
      for (std::int64_t r = 0; r < memory_.queries; ++r) {
        sn::Multiply(to_.x.Row((stretch.begin + j) * memory_.queries + r), c_.keys_unit, c);
      }
    }
  }

  /// Outputs of the memory as it is.
  void Read(std::int64_t begin, std::int64_t reading) {
    const bool singular = SolveMemory(begin, reading);
    AddStretch({begin, 0, begin, reading, 1, 1, singular ? 1 : 0});
  }

  /// Solves for outputs of the memory as it is. Returns whether its system is singular.
  bool SolveMemory(std::int64_t begin, std::int64_t reading) {
    sides_.Gather(begin, reading, 0);
    const std::int64_t rows = reading * 2 * memory_.queries;
    if (!prefixes_.SolveColumns(rows)) return SolveByMinimumNorm(begin, reading, 0);
    ln::Transpose(prefixes_.columns(), c_.keys_unit, RoundUp(rows, kUnit), s_.forward.solutions);
    sides_.Store(s_.forward.solutions, begin, reading);
    return false;
  }

  /// Solves one by one, in double, with the second pairs of singular systems. Returns whether there
  /// were any.
  bool SolveByMinimumNorm(std::int64_t begin, std::int64_t reading, std::int64_t tokens) {
    MinimumNormMemory<T> sums(memory_, options_, c_);
    const std::int64_t queries = memory_.queries;
    bool singular = false;
    for (std::int64_t t = 0; t < std::max(reading, tokens); ++t) {
      if (t < tokens) sums.Add(c_.k.Row(t), c_.v.Row(t));
      for (std::int64_t r = 0; r < queries && t < reading; ++r) {
        const std::int64_t output = (begin + t) * queries + r;
        T* const x = to_.x.Row(output);
        T* const z = to_.z.Row(output);
        T* const x2 = to_.more.X(0, output);
        T* const z2 = to_.more.Z(0, output);
        for (T* const row : {x, z, x2, z2}) std::fill(row, row + c_.keys_unit, T(0));
        singular |= sums.Solutions(c_.q.Row(2 * t * queries + r),
                                   c_.q.Row((2 * t + 1) * queries + r), x, z, x2, z2);
      }
    }
    return singular;
  }

  const Options& options_;
  const GradientMemory& m_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Scratch<T>& c_;
  const SolutionScratch<T>& to_;
  const RunningSums<T> sums_;
  const GradientSides<T> sides_;
  const NormSlope<T> norm_slope_;
  simd::Prefetcher prefetcher_{0};
  Prefixes<T> prefixes_;
  std::int64_t stretches_ = 0;
  std::int64_t single_tokens_ = 1;  // solved one by one before the rest is tried again
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_EXACT_INL_H_
