// The fits of some queries: weights are summed and systems solved, each in one pass over the pairs.
// Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_FITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_FITS_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_FITS_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_FITS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/local_polynomial/conjugate-inl.h"
#include "src/engines/local_polynomial/dual-inl.h"
#include "src/engines/local_polynomial/fit-inl.h"
#include "src/engines/local_polynomial/shared-inl.h"
#include "src/engines/local_polynomial/single-inl.h"
#include "src/engines/local_polynomial/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

/// Sixteenths of the monomials up to which pairs are few: measured at 64 and 128 channels.
inline constexpr std::int64_t kDualShare = 12;

template <class T>
class Fits {
 public:
  /// `means`: room for a row of keys of every query. `sides`: systems of a query, 1 or 2.
  Fits(const Task& task, const WeightScratch<T>& weights, const FitScratch<T>& fit,
       const Block<T>& means, std::int64_t sides)
      : task_(task),
        s_(weights),
        scratch_(fit),
        means_(means),
        sides_(sides),
        weights_(task, weights),
        fit_(task.monomials, task.memory.ridge, fit),
        moments_(task.memory.key_dim, fit),
        single_(task.monomials, fit),
        by_pairs_(task, weights, fit),
        by_steps_(task.memory.key_dim, task.memory.ridge, fit) {}

  Weights<T>& weights() { return weights_; }
  const Weights<T>& weights() const { return weights_; }
  const Fit<T>& fit() const { return fit_; }

  /// numbers(first, count): those of a block of pairs, [pair][query], or null. Which method a query
  /// takes depends on nothing that it does not see: so do the bits of its fit.
  template <class Numbers>
  void Run(const Numbers& numbers) {
    SumWeights();
    StartRoads();
    SolveByPairs(numbers);
    if (left_ > 0 && IsLinear() && task_.count > 1 && FindCentre()) {
      SolveBySteps();
      SolveShared(numbers);
    }
    if (left_ > 0) SolveOwn(numbers);
    Restore();
  }

  /// e[pair][query], what values of a block of pairs count in the outputs; shares are there.
  void Weigh(std::int64_t first, std::int64_t count, const Block<T>& e) const {
    bool empty = true;
    for (const FitMethod method : {FitMethod::kDual, FitMethod::kShared, FitMethod::kOwn}) {
      if (taken_[static_cast<std::size_t>(method)] == 0) continue;
      WeighBy(method, first, count, empty ? e : scratch_.by_other_method);
      if (!empty) TakeLanes(method, count, e);
      empty = false;
    }
  }

  /// Is the system of query i singular, or nearly? Its u and s are 0 and wait for an ExactFit.
  bool NeedsExact(std::int64_t i) const { return exact_[i]; }
  /// Is a solution of least norm there for query i?
  bool HasLeastNorm(std::int64_t i) const {
    return methods_[i] == FitMethod::kDual && task_.memory.ridge == 0 && !IsMean(i) &&
           fit_.Regular(i);
  }

 private:
  bool IsLinear() const { return task_.options.degree == 1; }
  bool IsSingle() const { return task_.count == 1 && sides_ == 1; }
  std::int64_t Pairs() const { return weights_.seen().end - weights_.seen().first; }
  std::int64_t KeyWidth() const { return linalg::RoundUp(task_.memory.key_dim, kUnit); }

  /// The number of pairs that a query sees, whatever they weigh.
  std::int64_t VisibleRange(std::int64_t i) const {
    const common::VisibleRange& visible = task_.memory.visible;
    const std::int64_t t = common::Place::Of(task_.memory, task_.first + i).token;
    return visible.End(t) - visible.First(t);
  }

  /// Queries that see clearly fewer pairs than there are monomials take the dual: together, where
  /// that is so because of where they stand, else each by itself. Gradients of slopes of least norm
  /// need more than it has.
  void StartRoads() {
    const std::int64_t most = scratch_.dual.most * kDualShare / 16;
    const bool may = task_.memory.ridge != 0 || sides_ == 1;
    const bool all = VisibleRange(task_.count - 1) <= most;
    methods_.fill(FitMethod::kNone);
    taken_.fill(0);
    left_ = task_.count;
    kept_ = 0;
    for (std::int64_t i = 0; may && i < task_.count; ++i) {
      if (s_.near[i] <= most && (all || VisibleRange(i) > most)) Take(i, FitMethod::kDual);
    }
  }

  void Take(std::int64_t i, FitMethod method) {
    methods_[i] = method;
    ++taken_[static_cast<std::size_t>(method)];
    --left_;
  }

