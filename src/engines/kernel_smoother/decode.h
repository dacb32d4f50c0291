/// Single tokens: how the pairs of a state are cut into chunks, and what is known of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/kernel_smoother/task.h"

namespace ttr::kernel_smoother {

/// Chunks of a memory are tasks, as many for any number of threads: sums are taken chunk by chunk.
inline constexpr std::int64_t kChunks = 16;
inline constexpr std::int64_t kLeastChunk = 1024;

/// One query's sums over a chunk.
template <class T>
struct Partial {
  T *top, *sum;
  T* hit;  // 1 where a key at distance 0 has taken all weight
  T* y;
};

/// Queries and partial sums of one sequence, in memory that somebody else owns.
struct DecodeRoom {
  std::int64_t queries = 1, key_dim = 1, value_dim = 1;
  std::byte* memory = nullptr;

  std::int64_t query_stride() const { return linalg::RoundUp(key_dim, kUnit); }
  std::int64_t partial_stride() const { return linalg::RoundUp(value_dim, kUnit) + kUnit; }

  std::int64_t numbers() const { return queries * (query_stride() + kChunks * partial_stride()); }
  template <class T>
  T* Query(std::int64_t query) const {
    return reinterpret_cast<T*>(memory) + query * query_stride();
  }
  template <class T>
  Partial<T> At(std::int64_t chunk, std::int64_t query) const {
    T* const start = reinterpret_cast<T*>(memory) + queries * query_stride() +
                     (chunk * queries + query) * partial_stride();
    return {start, start + 1, start + 2, start + kUnit};
  }
};

/// A chunk of the pairs of all heads of a sequence, for one token.
struct ChunkTask {
  const Options& options;
  const Memory* memories;  // of the sequence's heads
  std::int64_t heads;
  DecodeRoom room;
  std::int64_t chunk, first, end;  // pairs of it
};

/// The queries of a sequence, as chunks want them; then its chunks; then its answers.
void PrepareQueries(const ChunkTask& task, DType dtype);
void AnswerChunk(const ChunkTask& task, DType dtype);
void MergeChunks(const ChunkTask& task, std::int64_t chunks, DType dtype);

/// Writes a single token's pair, and the weights of all.
void WritePair(const Memory& memory, DType dtype);

}  // namespace ttr::kernel_smoother
