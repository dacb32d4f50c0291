#include "src/engines/least_squares/stretches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "src/parallel/workers.h"

namespace ttr::least_squares {
namespace {

/// A stretch shorter than this is not worth a thread.
constexpr std::int64_t kLeastTokens = 256;

/// Is this sequence cut? Of packed ones some may be too short: they are run whole.
bool IsCut(const Memory& memory) { return memory.tokens >= 2 * kLeastTokens; }

/// Numbers of Carried::Keep.
std::int64_t NumbersOfMemory(const Sizes& sizes) {
  const std::int64_t keys = RoundUp(sizes.key_dim, kUnit);
  return keys * (keys + 1) / 2 + keys * RoundUp(sizes.value_dim, kUnit);
}

/// What writing costs of answering, in flops.
double ShareOfWriting(const Options& options, const Sizes& sizes) {
  const auto d = static_cast<double>(sizes.key_dim);
  const auto dv = static_cast<double>(sizes.value_dim);
  const auto m = static_cast<double>(ChunkTokens(sizes.key_dim));
  const double answers = options.own_systems()
                             ? d * d * d / 3 + 5 * d * d + 6 * d * dv
                             : 4 * d * d + 6 * d * dv + 3 * m * (d + dv) + d * d * d / (3 * m);
  return (d * d + 2 * d * dv) / answers;
}

/// The tokens before stretch p of n: (1 - r^p) / (1 - r^n) of all, r = 1 - share, so that all
/// take the same time.
std::int64_t Before(std::int64_t p, std::int64_t n, std::int64_t tokens, double share) {
  const auto part = [&](std::int64_t i) { return 1 - std::pow(1 - share, i); };
  return p == n ? tokens : std::llround(static_cast<double>(tokens) * part(p) / part(n));
}

/// One stretch of one memory as it was run, and the memory before and after it.
struct Piece {
  double *start, *finish;
  std::int64_t began;
  Stretch done{};
};

bool Follows(const Piece& piece, const Piece& last, std::size_t bytes) {
  return piece.began == last.done.kept_at && last.done.patience == 1 &&
         std::memcmp(piece.start, last.finish, bytes) == 0;
}

void ClearStatus(const Memory& memory, const Stretch& stretch) {
  for (std::int64_t t = stretch.own_begin; t < std::min(stretch.own_end, memory.tokens); ++t) {
    for (std::int64_t r = 0; r < memory.queries; ++r) {
      memory.status.Set(t, r, 0);
    }
  }
}

template <class T>
void Store(const double* kept, const Memory& memory) {
  const std::int64_t keys = RoundUp(memory.key_dim, kUnit);
  const std::int64_t values = RoundUp(memory.value_dim, kUnit);
  T* const a = static_cast<T*>(memory.a);
  T* const b = static_cast<T*>(memory.b);
  for (std::int64_t i = 0; i < memory.key_dim; ++i) {
    for (std::int64_t j = i; j < memory.key_dim; ++j) {
      a[i * memory.a_stride + j] = a[j * memory.a_stride + i] = static_cast<T>(kept[j - i]);
    }
    kept += keys - i;
    for (std::int64_t j = 0; j < memory.value_dim; ++j) {
      b[i * memory.b_stride + j] = static_cast<T>(kept[j]);
    }
    kept += values;
  }
}

}  // namespace

std::int64_t StretchesOf(const Options& options, const Work& work, int threads) {
  const std::int64_t items = work.sequences * work.heads;
  if (options.iterates() || !options.causal || !work.call.v.defined() || work.sizes.queries == 0) {
    return 1;
  }
  return std::max<std::int64_t>(std::min(work.sizes.tokens / kLeastTokens, threads / items), 1);
}

std::size_t StretchBytes(const Sizes& sizes) {
  const auto numbers = static_cast<std::size_t>(2 * NumbersOfMemory(sizes));
  const std::size_t bytes = numbers * sizeof(double) + sizeof(Piece);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void RunStretches(const Options& options, const Work& work, std::int64_t stretches, int workers,
                  Executor& executor, std::byte* start, std::size_t bytes, RunMemory run) {
  const std::int64_t items = work.sequences * work.heads;
  const std::int64_t numbers = NumbersOfMemory(work.sizes);
  const double share = ShareOfWriting(options, work.sizes);
  std::byte* const rooms = start + static_cast<std::size_t>(workers) * bytes;
  const auto piece_of = [&](std::int64_t index) -> Piece& {
    return *reinterpret_cast<Piece*>(rooms +
                                     static_cast<std::size_t>(index) * StretchBytes(work.sizes));
  };
  const auto go = [&](Memory& memory, Stretch stretch, std::byte* scratch) {
    memory.stretch = &stretch;
    run(options, memory, work.sizes, scratch);
    return stretch;
  };
  RunOnWorkers(executor, workers, items * stretches, [&](std::int64_t index, int worker) {
    std::byte* const own = start + static_cast<std::size_t>(worker) * bytes;
    const std::int64_t p = index % stretches;
    Memory memory = work.MemoryOf(index / stretches);
    if (!IsCut(memory)) {
      if (p == 0) run(options, memory, work.sizes, own);
      return;
    }
    Piece& piece = *new (&piece_of(index)) Piece();
    piece.start = reinterpret_cast<double*>(&piece + 1);
    piece.finish = piece.start + numbers;
    const std::int64_t first = Before(p, stretches, memory.tokens, share);
    Stretch answers{.first = first,
                    .end = Before(p + 1, stretches, memory.tokens, share),
                    .finish = piece.finish};
    if (p > 0) {
      const Stretch written =
          go(memory, {.end = first, .answers = false, .finish = piece.start}, own);
      answers.begin = piece.began = written.kept_at;
      answers.start = piece.start;
    }
    piece.done = go(memory, answers, own);
  });
  for (std::int64_t item = 0; item < items; ++item) {
    Memory memory = work.MemoryOf(item);
    if (!IsCut(memory)) continue;
    for (std::int64_t p = 1; p < stretches; ++p) {
      const Piece& last = piece_of(item * stretches + p - 1);
      Piece& piece = piece_of(item * stretches + p);
      if (Follows(piece, last, static_cast<std::size_t>(numbers) * sizeof(double))) continue;
      ClearStatus(memory, piece.done);
      Stretch again = piece.done;
      again.begin = last.done.kept_at;
      again.start = last.finish;
      again.patience = last.done.patience;
      piece.done = go(memory, again, start);
    }
    const double* const end = piece_of((item + 1) * stretches - 1).finish;
    if (work.sizes.state == DType::kFloat64) {
      Store<double>(end, memory);
    } else {
      Store<float>(end, memory);
    }
  }
}

}  // namespace ttr::least_squares
