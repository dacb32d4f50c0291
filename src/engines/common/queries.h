/// Queries over kept pairs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/closeness.h"
#include "src/engines/common/pairs.h"
#include "src/engines/common/row_views.h"
#include "src/engines/common/sequences.h"
#include "ttr/dtype.h"
#include "ttr/tensor.h"

namespace ttr::common {

/// What a query at place t adds to the logarithm of the weight of the pair at place s, E the
/// extent.
enum class BiasKind : std::uint8_t {
  kNone,
  kRows,      ///< a row of PairTensors::pair_bias
  kDistance,  ///< -|t - s| / E
  kPower,     ///< -exponent log(1 + |t - s| / E)
  kBlock,     ///< 0 where floor(t / E) is floor(s / E), else -inf
  kPrefix,    ///< 0 where s <= t or s < E, else -inf
};
struct BiasOptions {
  BiasKind kind = BiasKind::kNone;
  double extent = 1, exponent = 1;
};

/// How queries compare with keys, and when they read.
struct QueryOptions {
  Kernel kernel = Kernel::kExponential;
  double bandwidth = 1;
  double scale = 1;  ///< of k . q, under the exponential and the linear kernel
  BiasOptions bias;
  bool causal = true;
  bool read_before = false;
  bool normalise_qk = false;  ///< x / sqrt(|x|^2 + 1e-6) for q and k
};

/// What the scratch of a call depends on.
struct QuerySizes {
  std::int64_t key_dim = 1, value_dim = 1;
  std::int64_t heads = 1;    ///< memories of a sequence
  std::int64_t queries = 1;  ///< query heads that read one memory: max(1, Hq / H)
  std::int64_t sequences = 1;
  std::int64_t tokens = 0;        ///< of the longest sequence
  DType dtype = DType::kFloat32;  ///< of the arithmetic
  bool weighted = false;          ///< pairs have weights
};

/// The tensors of a call that reads kept pairs; views may be absent.
struct QueriedTensors : PairTensors {
  TensorView q;                              ///< [B, T, Hq, Dk]
  TensorView bandwidth;                      ///< [H]
  std::span<const std::int64_t> cu_seqlens;  ///< [N + 1]; empty: not packed (B sequences)
  TensorView y;                              ///< [B, T, max(H, Hq), Dv]
  TensorView status;                         ///< [B, T, max(H, Hq)], int8
  TensorView effective_pairs;                ///< [B, T, max(H, Hq)], float64, or absent
  DType arithmetic = DType::kFloat32;        ///< of all that is computed: float32 or float64

  Sequences sequences() const {
    const TensorView& timed = v.defined() ? v : q;
    return {cu_seqlens, cu_seqlens.empty() ? timed.size(0) : 1, timed.size(1)};
  }
  /// Memories of a sequence. `constant`: one that has an entry for each, if any.
  std::int64_t memory_heads(const TensorView& constant) const {
    if (state_k.defined()) return state_k.size(2);
    for (const TensorView* gate : {&log_decay, &importance, &log_importance}) {
      if (gate->defined()) return gate->size(2);
    }
    if (constant.defined()) return constant.size(0);
    return k.defined() ? std::max(k.size(2), v.size(2)) : q.size(2);
  }
  std::int64_t key_dim() const { return q.defined() ? q.size(3) : k.size(3); }
  std::int64_t value_dim() const {
    return v.defined() ? v.size(3) : state_v.defined() ? state_v.size(3) : y.size(3);
  }

  QuerySizes sizes(const Sequences& all, const Heads& heads) const {
    return {.key_dim = key_dim(),
            .value_dim = value_dim(),
            .heads = heads.memories,
            .queries = heads.queries,
            .sequences = all.count(),
            .tokens = all.longest(),
            .dtype = arithmetic,
            .weighted = weighted()};
  }
};

/// What queries of one memory add to the logarithms of weights.
struct QueryBias : BiasOptions {
  HeadRows rows{};
  std::int64_t first = 0;  ///< the place of the queries of token 0, among the pairs
  bool moves = true;       ///< each token's queries stand one further

