// The systems of a chunk's tokens with all that solvers ask of them. Compiled once for every
// target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_PREPARED_SYSTEMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_PREPARED_SYSTEMS_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_PREPARED_SYSTEMS_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_PREPARED_SYSTEMS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/block_preconditioner-inl.h"
#include "src/engines/least_squares/iterative/low_rank_preconditioner-inl.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/iterative/systems-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The systems, and P of each, or an interval that holds its eigenvalues. (A factor of the whole
/// chunk is no P of one system: chunk_factor-inl.h.)
template <class T>
class PreparedSystems {
 public:
  PreparedSystems(const Options& options, const Memory& memory, const Scratch<T>& s,
                  const IterationScratch<T>& it)
      : options_(options),
        memory_(memory),
        systems_(options, memory, s, it),
        spectra_(memory, systems_, it.p),
        blocks_(memory, systems_, s, it),
        low_rank_(options.iteration, memory, s, spectra_, it.p) {
    const double* const ridge = memory.ridge;
    least_ridge_ = *std::min_element(ridge, ridge + memory.key_dim());
    most_ridge_ = std::max(0.0, *std::max_element(ridge, ridge + memory.key_dim()));
  }
  PreparedSystems(const PreparedSystems&) = delete;
  PreparedSystems& operator=(const PreparedSystems&) = delete;

  /// The systems of a chunk, or (no chunk) of the memory as it is. False: A is not finite.
  bool Prepare(const Chunk* chunk) {
    if (!systems_.Prepare(chunk)) return false;
    if (preconditioner() == Preconditioner::kDiagonal) blocks_.PrepareDiagonals();
    if (preconditioner() == Preconditioner::kBlockDiagonal) blocks_.PrepareBlocks();
    if (options_.needs_spectra()) spectra_.Prepare();
    return true;
  }

  const PrefixSystems<T>& systems() const { return systems_; }
  const SystemSpectra<T>& spectra() const { return spectra_; }
  const BlockPreconditioner<T>& blocks() const { return blocks_; }
  const LowRankPreconditioner<T>& low_rank() const { return low_rank_; }

  /// P r, in `to`; r itself where there is no preconditioner.
  const T* Precondition(std::int64_t system, const T* r, T* to) const {
    switch (preconditioner()) {
      case Preconditioner::kNone: return r;
      case Preconditioner::kDiagonal:
      case Preconditioner::kChunkFactor: blocks_.ApplyDiagonal(system, r, to); break;
      case Preconditioner::kBlockDiagonal: blocks_.ApplyBlocks(system, r, to); break;
      case Preconditioner::kLowRank: low_rank_.Apply(system, r, to); break;
    }
    return to;
  }

  /// The size of a step of gradient descent; 0 where A is.
  double StepSize(std::int64_t system) const {
    if (!options_.iteration.relative) return options_.iteration.eta;
    const double bound = systems_.Norm(system) + RidgeBeside(system);
    return bound == 0 ? 0 : options_.iteration.eta / bound;
  }
  /// The largest ridge that is no part of A.
  double RidgeBeside(std::int64_t system) const {
    return options_.ridge == Ridge::kInState ? 0 : RidgeSize(system) * most_ridge_;
  }

  /// An interval that holds the eigenvalues: H_i, without its ridge, is positive semi-definite. A
  /// ridge that has faded cannot be separated from the data.
  double Low(std::int64_t system) const {
    if (options_.needs_spectra()) {
      return std::max(spectra_.Value(system, memory_.key_dim() - 1), 0.0);
    }
    return RidgeSize(system) * least_ridge_;
  }
  double High(std::int64_t system) const {
    if (options_.needs_spectra()) return systems_.Norm(system);
    return RidgeSize(system) * most_ridge_ + systems_.Norm(system);
  }

 private:
  Preconditioner preconditioner() const { return options_.iteration.preconditioner; }
  double RidgeSize(std::int64_t system) const {
    return options_.ridge == Ridge::kRelative ? systems_.Norm(system) : 1;
  }

  const Options& options_;
  const Memory& memory_;
  PrefixSystems<T> systems_;
  SystemSpectra<T> spectra_;
  const BlockPreconditioner<T> blocks_;
  const LowRankPreconditioner<T> low_rank_;
  double least_ridge_ = 0, most_ridge_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_PREPARED_SYSTEMS_INL_H_
