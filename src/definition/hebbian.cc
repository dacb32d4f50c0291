/// Hebbian memories: least squares by one full-batch gradient step from 0, which takes the Gram
/// matrix A_t of the keys as the identity (Vignettes 1 and 2).
///
///     M_t = sum_i gamma_i^(t) v_i k_i^T,   y = eta M q
///
/// Linear attention, RetNet, Mamba-2, GLA, GateLoop, HGRN2, RWKV-6, mLSTM, Mamba: they differ in
/// the weights gamma alone.
#include <cmath>
#include <limits>
#include <utility>

#include "src/definition/decay.h"
#include "src/definition/memory.h"

namespace ttr::definition {
namespace {

// exp(a - b) for a <= b; a weight exp(a) = 0 stays 0 beside any maximum, -inf included.
double Relative(double a, double b) { return a == -kInfinity ? 0 : std::exp(a - b); }

class Hebbian final : public Memory {
 public:
  explicit Hebbian(const Constants& constants)
      : constants_(constants),
        denominator_(constants.recipe.reading.normalise_sum != NormaliseSum::kNone),
        stabilised_(constants.recipe.weights.importance == Importance::kLog),
        re_(Matrix::Zero(constants.value_dim, constants.phi_dim)),
        im_(Matrix::Zero(constants.value_dim, constants.phi_dim)) {}

  // M_t = decay(M_{t-1}) + w v k^T
  void Write(const Token& token) override {
    double weight = 1;
    if (stabilised_) {
      weight = FadeStabilised(token);
    } else {
      Fade(token);
    }
    if (constants_.recipe.weights.importance == Importance::kInput) weight *= token.importance;
    re_.noalias() += (weight * token.v.col(0)) * Key(token).transpose();
  }

  // y = eta Re(M q). The last row of M is z^T where the layer divides by z^T q: a sum of keys,
  // which no step size touches.
  Answer Read(const Vector& q) const override {
    Vector y = re_ * q;
    y.head(Values()) *= constants_.recipe.optimizer.eta;
    return {y};
  }

  double LogScale() const override { return stabilised_ ? maximum_ : 0; }

  Arrays Save() const override {
    Arrays state;
    state["state"] = Array::Transposed(re_.topRows(Values()));
    if (constants_.recipe.weights.phase) {
      state["state.im"] = Array::Transposed(im_.topRows(Values()));
    }
    if (denominator_) state["state.n"] = Array::Of(Vector(re_.row(Values()).transpose()));
    if (stabilised_) state["state.m"] = Array::Of(maximum_);
    return state;
  }

  void Load(const Arrays& state) override {
    if (const auto it = state.find("state"); it != state.end()) {
      re_.topRows(Values()) = it->second.transposed();
    }
    if (const auto it = state.find("state.im"); it != state.end()) {
      im_.topRows(Values()) = it->second.transposed();
    }
    if (const auto it = state.find("state.n"); it != state.end()) {
      re_.row(Values()) = it->second.vector().transpose();
    }
    if (const auto it = state.find("state.m"); it != state.end()) maximum_ = it->second.scalar();
  }

 private:
  // Rows of M that hold values: all but z^T.
  Eigen::Index Values() const { return re_.rows() - (denominator_ ? 1 : 0); }

  // k; in its place 1 - g (HGRN2) or sqrt(1 - g^2), g the decay of the token.
  Vector Key(const Token& token) const {
    switch (constants_.recipe.weights.importance) {
      case Importance::kComplement: return Complement(token.log_decay);
      case Importance::kRootComplement: return RootComplement(token.log_decay);
      default: return token.k.col(0);
    }
  }

  // M g                              scalar (RetNet, Mamba-2)
  // M diag(g)                        per key channel (GLA, RWKV-6)
  // M diag(g e^{i phase})            complex (GateLoop)
  // M[c, n] exp(dt_c a_cn)           per entry (Mamba)
  void Fade(const Token& token) {
    if (constants_.recipe.weights.decay == Decay::kMatrix) {
      for (Eigen::Index c = 0; c < re_.rows(); ++c) {
        re_.row(c) = Decayed(token.dt(c) * constants_.a.row(c).transpose(), re_.row(c));
      }
      return;
    }
    re_ = Decayed(token.log_decay, std::move(re_));
    if (constants_.recipe.weights.phase) {
      im_ = Decayed(token.log_decay, std::move(im_));
      Rotate(token.phase, re_, im_);
    }
  }

  // mLSTM: m_t = max(log g + m_{t-1}, log w);  M <- exp(log g + m_{t-1} - m_t) M;
  // the token's own weight is exp(log w - m_t). What is kept is M_t exp(-m_t).
  double FadeStabilised(const Token& token) {
    const bool scalar = token.log_decay.size() == 1;
    // A decay of each channel's own is applied as it is: one maximum serves all channels.
    if (!scalar) Fade(token);
    const double log_decay = scalar ? token.log_decay(0) : 0;
    // Forgetting everything forgets an infinite or undefined maximum too.
    const double past = log_decay == -kInfinity ? -kInfinity : log_decay + maximum_;
    maximum_ = std::max(past, token.log_importance);
    re_ = Faded(Relative(past, maximum_), re_);
    return Relative(token.log_importance, maximum_);
  }

  Constants constants_;
  bool denominator_;
  bool stabilised_;
  Matrix re_, im_;               // Dv x Dk, with z^T as one row more where there is a denominator
  double maximum_ = -kInfinity;  // m: the largest log-weight so far
};

}  // namespace

std::unique_ptr<Memory> MakeHebbian(const Constants& constants) {
  return std::make_unique<Hebbian>(constants);
}

}  // namespace ttr::definition
