// A memory that keeps a dictionary: pair by pair, query by query. Compiled once for every target.

#if defined(TTR_KERNEL_DICTIONARY_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_DICTIONARY_MEMORY_INL_H_
#undef TTR_KERNEL_DICTIONARY_MEMORY_INL_H_
#else
#define TTR_KERNEL_DICTIONARY_MEMORY_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/common/queries-inl.h"
#include "src/engines/kernel_dictionary/task.h"
#include "src/linalg/rounding.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_dictionary {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace cn = ttr::common::HWY_NAMESPACE;
using common::Kernel;

/// Rows a and b turned into c a + s b and c b - s a.
HWY_INLINE void Rotate(std::int64_t count, double c, double s, double* a, double* b) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto cosine = hn::Set(d, c), sine = hn::Set(d, s);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, a + i), y = hn::LoadU(d, b + i);
    hn::StoreU(hn::MulAdd(cosine, x, hn::Mul(sine, y)), d, a + i);
    hn::StoreU(hn::NegMulAdd(sine, x, hn::Mul(cosine, y)), d, b + i);
  }
  for (; i < count; ++i) {
    const double x = a[i], y = b[i];
    a[i] = c * x + s * y;
    b[i] = c * y - s * x;
  }
}

template <Kernel KERNEL>
class Dictionary {
 public:
  Dictionary(const Options& options, const Memory& memory, const Scratch& scratch)
      : o_(options), m_(memory), s_(scratch) {}

