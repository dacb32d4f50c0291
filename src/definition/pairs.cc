#include "src/definition/pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/forgets_all.h"
#include "src/core/pair_rows.h"

namespace ttr::definition {
Pairs::Pairs(const Constants& constants)
    : window_(constants.recipe.weights.window),
      weighted_(constants.recipe.weights.decay != Decay::kNone ||
                constants.recipe.weights.importance != Importance::kNone),
      key_dim_(constants.phi_dim),
      value_dim_(constants.value_dim) {}

void Pairs::Append(const Vector& k, const Vector& v, double log_weight) {
  const auto held = static_cast<std::int64_t>(pairs_.size());
  pairs_.push_back({k, v, log_weight});
  if (window_ == 0) return;
  // Rows that are too few grow, as PairRows says.
  const PairRows rows{capacity_ >= window_ ? capacity_ : 2 * window_, window_};
  for (std::int64_t n = held + 1; n > rows.After(held, 1); --n) pairs_.pop_front();
}

void Pairs::Write(const Token& token) {
  if (token.log_decay.size() > 0) {
    const double log_decay = token.log_decay(0);
    for (Entry& pair : pairs_) {
      // What is forgotten altogether leaves no NaN behind.
      pair.log_weight = ForgetsAll(log_decay) ? -kInfinity : pair.log_weight + log_decay;
    }
  }
  const double log_weight = std::log(token.importance) + token.log_importance;
  for (Eigen::Index j = 0; j < token.k.cols(); ++j) {
    Append(token.k.col(j), token.v.col(j), log_weight);
  }
}

Eigen::Index Pairs::size() const {
  const auto held = static_cast<Eigen::Index>(pairs_.size());
  return window_ > 0 ? std::min<Eigen::Index>(held, window_) : held;
}

const Pairs::Entry& Pairs::at(Eigen::Index i) const {
  return pairs_[pairs_.size() - static_cast<std::size_t>(size() - i)];
}

double Pairs::log_weight(Eigen::Index i) const {
  const double own = at(i).log_weight, bias = bias_.size() > 0 ? bias_(i) : 0;
  return own == -kInfinity || bias == -kInfinity ? -kInfinity : own + bias;
}

Arrays Pairs::Save() const {
  const auto held = static_cast<Eigen::Index>(pairs_.size());
  Matrix k(held, key_dim_);
  Matrix v(held, value_dim_);
  Vector log_weight(held);
  for (Eigen::Index i = 0; i < held; ++i) {
    const Entry& pair = pairs_[static_cast<std::size_t>(i)];
    k.row(i) = pair.k.transpose();
    v.row(i) = pair.v.transpose();
    log_weight(i) = pair.log_weight;
  }
  Arrays state{{"state.k", Array::Of(k)},
               {"state.v", Array::Of(v)},
               {"state.length", Array::Of(static_cast<double>(held))}};
  if (weighted_) state["state.log_weight"] = Array::Of(log_weight);
  return state;
}

void Pairs::Load(const Arrays& state) {
  const auto k = state.find("state.k");
  const auto v = state.find("state.v");
  if (k == state.end() || v == state.end()) return;
  const Matrix keys = k->second.matrix();
  const Matrix values = v->second.matrix();
  const auto length = state.find("state.length");
  const auto log_weight = state.find("state.log_weight");
  const Eigen::Index rows = std::min(keys.rows(), values.rows());
  const Eigen::Index n = length == state.end()
                             ? rows
                             : std::min(rows, static_cast<Eigen::Index>(length->second.scalar()));
  capacity_ = rows;
  pairs_.clear();
  for (Eigen::Index i = 0; i < n; ++i) {
    const double weight =
        log_weight == state.end() ? 0 : log_weight->second.values.at(static_cast<std::size_t>(i));
    pairs_.push_back({keys.row(i).transpose(), values.row(i).transpose(), weight});
  }
}

Closeness Weigh(const Pairs& pairs, const Similarity& similarity, double scale, const Vector& q) {
  Vector logs(pairs.size());
  double top = -kInfinity;
  for (Eigen::Index i = 0; i < pairs.size(); ++i) {
    const double log_weight = pairs.log_weight(i);
    logs(i) = log_weight == -kInfinity ? -kInfinity
                                       : LogKernel(similarity, scale, pairs.k(i), q) + log_weight;
    top = std::max(top, logs(i));  // passes over NaN
  }
  Closeness closeness{Vector::Zero(pairs.size())};
  closeness.hit = similarity.kernel == Kernel::kInverseDistance && top == kInfinity;
  if (closeness.hit) {
    // Hits share all weight, in the proportion of their own.
    top = -kInfinity;
    for (Eigen::Index i = 0; i < pairs.size(); ++i) {
      if (std::isnan(logs(i))) continue;
      logs(i) = logs(i) == kInfinity ? pairs.log_weight(i) : -kInfinity;
      top = std::max(top, logs(i));
    }
  }
  for (Eigen::Index i = 0; i < pairs.size(); ++i) {
    if (logs(i) == -kInfinity) continue;
    closeness.any = true;
    closeness.p(i) = std::exp(logs(i) - top);
  }
  if (closeness.any) closeness.p /= closeness.p.sum();
  return closeness;
}

double EffectivePairs(const Closeness& closeness) {
  return closeness.any ? 1 / closeness.p.squaredNorm() : 0;
}

Vector WeightedMean(const Pairs& pairs, const Vector& p, Eigen::Index value_dim) {
  Vector mean = Vector::Zero(value_dim);
  for (Eigen::Index i = 0; i < pairs.size(); ++i) {
    if (p(i) != 0) mean += p(i) * pairs.v(i);
  }
  return mean;
}

}  // namespace ttr::definition
