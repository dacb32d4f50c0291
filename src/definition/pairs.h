/// The memory of nonparametric layers: the associations themselves, each with its weight.
#pragma once

#include <cstdint>
#include <deque>

#include "src/definition/memory.h"

namespace ttr::definition {

/// (k_i, v_i, log w_i), i = 1 .. S, oldest first:
///
///     w_i = importance_i * prod_{i < j <= t} g_j
///
/// If the recipe has a window, only the latest `window` pairs count; PairRows says how many more
/// are held before them. A weight of zero stays zero (log w = -inf), whatever k and v hold; a
/// factor g that is zero in double makes it so.
///
/// A bias is added to log w_i for one query; -inf hides the pair, whatever its weight is.
class Pairs {
 public:
  explicit Pairs(const Constants& constants);

  void Write(const Token& token);

  /// Pairs that count.
  Eigen::Index size() const;
  const Vector& k(Eigen::Index i) const { return at(i).k; }
  const Vector& v(Eigen::Index i) const { return at(i).v; }
  /// With the bias.
  double log_weight(Eigen::Index i) const;
  void SetBias(const Vector& bias) { bias_ = bias; }

  Arrays Save() const;
  /// Rows of the tensors beyond `state.length` are padding.
  void Load(const Arrays& state);

 private:
  struct Entry {
    Vector k;
    Vector v;
    double log_weight;
  };

  const Entry& at(Eigen::Index i) const;
  void Append(const Vector& k, const Vector& v, double log_weight);

  std::deque<Entry> pairs_;
  Vector bias_;
  std::int64_t window_;
  std::int64_t capacity_ = 0;  // rows of the state that it was loaded from
  bool weighted_;
  Eigen::Index key_dim_;
  Eigen::Index value_dim_;
};

/// log s(k, q): of no neighbour -inf, of a hit of the inverse distance +inf.
double LogKernel(const Similarity& similarity, double scale, const Vector& k, const Vector& q);

/// How much each pair counts for a query.
struct Closeness {
  Vector p;          // w_i s(k_i, q) / sum_j w_j s(k_j, q); exactly 0 where a pair has no weight
  bool any = false;  // false: no pair has weight, p is zero
  bool hit = false;  // a key at distance 0 has taken all weight (inverse distance)
};
Closeness Weigh(const Pairs& pairs, const Similarity& similarity, double scale, const Vector& q);

/// 1 / sum_i p_i^2; 0 of no pairs.
double EffectivePairs(const Closeness& closeness);

/// sum_i p_i v_i over the pairs that have weight.
Vector WeightedMean(const Pairs& pairs, const Vector& p, Eigen::Index value_dim);

}  // namespace ttr::definition