  void Run() {
    Load();
    const std::int64_t tokens = m_.visible.tokens;
    const bool after = o_.causal && !o_.read_before;
    if (tokens == 0) Answer(0, m_.rows);
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (o_.causal && o_.read_before) AnswerToken(t);
      Write(t);
      if (after) AnswerToken(t);
    }
    if (!o_.causal) Answer(0, m_.rows);
    if (tokens > 0) Store();
  }

 private:
  static constexpr bool kByDistance = common::IsByDistance(KERNEL);

  double* RowOfR(std::int64_t i) const { return s_.r + i * s_.stride; }
  double* RowOfL(std::int64_t i) const { return s_.l + i * s_.stride; }
  double* RowOfE(std::int64_t i) const { return s_.e + i * m_.value_dim; }
  double* KeyAt(std::int64_t i) const { return s_.keys + i * m_.key_dim; }

  void Load() {
    if (m_.count == nullptr) return;
    size_ = held_ = *m_.count;
    for (std::int64_t i = 0; i < size_; ++i) {
      sn::LoadRow(m_.e, i, 0, m_.value_dim, RowOfE(i));
      sn::LoadRow(m_.r, i, i, size_ - i, RowOfR(i) + i);
      sn::LoadRow(m_.l, i, 0, i + 1, RowOfL(i));
      sn::LoadRow(m_.keys, i, 0, m_.key_dim, KeyAt(i));
      const bool plain = !(RowOfL(i)[i] < 0);
      s_.units[i] = plain ? 1 : std::sqrt(Self(KeyAt(i)));
      if (plain) continue;
      sn::Multiply(RowOfL(i), i + 1, -s_.units[i]);
      for (std::int64_t j = 0; j <= i; ++j) RowOfR(j)[i] *= s_.units[i];
    }
  }

  void Store() const {
    if (m_.count == nullptr) return;
    *m_.count = size_;
    for (std::int64_t i = held_; i < size_; ++i) StoreKey(i);
    for (std::int64_t i = 0; i < size_; ++i) {
      if (s_.units[i] != 1) {
        for (std::int64_t j = 0; j <= i; ++j) RowOfR(j)[i] /= s_.units[i];
      }
    }
    for (std::int64_t i = 0; i < size_; ++i) {
      sn::StoreRow(RowOfE(i), i, 0, m_.value_dim, m_.e);
      sn::StoreRow(RowOfR(i) + i, i, i, size_ - i, m_.r);
    }
  }

  /// Stores a key that has joined, and its row of L.
  void StoreKey(std::int64_t i) const {
    sn::StoreRow(KeyAt(i), i, 0, m_.key_dim, m_.keys);
    if (s_.units[i] != 1) {
      sn::LoadRow(m_.keys, i, 0, m_.key_dim, s_.k);  // as it will be read
      s_.units[i] = std::sqrt(Self(s_.k));
      sn::Multiply(RowOfL(i), i + 1, -1 / s_.units[i]);
    }
    sn::StoreRow(RowOfL(i), i, 0, i + 1, m_.l);
  }

  /// k(D, x) in z.
  void Kernels(const double* x) const {
    if constexpr (kByDistance) {
      const auto square = [](auto, auto sum, auto a, auto b) HWY_ATTR {
        const auto difference = hn::Sub(a, b);
        return hn::MulAdd(difference, difference, sum);
      };
      for (std::int64_t i = 0; i < size_; ++i) {
        s_.z[i] = sn::SumRows(m_.key_dim, square, s_.keys + i * m_.key_dim, x);
      }
    } else {
      const double* const none = nullptr;
      sn::MultiplyRows(static_cast<const double*>(s_.keys), none, x, m_.key_dim, size_, s_.z);
      sn::Multiply(s_.z, size_, o_.scale);
    }
    if constexpr (KERNEL != Kernel::kLinear) {
      const double width = cn::WidthOf<double>(KERNEL, m_.bandwidth);
      const auto kernel = [width](auto d, auto u) HWY_ATTR {
        return sn::Exp(d, cn::LogKernel<KERNEL>::Of(d, u, hn::Set(d, width)));
      };
      sn::MapRows(size_, s_.z, kernel, static_cast<const double*>(s_.z));
    }
  }

  /// k(x, x)
  double Self(const double* x) const {
    if constexpr (kByDistance) {
      return 1 + sn::WideSum(m_.key_dim, x, [](double channel) { return channel - channel; });
    }
    const double product = o_.scale * sn::WideDot(m_.key_dim, x, x);
    return KERNEL == Kernel::kLinear ? product : std::exp(product);
  }

  /// z(x), and |z(x)|^2
  double Coordinates(const double* x) const {
    Kernels(x);
    double squares = 0;
    for (std::int64_t i = 0; i < size_; ++i) {
      const double* const row = RowOfL(i);
      s_.z[i] = (s_.z[i] - sn::Dot(i, row, static_cast<const double*>(s_.z))) / row[i];
      squares += s_.z[i] * s_.z[i];
    }
    return squares;
  }

  double WeightOf(std::int64_t t) const {
    return m_.importance ? sn::LoadOne<double>(m_.importance, t) : 1;
  }

  void Write(std::int64_t t) {
    const double weight = WeightOf(t);
    if (weight == 0) return;  // no pair, whatever it holds
    sn::LoadRow(m_.k, t, 0, m_.key_dim, s_.k);
    if (m_.normalises) sn::Multiply(s_.k, m_.key_dim, sn::UnitFactor(s_.k, m_.key_dim));
    const double inside = Coordinates(s_.k), self = Self(s_.k), outside = self - inside;
    const double least = std::max(o_.tolerance, linalg::Rounding<double>(size_ + 1));
    // A key that is not finite joins, too, and so reaches whatever is read later.
    if (size_ < o_.budget && !(outside <= least * self)) {
      Join(std::sqrt(outside), UnitOf(self));
    }
    sn::LoadRow(m_.v, t, 0, m_.value_dim, s_.v);
    const double root = std::sqrt(weight);
    sn::Multiply(s_.z, size_, root);
    sn::Multiply(s_.v, m_.value_dim, root);
    AddRow();
  }

  static double UnitOf(double self) {
    return self > kMostPlain && std::isfinite(self) ? std::sqrt(self) : 1;
  }

  /// Adds a coordinate, in which k lies `outside` of the others.
  void Join(double outside, double unit) {
    const std::int64_t i = size_++;
    s_.z[i] = outside;
    s_.units[i] = unit;
    std::copy(s_.z, s_.z + size_, RowOfL(i));
    std::copy(s_.k, s_.k + m_.key_dim, KeyAt(i));
    for (std::int64_t j = 0; j < i; ++j) RowOfR(j)[i] = 0;
    RowOfR(i)[i] = std::sqrt(m_.ridge);
    std::fill(RowOfE(i), RowOfE(i) + m_.value_dim, 0.0);
  }

  /// Adds [z v] as a row of [R E], by rotations that leave nothing of z.
  void AddRow() const {
    for (std::int64_t i = 0; i < size_; ++i) {
      if (s_.z[i] == 0) continue;
      double* const row = RowOfR(i);
      const double length = std::hypot(row[i], s_.z[i]);
      const double c = row[i] / length, s = s_.z[i] / length;
      row[i] = length;
      Rotate(size_ - i - 1, c, s, row + i + 1, s_.z + i + 1);
      Rotate(m_.value_dim, c, s, RowOfE(i), s_.v);
    }
  }

  void AnswerToken(std::int64_t t) const { Answer(t * m_.queries, (t + 1) * m_.queries); }

  void Answer(std::int64_t begin, std::int64_t end) const {
    if (!m_.q) return;
    for (std::int64_t row = begin; row < end; ++row) {
      const common::Place place = common::Place::Of(m_, row);
      cn::LoadQuery(m_, place, 1.0, s_.k);
      Coordinates(s_.k);
      std::fill(s_.y, s_.y + m_.value_dim, 0.0);
      for (std::int64_t i = 0; i < size_; ++i) {
        const double u = s_.z[i] / RowOfR(i)[i];
        sn::AddScaled(size_ - i - 1, -u, RowOfR(i) + i + 1, s_.z + i + 1);
        sn::AddScaled(m_.value_dim, u, RowOfE(i), s_.y);
      }
      sn::StoreRow(s_.y, place.token, 0, m_.value_dim, m_.y.Of(place.query));
    }
  }

  const Options& o_;
  const Memory& m_;
  const Scratch& s_;
  std::int64_t size_ = 0;  // keys of D
  std::int64_t held_ = 0;  // those of the state
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_dictionary
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_DICTIONARY_MEMORY_INL_H_
