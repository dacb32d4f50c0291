// Products of rows of tokens with weights, divided among a team. Compiled once for every target.

#if defined(TTR_NETWORK_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_PRODUCTS_INL_H_
#undef TTR_NETWORK_PRODUCTS_INL_H_
#else
#define TTR_NETWORK_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/rows-inl.h"
#include "src/engines/network/task.h"
#include "src/linalg/strips-inl.h"
#include "src/parallel/team.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

namespace ln = ttr::linalg::HWY_NAMESPACE;
using linalg::Left;
using ln::Into;

/// Rows as register tiles take them.
constexpr std::int64_t TileRows(std::int64_t rows) { return linalg::RoundUp(rows, ln::kTileRows); }

/// `rows` rows of `columns` numbers, to columns.
template <class T>
void TransposeRows(const Block<T>& from, std::int64_t rows, std::int64_t columns,
                   const Block<T>& to) {
  ln::Transpose(from, linalg::RoundUp(rows, kUnit), linalg::RoundUp(columns, kUnit), to);
}

/// Whatever is divided, every number is the same sum in the same order: the bits do not depend on
/// the team.
template <class T>
class Products {
 public:
  Products(const Shape& shape, Team& team, const Scratch<T>& scratch)
      : shape_(shape), team_(team), s_(scratch) {}

  /// body(rows) for rows of tokens, divided among the team.
  template <class Body>
  void ForTokens(std::int64_t count, const Body& body) const {
    team_.Divide(count, ln::kTileRows,
                 [&](std::int64_t begin, std::int64_t end) HWY_ATTR { body(Range{begin, end}); });
  }
  /// body(rows) for rows of weights, divided among the team.
  template <class Body>
  void ForWeights(std::int64_t count, const Body& body) const {
    team_.Divide(count, kUnit,
                 [&](std::int64_t begin, std::int64_t end) HWY_ATTR { body(Range{begin, end}); });
  }

  /// to = or += from W_l, of some rows.
  template <Into INTO = Into::kSet>
  void Apply(const Block<T>& weights, std::int64_t l, const Block<T>& from, Range rows,
             const Block<T>& to) const {
    if (rows.end > 1) {
      return ln::MultiplyStrips<INTO>(Left<T>::Of(from.Rows(rows.begin)), weights,
                                      TileRows(rows.count()), shape_.Out(l), shape_.Rows(l),
                                      to.Rows(rows.begin));
    }
    if constexpr (INTO == Into::kSet) std::fill(to.data, to.data + shape_.Out(l), T(0));
    AddRows(static_cast<const T*>(from.data), static_cast<const T*>(weights.data), weights.stride,
            shape_.Out(l), shape_.Rows(l), to.data);
  }
  /// to = or += from W_l, of the first `count` rows, divided among the team.
  void Apply(const Block<T>& weights, std::int64_t l, const Block<T>& from, std::int64_t count,
             const Block<T>& to) const {
    ForTokens(count, [&](Range rows) HWY_ATTR { Apply(weights, l, from, rows, to); });
  }

  /// to += sum_i left_i right_i^T, rows of the left of `rows` numbers.
  void AddOuterProducts(std::int64_t l, std::int64_t count, const Block<T>& left, std::int64_t rows,
                        const Block<T>& right, const Block<T>& to) const {
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    if (count > 1) {
      return ForWeights(rows, [&](Range of) HWY_ATTR {
        ln::MultiplyStrips<Into::kAdd>(Left<T>::Transposed(left.Columns(of.begin)), right,
                                       TileRows(of.count()), columns, count, to.Rows(of.begin));
      });
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      sn::AddScaled(columns, left.data[r], static_cast<const T*>(right.data), to.Row(r));
    }
  }

  /// to = from W_l^T: by columns, so that the weights are read as they lie. `rows` of the weights,
  /// or those of the input.
  void PassDown(const Block<T>& weights, std::int64_t l, const Block<T>& from, std::int64_t count,
                const Block<T>& to, std::int64_t rows = 0) const {
    if (rows == 0) rows = shape_.In(l);
    if (count == 1) return PassDownOne(weights, l, from.data, rows, to.data);
    TransposeRows(from, count, shape_.Out(l), s_.out_columns);
    ForWeights(rows, [&](Range of) HWY_ATTR { PassDownRows(weights, l, count, of, to); });
  }

 protected:
  /// Columns of from W_l^T, `from` in s_.out_columns.
  void PassDownRows(const Block<T>& weights, std::int64_t l, std::int64_t count, Range of,
                    const Block<T>& to) const {
    ln::MultiplyStrips<Into::kSet>(Left<T>::Of(weights.Rows(of.begin)), s_.out_columns,
                                   TileRows(of.count()), count, shape_.Out(l),
                                   s_.in_columns.Rows(of.begin));
    TransposeRows(s_.in_columns.Rows(of.begin), of.count(), count, to.Columns(of.begin));
  }
  void PassDownOne(const Block<T>& weights, std::int64_t l, const T* from, std::int64_t rows,
                   T* to) const {
    DotRows(static_cast<const T*>(weights.data), weights.stride, from, shape_.Out(l), rows, to);
  }

  const Shape& shape_;
  Team& team_;
  const Scratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_PRODUCTS_INL_H_
