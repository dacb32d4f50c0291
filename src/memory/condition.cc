#include "src/memory/condition.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "src/recipe/family.h"
#include "ttr/memory.h"

namespace ttr {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEps = std::numeric_limits<double>::epsilon();
// Near the smallest normal number squares of keys have lost their digits: faded and gone.
constexpr double kGone = 1e-290;

struct Tridiagonal {
  std::vector<double> diagonal;  // [n]
  std::vector<double> beside;    // [n], the last one 0
};

// a <- D^-1/2 a D^-1/2; false where it has no such scaling.
bool ScaleDiagonal(std::span<double> a, std::size_t n) {
  std::vector<double> scale(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!(a[i * n + i] > kGone)) return false;
    scale[i] = 1 / std::sqrt(a[i * n + i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      a[i * n + j] *= scale[i];
      a[i * n + j] *= scale[j];
      if (!std::isfinite(a[i * n + j])) return false;
    }
  }
  return true;
}

// Column k below the diagonal is reflected onto its first entry, for k = 0, 1, ...:
//
//     a <- (I - b v v^T) a (I - b v v^T) = a - v w^T - w v^T,   w = b a v - (b/2) (b a v . v) v
Tridiagonal Reduce(std::span<double> a, std::size_t n) {
  Tridiagonal t{.diagonal = std::vector<double>(n), .beside = std::vector<double>(n)};
  std::vector<double> v(n);
  std::vector<double> w(n);
  for (std::size_t k = 0; k < n; ++k) {
    t.diagonal[k] = a[k * n + k];
    if (k + 1 == n) break;
    double squares = 0;
    for (std::size_t i = k + 1; i < n; ++i) {
      v[i] = a[i * n + k];
      squares += v[i] * v[i];
    }
    const double first = v[k + 1];
    const double length = std::sqrt(squares);
    t.beside[k] = first > 0 ? -length : length;
    if (length == 0) continue;
    v[k + 1] -= t.beside[k];                                    // signs differ: no digits are lost
    const double b = 1 / (squares + std::abs(first) * length);  // 2 / |v|^2
    double product = 0;
    for (std::size_t i = k + 1; i < n; ++i) {
      double sum = 0;
      for (std::size_t j = k + 1; j < n; ++j) sum += a[i * n + j] * v[j];
      w[i] = b * sum;
      product += w[i] * v[i];
    }
    for (std::size_t i = k + 1; i < n; ++i) w[i] -= b / 2 * product * v[i];
    for (std::size_t i = k + 1; i < n; ++i) {
      for (std::size_t j = k + 1; j < n; ++j) a[i * n + j] -= v[i] * w[j] + w[i] * v[j];
    }
  }
  return t;
}

// How many eigenvalues lie below x: the negative pivots of T - x I (Sylvester).
std::size_t CountBelow(const Tridiagonal& t, double x) {
  std::size_t count = 0;
  double pivot = 1;
  double beside = 0;
  for (std::size_t i = 0; i < t.diagonal.size(); ++i) {
    pivot = t.diagonal[i] - x - beside * beside / pivot;
    if (pivot == 0) pivot = -std::numeric_limits<double>::min();
    if (pivot < 0) ++count;
    beside = t.beside[i];
  }
  return count;
}

// The eigenvalue that `rank` others lie below.
double Eigenvalue(const Tridiagonal& t, std::size_t rank) {
  double bound = 0;  // Gershgorin's
  double before = 0;
  for (std::size_t i = 0; i < t.diagonal.size(); ++i) {
    bound = std::max(bound, std::abs(t.diagonal[i]) + before + std::abs(t.beside[i]));
    before = std::abs(t.beside[i]);
  }
  double low = -bound;
  double high = bound;
  for (int i = 0; i < 64; ++i) {
    const double middle = (low + high) / 2;
    (CountBelow(t, middle) > rank ? high : low) = middle;
  }
  return (low + high) / 2;
}

// The ridge of a row of A; `given` is the gate, [H] or [H, Dk], where it was set.
double RidgeAt(const Optimizer& optimizer, const TensorView& given, std::int64_t head,
               std::int64_t row) {
  if (!given.defined()) return optimizer.ridge;
  if (given.rank() == 1) return given.At({head});
  return row < given.size(1) ? given.At({head, row}) : optimizer.ridge;
}

/// The entry of a state that has A ("state.a"), or L and D with A = L^T D L ("state.r"); empty
/// where a memory has neither.
std::string_view GramEntry(const Recipe& recipe) {
  if (FamilyOf(recipe) != Family::kLeastSquares || !recipe.reading.causal) return {};
  return IsRotated(recipe) ? "state.r" : "state.a";
}

/// A of a memory, n rows of n.
std::vector<double> GramOf(const TensorView& entry, std::int64_t head, std::int64_t n,
                           bool rotated) {
  std::vector<double> a(static_cast<std::size_t>(n * n));
  const auto at = [&](std::int64_t i, std::int64_t j) { return entry.At({0, head, i, j}); };
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double& sum = a[static_cast<std::size_t>(i * n + j)];
      if (!rotated) {
        sum = at(i, j);
        continue;
      }
      for (std::int64_t r = std::max(i, j); r < n; ++r) {
        sum += at(r, r) * (r == i ? 1 : at(r, i)) * (r == j ? 1 : at(r, j));
      }
    }
  }
  return a;
}

double Norm(std::span<const double> a) {
  double norm = 0;
  for (const double x : a) norm = std::hypot(norm, x);
  return norm;
}

}  // namespace

double ScaledCondition(std::vector<double> a, std::int64_t n) {
  const auto size = static_cast<std::size_t>(n);
  if (!ScaleDiagonal(a, size)) return kInfinity;
  const Tridiagonal t = Reduce(a, size);
  const double low = Eigenvalue(t, 0);
  const double high = Eigenvalue(t, size - 1);
  if (!(low > 64 * static_cast<double>(n) * kEps * high)) return kInfinity;
  return std::max(1., high / low);
}

double AssociativeMemory::Condition() const {
  const std::string_view entry = GramEntry(recipe());
  if (entry.empty()) return 1;
  const Optimizer& optimizer = recipe().optimizer;
  const bool affine = recipe().function.kind == FunctionClass::kAffine;
  const bool relative = optimizer.ridge_kind == RidgeKind::kRelative;
  const auto set = gates_.find("ridge");
  const TensorView given = set == gates_.end() ? TensorView() : set->second.view();
  const TensorView statistics = state().Get(entry);
  // Before the first token A is its ridge, whatever the number of features.
  const std::int64_t n = statistics.defined() ? statistics.size(3) : sizes_.key_dim;
  const auto size = static_cast<std::size_t>(n);
  double worst = 1;
  for (std::int64_t head = 0; head < sizes_.heads; ++head) {
    std::vector<double> a(size * size);
    if (statistics.defined()) a = GramOf(statistics, head, n, IsRotated(recipe()));
    // A fading ridge is in the statistics from the first token on.
    const bool fades = optimizer.ridge_kind == RidgeKind::kFading && statistics.defined();
    if (!fades) {
      const double factor = relative ? Norm(a) : 1;
      for (std::int64_t i = 0; i < n; ++i) {
        const bool intercept = affine && i + 1 == n;  // no ridge on it
        const double ridge = intercept ? 0 : RidgeAt(optimizer, given, head, i);
        a[static_cast<std::size_t>(i * n + i)] += factor * ridge;
      }
    }
    worst = std::max(worst, ScaledCondition(std::move(a), n));
  }
  return worst;
}

}  // namespace ttr