  double PlaceOf(std::int64_t token) const {
    return static_cast<double>(first + (moves ? token : 0));
  }
  explicit operator bool() const { return kind != BiasKind::kNone; }
};

/// The pairs of one memory and the queries that read them: those of all tokens, a token's side by
/// side.
struct QueriedPairs : KeptPairs {
  HeadRows q{}, y{}, status{}, effective_pairs{};
  QueryBias bias{};
  double bandwidth = 1;
  std::int64_t rows = 0;     // queries of all tokens
  std::int64_t queries = 1;  // of a token
};

/// Memory `head` of sequence `n`; who asks adds its window and weights, where there are any.
inline QueriedPairs QueriedPairsOf(const QueryOptions& options, const QueriedTensors& tensors,
                                   const Heads& heads, const Sequence& sequence, std::int64_t n,
                                   std::int64_t head) {
  QueriedPairs m{KeptPairsOf(tensors, heads, sequence, n, head)};
  m.key_dim = tensors.key_dim();
  m.value_dim = tensors.value_dim();
  m.queries = heads.queries;
  m.bandwidth = tensors.bandwidth.defined() ? tensors.bandwidth.At({head}) : options.bandwidth;
  m.visible.causal = options.causal;
  m.visible.before = options.read_before;
  m.normalises = options.normalise_qk;
  if (!tensors.q.defined()) return m;
  m.q = HeadRowsOf(tensors.q, sequence, heads.QueryOf(head, tensors.q));
  // Where nothing is written the queries stand where the last pair stands.
  m.bias = {options.bias, HeadRowsOf(tensors.pair_bias, sequence, heads.QueryOf(head, tensors.q)),
            m.visible.tokens > 0 ? m.visible.held : m.visible.held - 1, m.visible.tokens > 0};
  m.y = HeadRowsOf(tensors.y, sequence, heads.OutputOf(head));
  m.status = HeadRowsOf(tensors.status, sequence, heads.OutputOf(head));
  m.effective_pairs = HeadRowsOf(tensors.effective_pairs, sequence, heads.OutputOf(head));
  m.rows = sequence.tokens * heads.queries;
  return m;
}

/// Bytes of the weights of one memory's pairs.
inline std::size_t BytesOfWeights(const QuerySizes& sizes) {
  return sizes.weighted ? ScratchBytesOf<PairWeights>(sizes.tokens) : 0;
}

/// Points a memory to its weights, where pairs have any and `at` is not null.
inline void PointToWeights(const QuerySizes& sizes, std::byte* at, KeptPairs& m) {
  if (!sizes.weighted || at == nullptr) return;
  ScratchLayout layout(at);
  m.weights = {sizes.tokens, layout};
}

/// The query head and the token of a row of queries or answers.
struct Place {
  std::int64_t query, token;

  static Place Of(const QueriedPairs& m, std::int64_t row) {
    const std::int64_t t = row / m.queries;
    return {row - t * m.queries, t};
  }
};

/// What the queries of a block see, counted from its first.
class QueryBlock {
 public:
  QueryBlock(const QueriedPairs& pairs, std::int64_t first) : m_(pairs), first_(first) {}

  std::int64_t TokenOf(std::int64_t query) const { return (first_ + query) / m_.queries; }
  Place PlaceOf(std::int64_t query) const { return Place::Of(m_, first_ + query); }

  /// The last token of the call that is written before token t is read.
  std::int64_t Written(std::int64_t t) const { return m_.visible.Written(t); }

  Range SeenByOne(std::int64_t query) const { return m_.SeenAt(TokenOf(query)); }

  /// By any of some queries: both ends rise with the token.
  Range SeenBy(std::int64_t begin, std::int64_t end) const {
    return {SeenByOne(begin).first, SeenByOne(end - 1).end};
  }

 private:
  const QueriedPairs& m_;
  std::int64_t first_;
};

}  // namespace ttr::common
