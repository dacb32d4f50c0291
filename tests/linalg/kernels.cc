#include "tests/linalg/kernels.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "src/linalg/block_inverses.h"
#include "src/linalg/eigensystems.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/linalg/kernels.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "src/linalg/block_inverses-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/cholesky-inl.h"
#include "src/linalg/eigensystems-inl.h"
#include "src/linalg/interleaved-inl.h"
#include "src/linalg/interleaved_gram-inl.h"
#include "src/linalg/pivots-inl.h"
#include "src/linalg/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::test {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
using linalg::Block;
using linalg::Left;
using linalg::UpperFactor;

template <class T, class Extent>
void MultiplyPart(const Product& p, const Left<T>& left, const Block<T>& right, const Extent& part,
                  const Block<T>& to) {
  switch (p.into) {
    case 0: return ln::Multiply<ln::Into::kSet>(left, right, p.rows, part, to);
    case 1: return ln::Multiply<ln::Into::kAdd>(left, right, p.rows, part, to);
    default: return ln::Multiply<ln::Into::kSubtract>(left, right, p.rows, part, to);
  }
}

template <class T>
void Multiply(const Product& p, const Left<T>& left, const Block<T>& right, const Block<T>& to) {
  switch (p.part) {
    case Part::kWhole: return MultiplyPart(p, left, right, ln::Whole{p.columns, p.steps}, to);
    case Part::kUpperResult:
      return MultiplyPart(p, left, right, ln::UpperResult{p.columns, p.steps, p.per_step}, to);
    case Part::kLowerLeft:
      return MultiplyPart(p, left, right, ln::LowerLeft{p.columns, p.steps, p.per_step}, to);
    case Part::kUpperLeft:
      return MultiplyPart(p, left, right, ln::UpperLeft{p.columns, p.steps, p.per_step}, to);
    case Part::kUpperRight:
      return MultiplyPart(p, left, right, ln::UpperRight{p.columns, p.steps, p.per_step}, to);
  }
}

template <class T>
std::int64_t Factor(const UpperFactor<T>& f, std::int64_t n, std::int64_t dim, T* work) {
  ln::Pivots<T> pivots(f, dim, n, work);
  const auto goes_on = [&](std::int64_t i, T diagonal, T left) {
    return pivots(i, diagonal, left);
  };
  return ln::Factor(f, n, goes_on).index;
}

template <class T>
void SolveDown(const UpperFactor<T>& f, std::int64_t n, const Block<T>& x, std::int64_t columns) {
  ln::SubstituteDown(f, n, x, columns);
}
template <class T>
void SolveUp(const UpperFactor<T>& f, std::int64_t n, const Block<T>& x, std::int64_t columns) {
  ln::SubstituteUp(f, n, x, columns);
}

template <class T>
void SolveSystems(const SystemsSideBySide<T>& s) {
  const auto lanes = static_cast<std::size_t>(ln::SystemsAtOnce<T>());
  const std::int64_t panels = linalg::PanelsOf(s.size);
  const std::size_t matrix = static_cast<std::size_t>(linalg::VectorsBefore(panels)) * lanes;
  const std::size_t unit = static_cast<std::size_t>(panels * linalg::kPanelRows);
  const auto sides_count = static_cast<std::size_t>(s.sides);
  auto h = hwy::AllocateAligned<T>(matrix);
  auto l = hwy::AllocateAligned<T>(matrix);
  auto inverses = hwy::AllocateAligned<T>(unit * lanes);
  auto key = hwy::AllocateAligned<T>(unit * lanes);
  auto x = hwy::AllocateAligned<T>(sides_count * unit * lanes);
  auto lane_decay = hwy::AllocateAligned<T>(lanes);
  auto factor = hwy::AllocateAligned<T>(lanes);
  auto regular = hwy::AllocateAligned<T>(lanes);
  std::fill(h.get(), h.get() + matrix, T(0));
  std::fill(key.get(), key.get() + unit * lanes, T(0));
  std::fill(x.get(), x.get() + sides_count * unit * lanes, T(0));
  const ln::Panels<T> panels_h{h.get(), panels};
  const auto size = static_cast<std::size_t>(s.size);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        T* const square = panels_h.At(static_cast<std::int64_t>(i) / linalg::kPanelRows,
                                      static_cast<std::int64_t>(j) / linalg::kPanelRows);
        const std::size_t place =
            j % linalg::kPanelRows * linalg::kPanelRows + i % linalg::kPanelRows;
        square[place * lanes + lane] = s.h[(lane * size + i) * size + j];
        if (i / linalg::kPanelRows == j / linalg::kPanelRows) {
          const std::size_t mirrored =
              i % linalg::kPanelRows * linalg::kPanelRows + j % linalg::kPanelRows;
          square[mirrored * lanes + lane] = s.h[(lane * size + i) * size + j];
        }
      }
      key[i * lanes + lane] = s.key[lane * size + i];
      for (std::size_t r = 0; r < sides_count; ++r) {
        x[(r * unit + i) * lanes + lane] = s.b[(lane * sides_count + r) * size + i];
      }
    }
    lane_decay[lane] = s.decay[lane];
    factor[lane] = regular[lane] = T(1);
  }
  const ln::Gram<T> gram{panels_h, key.get(), lane_decay.get()};
  const ln::RidgedGram<T> source{gram, true, s.ridge, s.size, factor.get()};
  const ln::PivotLimits<T> limits{static_cast<T>(linalg::Rounding<T>(s.size)),
                                  static_cast<T>(linalg::kFaded<T>)};
  const ln::Panels<T> panels_l{l.get(), panels};
  const ln::RightSides<T> sides{x.get(), static_cast<std::int64_t>(unit), s.sides};
  ln::FactorInterleaved(source, limits, panels_l, inverses.get(), sides, regular.get());
  ln::SubstituteUpInterleaved(panels_l, inverses.get(), sides);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    s.regular[lane] = regular[lane];
    for (std::size_t r = 0; r < sides_count; ++r) {
      for (std::size_t i = 0; i < size; ++i) {
        s.b[(lane * sides_count + r) * size + i] = x[(r * unit + i) * lanes + lane];
      }
    }
  }
}

