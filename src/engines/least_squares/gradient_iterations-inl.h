// Forward through a sequence for what its gradient needs, where systems are iterated. Compiled once
// for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_ITERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_ITERATIONS_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_ITERATIONS_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_ITERATIONS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/carried-inl.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/gradient_blocks-inl.h"
#include "src/engines/least_squares/gradient_layout.h"
#include "src/engines/least_squares/gradient_norms-inl.h"
#include "src/engines/least_squares/gradient_sides-inl.h"
#include "src/engines/least_squares/gradient_spectra-inl.h"
#include "src/engines/least_squares/iterations-inl.h"
#include "src/engines/least_squares/prefix_systems-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// What GradientForward does by factors. x and z take the same iteration, side by side.
template <class T>
class GradientIterations {
 public:
  GradientIterations(const Options& options, const GradientMemory& memory,
                     const GradientScratch<T>& scratch)
      : options_(options),
        memory_(memory.memory),
        s_(scratch),
        carried_(memory_, s_.chunk),
        sides_(options, memory, scratch, carried_),
        norms_(memory, scratch),
        blocks_(options, memory_, scratch),
        systems_(options, memory_, s_.chunk, s_.iteration, carried_),
        spectra_(options.iteration, memory_, systems_, scratch),
        iterations_(options.iteration, systems_, s_.chunk, s_.iteration) {}
  GradientIterations(const GradientIterations&) = delete;
  GradientIterations& operator=(const GradientIterations&) = delete;

  /// Leaves A and B of the end in the scratch. Returns the number of parts.
  std::int64_t Run() {
    carried_.Load();
    const std::int64_t tokens = memory_.tokens;
    if (options_.causal && options_.read_before && tokens > 0) ReadAll(0, 1);
    for (std::int64_t t = 0; t < tokens;) t += Next(t);
    if (!options_.causal) ReadAll(0, tokens);
    return parts_;
  }

 private:
  using Block = ln::Block<T>;

  /// Tokens from t on; how many.
  std::int64_t Next(std::int64_t t) {
    const Chunk chunk = GatherChunk(memory_, t, s_.chunk.chunk, s_.chunk);
    carried_.Fade(chunk.decay);
    const std::int64_t begin = t + (options_.read_before ? 1 : 0);
    const std::int64_t reading =
        options_.causal ? std::min(begin + chunk.tokens, memory_.tokens) - begin : 0;
    const Part part{t,
                    chunk.tokens,
                    begin,
                    reading,
                    chunk.decay,
                    chunk.end,
                    MorePairs(options_, memory_.key_dim)};
    if (reading > 0) {
      systems_.Prepare(&chunk);
      Solve(part);
    }
    Keep(part);
    carried_.Write(chunk);
    return chunk.tokens;
  }

  /// Answers of the memory as it is.
  void ReadAll(std::int64_t begin, std::int64_t reading) {
    systems_.Prepare(nullptr);
    for (std::int64_t t = begin; t < begin + reading; t += s_.chunk.chunk) {
      const Part part{t,
                      0,
                      t,
                      std::min(s_.chunk.chunk, begin + reading - t),
                      1,
                      1,
                      MorePairs(options_, memory_.key_dim)};
      Solve(part);
      Keep(part);
    }
  }

  void Keep(const Part& part) {
    if (options_.ridge == Ridge::kRelative) norms_.Find(part);
    s_.parts[parts_++] = part;
  }

  void Solve(const Part& part) {
    sides_.Gather(part.begin, part.reading, part.tokens);
    const std::int64_t queries = memory_.queries;
    const Block sides{s_.chunk.q, s_.chunk.k_stride};
    ScaleRows(part, sides.Rows(queries));  // u was found from B / c
    const Block solutions =
        iterations_.Solve(sides, 2 * part.reading * queries, 2 * queries, steps());
    if (options_.descends()) {
      for (std::int64_t j = 0; j < part.reading; ++j) KeepSteps(part, j, sides, solutions);
    }
    ScaleRows(part, solutions);
    sides_.Keep(solutions, part.begin, part.reading);
  }

