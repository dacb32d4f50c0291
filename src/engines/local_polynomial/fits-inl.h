// The fits of some queries: weights are summed and systems solved, each in one pass over the pairs.
// Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_FITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_FITS_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_FITS_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_FITS_INL_H_
#endif

#include <algorithm>
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

  const Weights<T>& weights() const { return weights_; }
  const Fit<T>& fit() const { return fit_; }

  /// numbers(first, count): those of a block of pairs, [pair][query], or null.
  template <class Numbers>
  void Run(const Numbers& numbers) {
    SumWeights();
    dual_ = TakesDual();
    if (dual_) return SolveByPairs(numbers);
    shared_ = IsLinear() && FindCentre();
    if (shared_) {
      fit_.Start({scratch_.centre, 0}, sides_);
      if (SolveBySteps()) return;
      Add(numbers);
      Solve();
      if (!AnyCancelled()) return;
      // Their means are too far apart.
      shared_ = false;
    }
    const Block<T>& centres = IsLinear() ? means_ : s_.q;
    fit_.Start(centres, sides_);
    IsSingle() ? AddSingle(centres.Row(0)) : Add(numbers);
    Solve();
  }

  /// e[pair][query], what values of a block of pairs count in the outputs; shares are there.
  void Weigh(std::int64_t first, std::int64_t count, const Block<T>& e) const {
    if (dual_) {
      by_pairs_.Weigh(first, count, e);
    } else if (shared_) {
      moments_.Load(s_.k, count);
      moments_.Weigh(s_.p, count, e);
    } else if (IsSingle()) {
      single_.Weigh(s_.k, s_.p, count, e);
    } else {
      fit_.Weigh(s_.k, s_.p, count, e);
    }
  }

  /// Is the system of query i singular, or nearly? Its u and s are 0 and wait for an ExactFit.
  bool NeedsExact(std::int64_t i) const { return exact_[i]; }
  /// Has it a solution of least norm, which is there?
  bool HasLeastNorm(std::int64_t i) const {
    return dual_ && task_.memory.ridge == 0 && !IsMean(i) && fit_.Regular(i);
  }

 private:
  bool IsLinear() const { return task_.options.degree == 1; }
  bool IsSingle() const { return task_.count == 1 && sides_ == 1; }
  std::int64_t Pairs() const { return weights_.seen().end - weights_.seen().first; }
  std::int64_t KeyWidth() const { return linalg::RoundUp(task_.memory.key_dim, kUnit); }

  /// Do all see clearly fewer pairs than there are monomials? Gradients of slopes of least norm
  /// need more than the dual has.
  bool TakesDual() const {
    const std::int64_t most = scratch_.dual.most * kDualShare / 16;
    if (task_.memory.ridge == 0 && sides_ > 1) return false;
    return *std::max_element(s_.near, s_.near + task_.count) <= most;
  }

  template <class Numbers>
  void SolveByPairs(const Numbers& numbers) {
    fit_.Start(IsLinear() ? means_ : s_.q, sides_);
    by_pairs_.Start();
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (weights_.Share(first, count)) by_pairs_.Gather(first, count, numbers(first, count));
    });
    for (std::int64_t part = 0; part < fit_.Parts(); ++part) {
      by_pairs_.Solve(part, sides_);
      SetAside(part);
    }
  }

  /// False where the direct road is shorter.
  bool SolveBySteps() {
    if (!steps_ || !by_steps_.IsWellConditioned(Pairs())) return false;
    by_steps_.Start();
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (!weights_.Share(first, count)) {
        linalg::ZeroRows(s_.p, 0, linalg::RoundUp(count, kUnit), kQueries);
      }
      moments_.Load(s_.k, count);
      by_steps_.Add(first - weights_.seen().first, s_.p, count);
    });
    if (!by_steps_.IsSound(task_.count)) return false;
    FillRightSides();
    if (!by_steps_.Solve([&](const auto& use) { ForKeys(use); })) return false;
    for (std::int64_t part = 0; part < fit_.Parts(); ++part) SetAside(part);
    return true;
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

  /// f_bar; of a query that is a mean, 0.
  void FillRightSides() const {
    const Block<T>&right = by_steps_.right(), &means = by_steps_.means();
    linalg::ZeroRows(right, 0, KeyWidth(), kQueries);
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (IsMean(i)) continue;
      for (std::int64_t c = 0; c < task_.memory.key_dim; ++c) {
        right.Row(c)[i] = means.Row(c)[i] + (scratch_.centre[c] - s_.q.Row(i)[c]);
      }
    }
  }

  template <class Numbers>
  void Add(const Numbers& numbers) const {
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (!weights_.Share(first, count)) return;
      const Block<T>* const a = numbers(first, count);
      if (shared_) {
        moments_.Load(s_.k, count);
        moments_.Add(s_.p, count, a);
      } else {
        fit_.Add(s_.k, s_.p, count, a);
      }
    });
  }

  void AddSingle(const T* centre) const {
    single_.Start(centre);
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      if (weights_.Share(first, count)) single_.Add(s_.k, s_.p, count);
    });
    single_.Finish();
  }

  /// The mean of the queries' means of keys. False where one query is alone, which has its own.
  bool FindCentre() const {
    std::fill(scratch_.centre, scratch_.centre + KeyWidth(), T(0));
    T count = 0;
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (weights_.Alone(i) || !cn::IsFinite(static_cast<const T*>(means_.Row(i)), KeyWidth())) {
        continue;
      }
      sn::AddScaled(KeyWidth(), T(1), static_cast<const T*>(means_.Row(i)), scratch_.centre);
      ++count;
    }
    if (count < 2) return false;
    sn::Multiply(scratch_.centre, KeyWidth(), 1 / count);
    return true;
  }

  /// Does a query want a centre of its own?
  bool AnyCancelled() const {
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (!IsMean(i) && fit_.Cancelled(i)) return true;
    }
    return false;
  }

  /// Parts without a query keep their zeros.
  void Solve() {
    for (std::int64_t part = 0; part * fit_.Lanes() < task_.count; ++part) Solve(part);
  }

  /// Maxima and sums of weights and, of degree 1, the means of keys.
  void SumWeights() {
    weights_.Start();
    // Two systems share a direct factor.
    steps_ = IsLinear() && sides_ == 1 && by_steps_.Takes(Pairs());
    if (steps_) by_steps_.StartKeys();
    linalg::ZeroRows(means_, 0, kQueries, KeyWidth());
    weights_.ForBlocks([&](std::int64_t first, std::int64_t count) {
      weights_.Sum(first, count, [&](std::int64_t i, T by) { Rescale(means_.Row(i), by); });
      if (!IsLinear()) return;
      if (steps_) by_steps_.AddKeys(s_.k, count);
      ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(s_.scores), s_.k,
                                   linalg::RoundUp(task_.count, kStrip),
                                   ln::Whole{KeyWidth(), count}, means_);
    });
    for (std::int64_t i = 0; i < task_.count; ++i) {
      Rescale(means_.Row(i), s_.sums[i] == 0 ? T(0) : 1 / s_.sums[i]);
    }
  }

  void Rescale(T* row, T by) const {
    if (by == 0) {
      std::fill(row, row + KeyWidth(), T(0));
    } else {
      sn::Multiply(row, KeyWidth(), by);
    }
  }

  /// A mean where there is nothing to solve: no neighbour, or a hit.
  bool IsMean(std::int64_t i) const {
    return i >= task_.count || weights_.Alone(i) || s_.hits[i] != 0;
  }

  void Solve(std::int64_t part) {
    fit_.Solve(part, s_.q, sides_);
    SetAside(part);
  }

  void SetAside(std::int64_t part) {
    for (std::int64_t lane = 0; lane < fit_.Lanes(); ++lane) {
      const std::int64_t i = part * fit_.Lanes() + lane;
      const bool mean = IsMean(i);
      exact_[i] = !mean && !fit_.Regular(i) && std::isfinite(s_.sums[i]);
      if (!mean && fit_.Regular(i)) continue;
      // What is solved elsewhere, or has no solution.
      for (std::int64_t r = 0; r < sides_; ++r) {
        T* const side = fit_.SideOf(i, r);
        for (std::int64_t j = 0; j < scratch_.wide; ++j) side[j * fit_.Lanes()] = 0;
      }
    }
  }

  const Task& task_;
  const WeightScratch<T>& s_;
  const FitScratch<T>& scratch_;
  const Block<T> means_;
  const std::int64_t sides_;
  const Weights<T> weights_;
  const Fit<T> fit_;
  const SharedMoments<T> moments_;
  const SingleFit<T> single_;
  const DualFit<T> by_pairs_;
  ConjugateGradients<T> by_steps_;
  bool steps_ = false;  // may conjugate gradients be tried?
  bool dual_ = false;
  bool shared_ = false;  // do all queries count keys from one centre?
  bool exact_[kQueries] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_FITS_INL_H_