  /// Ends a method: what has no solution there is set aside, and all is kept where others go on.
  void End(FitMethod method) {
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (methods_[i] != method || ended_[i]) continue;
      SetAside(i);
      ended_[i] = true;
      if (left_ == 0 && kept_ == 0) continue;
      CopyLane(i, true);
      ++kept_;
    }
  }

  /// Lanes without a query have nothing.
  void Restore() {
    for (std::int64_t i = 0; kept_ > 0 && i < task_.count; ++i) CopyLane(i, false);
    for (std::int64_t i = task_.count; i < kQueries; ++i) SetAside(i);
  }

  /// Copies the numbers found for query i to the kept ones, or back.
  void CopyLane(std::int64_t i, bool keep) const {
    const std::int64_t lanes = fit_.Lanes(), vector = i / lanes, lane = i % lanes;
    const FitScratch<T>& f = scratch_;
    const auto copy = [&](T* fit, T* kept, std::int64_t first, std::int64_t rows) {
      T *const to = keep ? kept : fit, *const from = keep ? fit : kept;
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t at = (first + r) * lanes + lane;
        to[at] = from[at];
      }
    };
    const std::int64_t channels = task_.memory.key_dim;
    copy(f.centres, f.kept.centres, vector * channels, channels);
    copy(f.means, f.kept.means, vector * f.wide, f.wide);
    for (std::int64_t r = 0; r < sides_; ++r) {
      copy(f.sides, f.kept.sides, (vector + r * fit_.Vectors()) * f.wide, f.wide);
    }
    copy(f.totals, f.kept.totals, vector, 1);
    copy(f.regular, f.kept.regular, vector, 1);
  }

  void WeighBy(FitMethod method, std::int64_t first, std::int64_t count, const Block<T>& e) const {
    if (method == FitMethod::kDual) {
      by_pairs_.Weigh(first, count, e);
    } else if (method == FitMethod::kShared) {
      moments_.Load(s_.k, count);
      moments_.Weigh(s_.p, count, e);
    } else if (IsSingle()) {
      single_.Weigh(s_.k, s_.p, count, e);
    } else {
      fit_.Weigh(s_.k, s_.p, count, e);
    }
  }

  void TakeLanes(FitMethod method, std::int64_t count, const Block<T>& e) const {
    for (std::int64_t j = 0; j < count; ++j) {
      for (std::int64_t i = 0; i < task_.count; ++i) {
        if (methods_[i] == method) e.Row(j)[i] = scratch_.by_other_method.Row(j)[i];
      }
    }
  }

  template <class Numbers>
  void SolveByPairs(const Numbers& numbers) {
    if (left_ == task_.count) return;
    fit_.Start(IsLinear() ? means_ : s_.q, sides_);
    by_pairs_.Start();
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (!weights_.Share(first, count)) return;
      by_pairs_.Gather(first, count, methods_, numbers(first, count));
    });
    for (std::int64_t vector = 0; vector < fit_.Vectors(); ++vector)
      by_pairs_.Solve(vector, sides_);
    End(FitMethod::kDual);
  }

  /// Solves by conjugate gradients, where elimination is not shorter.
  void SolveBySteps() {
    if (!steps_ || !by_steps_.IsWellConditioned(earlier_)) return;
    fit_.Start({scratch_.centred.centre, 0}, sides_);
    by_steps_.Start();
    far_.fill(false);
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (!weights_.Share(first, count)) {
        linalg::ZeroRows(s_.p, 0, linalg::RoundUp(count, kUnit), kQueries);
      }
      LoadShared(count);
      by_steps_.Add(first - weights_.seen().first, s_.p, count);
    });
    std::array<bool, kQueries> solves{};
    for (std::int64_t i = 0; i < task_.count; ++i) {
      solves[i] = methods_[i] == FitMethod::kNone && !far_[i] && by_steps_.IsSound(i);
    }
    FillRightSides();
    by_steps_.Solve([&](const auto& use) { ForKeys(use); }, solves);
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (solves[i]) Take(i, FitMethod::kShared);
    }
    End(FitMethod::kShared);
  }

  /// Fits queries from the centre of all; leaves those whose means are too far from it.
  template <class Numbers>
  void SolveShared(const Numbers& numbers) {
    if (left_ == 0) return;
    fit_.Start({scratch_.centred.centre, 0}, sides_);
    far_.fill(false);
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (!weights_.Share(first, count)) return;
      const Block<T>* const a = numbers(first, count);
      LoadShared(count);
      moments_.Add(s_.p, count, a);
    });
    Solve();
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (methods_[i] != FitMethod::kNone) continue;
      if (IsMean(i) || !(far_[i] || fit_.Cancelled(i))) Take(i, FitMethod::kShared);
    }
    End(FitMethod::kShared);
  }

  template <class Numbers>
  void SolveOwn(const Numbers& numbers) {
    const Block<T>& centres = IsLinear() ? means_ : s_.q;
    fit_.Start(centres, sides_);
    IsSingle() ? AddSingle(centres.Row(0)) : AddOwn(numbers);
    Solve();
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (methods_[i] == FitMethod::kNone) Take(i, FitMethod::kOwn);
    }
    End(FitMethod::kOwn);
  }

  /// Keys less the centre; notes which queries give a share to one that is too far from it.
  void LoadShared(std::int64_t count) {
    moments_.Load(s_.k, count, [&](std::int64_t j) {
      for (std::int64_t i = 0; i < task_.count; ++i) far_[i] = far_[i] || s_.p.Row(j)[i] != 0;
    });
  }

  /// use(at, count) of all blocks of pairs, their keys less the centre in the fit's scratch.
  template <class Use>
  void ForKeys(const Use& use) const {
    const Range& seen = weights_.seen();
    for (std::int64_t first = seen.first; first < seen.end; first += kPairs) {
      const std::int64_t count = std::min(kPairs, seen.end - first);
      weights_.LoadRows(first, count);
      moments_.Load(s_.k, count);
      use(first - seen.first, count);
    }
  }

  /// The right sides f_bar, or 0 for a query whose output is a mean.
  void FillRightSides() const {
    const Block<T>&right = by_steps_.right(), &means = by_steps_.means();
    linalg::ZeroRows(right, 0, KeyWidth(), kQueries);
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (IsMean(i)) continue;
      for (std::int64_t c = 0; c < task_.memory.key_dim; ++c) {
        right.Row(c)[i] = means.Row(c)[i] + (scratch_.centred.centre[c] - s_.q.Row(i)[c]);
      }
    }
  }

  template <class Numbers>
  void AddOwn(const Numbers& numbers) {
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (!weights_.Share(first, count)) return;
      const Block<T>* const a = numbers(first, count);
      fit_.Add(s_.k, s_.p, count, a);
    });
  }

  void AddSingle(const T* centre) {
    single_.Start(centre);
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (weights_.Share(first, count)) single_.Add(s_.k, s_.p, count);
    });
    single_.Finish();
  }

  /// The mean of keys of the first query that has one: all behind it see what it sees. False where
  /// there is none.
  bool FindCentre() const {
    for (std::int64_t i = 0; i < task_.count; ++i) {
      const T* const mean = means_.Row(i);
      if (weights_.Alone(i) || !cn::IsFinite(mean, KeyWidth())) continue;
      std::copy_n(mean, KeyWidth(), scratch_.centred.centre);
      return true;
    }
    return false;
  }

  /// Vectors without a query keep their zeros.
  void Solve() {
    for (std::int64_t vector = 0; vector * fit_.Lanes() < task_.count; ++vector) {
      fit_.Solve(vector, s_.q, sides_);
    }
  }

  /// Maxima and sums of weights and, of degree 1, the means of keys.
  void SumWeights() {
    weights_.Start();
    // Two systems share a direct factor.
    steps_ = IsLinear() && sides_ == 1 && by_steps_.Takes(Pairs());
    if (steps_) by_steps_.StartKeys();
    earlier_ = 0;
    linalg::ZeroRows(means_, 0, kQueries, KeyWidth());
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      weights_.Sum(first, count, [&](std::int64_t i, T by) { Rescale(means_.Row(i), by); });
      if (!IsLinear()) return;
      if (steps_) AddEarlier(first, count);
      ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(s_.scores), s_.k,
                                   linalg::RoundUp(task_.count, kStrip),
                                   ln::Whole{KeyWidth(), count}, means_);
    });
    for (std::int64_t i = 0; i < task_.count; ++i) {
      Rescale(means_.Row(i), s_.sums[i] == 0 ? T(0) : 1 / s_.sums[i]);
    }
  }

  /// Keys that all queries see.
  void AddEarlier(std::int64_t first, std::int64_t count) {
    const std::int64_t end = common::QueryBlock(task_.memory, task_.first).SeenByOne(0).end;
    const std::int64_t some = std::clamp<std::int64_t>(end - first, 0, count);
    by_steps_.AddKeys(s_.k, some);
    earlier_ += some;
  }

  void Rescale(T* row, T by) const {
    if (by == 0) {
      std::fill(row, row + KeyWidth(), T(0));
    } else {
      sn::Multiply(row, KeyWidth(), by);
    }
  }

  /// Is the output of query i a mean, with nothing to solve: no neighbour, or a hit?
  bool IsMean(std::int64_t i) const {
    return i >= task_.count || weights_.Alone(i) || s_.hits[i] != 0;
  }

  /// Sets a query aside that is solved elsewhere, or has no solution.
  void SetAside(std::int64_t i) {
    const bool mean = IsMean(i);
    exact_[i] = !mean && !fit_.Regular(i) && std::isfinite(s_.sums[i]);
    if (!mean && fit_.Regular(i)) return;
    for (std::int64_t r = 0; r < sides_; ++r) {
      T* const side = fit_.SideOf(i, r);
      for (std::int64_t j = 0; j < scratch_.wide; ++j) side[j * fit_.Lanes()] = 0;
    }
  }

  const Task& task_;
  const WeightScratch<T>& s_;
  const FitScratch<T>& scratch_;
  const Block<T> means_;
  const std::int64_t sides_;
  Weights<T> weights_;
  const Fit<T> fit_;
  const SharedMoments<T> moments_;
  const SingleFit<T> single_;
  const DualFit<T> by_pairs_;
  ConjugateGradients<T> by_steps_;
  bool steps_ = false;        // may conjugate gradients be tried?
  std::int64_t earlier_ = 0;  // pairs of a task whose keys decide whether they are worth trying
  FitMethods methods_{};
  std::array<std::int64_t, 4> taken_{};  // queries of each method
  std::int64_t left_ = 0, kept_ = 0;     // queries without a method yet, and those that are kept
  std::array<bool, kQueries> far_{}, ended_{}, exact_{};
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_FITS_INL_H_