  /// The first half of every token's rows times its c.
  void ScaleRows(const Part& part, const Block& rows) const {
    for (std::int64_t j = 0; j < part.reading && part.tokens > 0; ++j) {
      const T c = static_cast<T>(systems_.Fade(j));
      for (std::int64_t r = 0; r < memory_.queries && c != 1; ++r) {
        sn::Multiply(rows.Row(2 * j * memory_.queries + r), s_.chunk.keys_unit, c);
      }
    }
  }

  Block steps() const { return {s_.steps, s_.chunk.k_stride}; }

  /// The gradient of n steps of descent for the part's j-th answering token. With e_i = P r_i, the
  /// i-th step of x (from 1), and f_i that of z,
  ///
  ///     dL/dA = -eta sum_{0 < i < n} f_{n-i} x_i^T - eta sum_{0 < i <= n} D(f_{n+1-i} e_i^T)
  ///
  /// where D keeps the blocks whose inverses P is made of. That of a singular block moves within
  /// its range, too: + D((P z)(q - D(A) P q)^T), for all but q lies in the range of D(A). A P of
  /// low rank moves as GradientSpectra says.
  void KeepSteps(const Part& part, std::int64_t j, const Block& sides, const Block& solutions) {
    const std::int64_t n = options_.iteration.steps;
    const double eta = options_.iteration.eta;
    const double c = part.tokens > 0 ? systems_.Fade(j) : 1;
    const std::int64_t token = part.begin + j;
    const std::int64_t queries = memory_.queries;
    const std::int64_t rows = 2 * part.reading * queries;
    if (blocks_.any()) blocks_.Clear(token);
    for (std::int64_t r = 0; r < queries; ++r) {
      const std::int64_t q = 2 * j * queries + r;
      const std::int64_t u = q + queries;
      const auto e = [&](std::int64_t i) { return steps().Row((i - 1) * rows + q); };
      const auto f = [&](std::int64_t i) { return steps().Row((i - 1) * rows + u); };
      KeepPairs(token * queries + r, eta * c, e, f);
      if (LowRankPairs(options_, memory_.key_dim) > 0) {
        KeepSpectrum(j, token * queries + r, c, sides.Row(q), sides.Row(u));
        continue;  // f(A) (A, B) -> f(c A) (c A, c B): nothing is won by both together
      }
      if (!blocks_.any()) {
        double worth = Dot(solutions.Row(q), sides.Row(u));
        for (std::int64_t i = 1; i < n; ++i) {  // without P, A x_i = r_0 - r_i
          worth -= eta * (Dot(f(n - i), e(1)) - Dot(f(n - i), e(i + 1)));
        }
        s_.worth[token] += worth;
        continue;
      }
      for (std::int64_t i = 1; i <= n; ++i) blocks_.Subtract(token, eta * c, f(n + 1 - i), e(i));
      if (blocks_.channels() > 1 && n > 0) {
        const std::int64_t system = std::min(j, systems_.count() - 1);
        const T* const pz = systems_.Precondition(system, solutions.Row(u), s_.iteration.row);
        T* const rest = s_.g;
        MultiplyBlocks(system, part.tokens, c, e(1), rest);
        for (std::int64_t i = 0; i < memory_.key_dim; ++i) rest[i] = sides.Row(q)[i] - rest[i];
        blocks_.Subtract(token, -c, pz, rest);
      }
    }
  }

  /// The pairs f_{n-i} and factor x_i of an answer.
  template <class E, class F>
  void KeepPairs(std::int64_t answer, double factor, const E& e, const F& f) {
    const std::int64_t n = options_.iteration.steps;
    const std::int64_t unit = s_.chunk.keys_unit;
    if (SumsPairs()) {
      for (std::int64_t p = 0; p < memory_.key_dim; ++p) {
        std::fill(At(s_.more_x, p, answer), At(s_.more_x, p, answer) + unit, T(0));
        std::fill(At(s_.more_z, p, answer), At(s_.more_z, p, answer) + unit, T(0));
        At(s_.more_x, p, answer)[p] = T(1);
      }
    }
    T* HWY_RESTRICT const x = s_.g;  // times factor
    std::fill(x, x + unit, T(0));
    const T scale = static_cast<T>(factor * options_.iteration.eta);
    for (std::int64_t i = 1; i < n; ++i) {
      const T* HWY_RESTRICT const step = e(i);
      for (std::int64_t v = 0; v < unit; ++v) x[v] += scale * step[v];
      KeepPair(i - 1, answer, x, f(n - i));
    }
  }