template <class T>
void InvertBlocks(std::int64_t size, std::int64_t block, const double* a, T* to) {
  std::vector<double> work(static_cast<std::size_t>(linalg::BlockInverseNumbers(block)));
  ln::BlockInverses<T>(size, block, work.data())
      .Invert([&](std::int64_t begin, std::int64_t i,
                  std::int64_t c) { return a[(begin + i) * size + begin + c]; },
              to);
}

template <class T>
std::int64_t SystemsAtOnce() {
  return ln::SystemsAtOnce<T>();
}

template <class T>
LinalgKernels<T> Kernels() {
  return {Multiply<T>,      Factor<T>,       SolveDown<T>,   SolveUp<T>,
          SystemsAtOnce<T>, SolveSystems<T>, InvertBlocks<T>};
}
LinalgKernels<float> FloatKernels() { return Kernels<float>(); }
LinalgKernels<double> DoubleKernels() { return Kernels<double>(); }

std::int64_t EigenTogether() { return ln::Eigensystems::Together(); }

void FindEigen(std::int64_t n, std::int64_t count, std::int64_t vectors, const double* a,
               double* values, double* to) {
  const auto unit = static_cast<std::size_t>(linalg::RoundUp(n, linalg::kUnit));
  const auto together = static_cast<std::size_t>(linalg::kEigensystemsTogether);
  auto numbers = hwy::AllocateAligned<double>(together * (unit * unit + 3 * unit + 1) + 3 * unit);
  std::vector<std::int64_t> order(unit);
  const auto rotations = static_cast<std::size_t>(linalg::MostRotations(n));
  std::vector<std::int32_t> rotated(rotations);
  auto all_rotations = hwy::AllocateAligned<linalg::Rotation>(rotations);
  linalg::EigenScratch s;
  s.a = numbers.get();
  s.diagonal = s.a + together * unit * unit;
  s.off_diagonal = s.diagonal + together * unit;
  s.tau = s.off_diagonal + together * unit;
  s.p = s.tau + together * unit;
  s.scale = s.p + 3 * unit;
  s.order = order.data();
  s.rotations = all_rotations.get();
  s.rotated = rotated.data();
  ln::Eigensystems eigensystems(n, vectors > 0, s);
  for (std::int64_t lane = 0; lane < count; ++lane) {
    eigensystems.Load(lane,
                      [&](std::int64_t i, std::int64_t j) { return a[(lane * n + i) * n + j]; });
  }
  eigensystems.Decompose(count);
  const std::int64_t stride = linalg::RoundUp(vectors, 8);
  for (std::int64_t lane = 0; lane < count; ++lane) {
    eigensystems.Leave(lane, values + lane * n, vectors, stride, to + lane * n * stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::test
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::test {

HWY_EXPORT(FloatKernels);
HWY_EXPORT(DoubleKernels);
HWY_EXPORT(EigenTogether);
HWY_EXPORT(FindEigen);

template <>
LinalgKernels<float> KernelsOfLinalg<float>() {
  return TTR_DISPATCH(FloatKernels)();
}
template <>
LinalgKernels<double> KernelsOfLinalg<double>() {
  return TTR_DISPATCH(DoubleKernels)();
}
std::int64_t EigensystemsAtOnce() { return TTR_DISPATCH(EigenTogether)(); }
void FindEigensystems(std::int64_t n, std::int64_t count, std::int64_t vectors, const double* a,
                      double* values, double* to) {
  TTR_DISPATCH(FindEigen)(n, count, vectors, a, values, to);
}

}  // namespace ttr::test
#endif  // HWY_ONCE