  /// Would there be more pairs than dimensions? Then the columns of their sum are kept, each beside
  /// a unit vector.
  bool SumsPairs() const {
    const std::int64_t all = options_.iteration.steps - 1 + LowRankPairs(options_, memory_.key_dim);
    return all > memory_.key_dim;
  }

  void KeepPair(std::int64_t pair, std::int64_t answer, const T* x, const T* other) const {
    const std::int64_t unit = s_.chunk.keys_unit;
    if (!SumsPairs()) {
      std::copy(x, x + unit, At(s_.more_x, pair, answer));
      std::copy(other, other + unit, At(s_.more_z, pair, answer));
      return;
    }
    for (std::int64_t p = 0; p < memory_.key_dim; ++p) {
      T* HWY_RESTRICT const z = At(s_.more_z, p, answer);
      for (std::int64_t v = 0; v < unit; ++v) z[v] += x[p] * other[v];
    }
  }

  T* At(T* rows, std::int64_t pair, std::int64_t answer) const {
    return rows + (pair * memory_.tokens * memory_.queries + answer) * s_.chunk.k_stride;
  }

  /// The pairs of a low-rank P of the part's j-th answering token.
  void KeepSpectrum(std::int64_t j, std::int64_t answer, double c, const T* q, const T* u) {
    const std::int64_t unit = s_.chunk.keys_unit;
    T* const x = s_.g;
    T* const z = s_.iteration.row;
    std::fill(x, x + unit, T(0));
    std::fill(z, z + unit, T(0));
    std::int64_t pair = options_.iteration.steps - 1;
    const std::int64_t system = std::min(j, systems_.count() - 1);
    spectra_.ForPairs(system, q, u, x, z, [&](T* row, const T* other) {
      if (c != 1) sn::Multiply(row, unit, static_cast<T>(c));
      KeepPair(pair++, answer, row, other);
    });
  }

  /// ax = D(A) x of a system.
  void MultiplyBlocks(std::int64_t system, std::int64_t tokens, double c, const T* x, T* ax) const {
    const std::int64_t n = blocks_.channels();
    const double factor = static_cast<double>(systems_.Factor(system));
    double* const sums = s_.diagonal;
    for (std::int64_t begin = 0; begin < memory_.key_dim; begin += n) {
      const std::int64_t end = std::min(begin + n, memory_.key_dim);
      const auto dot = [&](const T* row) {
        double sum = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          sum += static_cast<double>(row[i]) * static_cast<double>(x[i]);
        }
        return sum;
      };
      for (std::int64_t i = begin; i < end; ++i) {
        sums[i] = dot(s_.iteration.stacked + i * s_.chunk.k_stride);
      }
      for (std::int64_t t = 0; t < std::min(system + 1, tokens); ++t) {
        const T* const key = carried_.keys().Row(t);
        const double product = dot(key);
        for (std::int64_t i = begin; i < end; ++i) sums[i] += static_cast<double>(key[i]) * product;
      }
      for (std::int64_t i = begin; i < end; ++i) {
        ax[i] = static_cast<T>(c * sums[i] + factor * memory_.ridge[i] * static_cast<double>(x[i]));
      }
    }
  }

  double Dot(const T* a, const T* b) const { return sn::WideDot(memory_.key_dim, a, b); }

  const Options& options_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Carried<T> carried_;
  const GradientSides<T> sides_;
  const GradientNorms<T> norms_;
  const GradientBlocks<T> blocks_;
  PrefixSystems<T> systems_;
  const GradientSpectra<T> spectra_;
  const Iterations<T> iterations_;
  std::int64_t parts_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_ITERATIONS_INL_H_
