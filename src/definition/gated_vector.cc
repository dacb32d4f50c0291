/// Gated recurrences: the function class of the constants, m(k) = c, under geometric weights. The
/// memory is one vector, without keys and queries.
///
///     h_t = g_t (.) h_{t-1} + w_t (.) v_t,   y = eta Re h
///
/// | layer  | g                   | w                |
/// |--------|---------------------|------------------|
/// | LRU    | lambda, complex     | sqrt(1 - |g|^2)  |
/// | HGRN   | f, real or complex  | 1 - |g|          |
/// | RG-LRU | a, real             | sqrt(1 - a^2)    |
#include <utility>

#include "src/definition/decay.h"
#include "src/definition/memory.h"

namespace ttr::definition {
namespace {

class GatedVector final : public Memory {
 public:
  explicit GatedVector(const Constants& constants)
      : constants_(constants),
        re_(Matrix::Zero(1, constants.value_dim)),
        im_(Matrix::Zero(1, constants.value_dim)) {}

  // h = g (.) h + w (.) (v + i v_im), g = exp(log_decay + i phase)
  void Write(const Token& token) override {
    re_ = Decayed(token.log_decay, std::move(re_));
    const Vector weight = Weight(token);
    if (constants_.recipe.weights.phase) {
      im_ = Decayed(token.log_decay, std::move(im_));
      Rotate(token.phase, re_, im_);
      if (token.v_im.size() > 0) im_ += Weighed(weight, token.v_im).transpose();
    }
    re_ += Weighed(weight, token.v.col(0)).transpose();
  }

  Answer Read(const Vector&) const override {
    return {constants_.recipe.optimizer.eta * re_.transpose()};
  }

  Arrays Save() const override {
    Arrays state;
    state["state"] = Array::Of(Vector(re_.transpose()));
    if (constants_.recipe.weights.phase) state["state.im"] = Array::Of(Vector(im_.transpose()));
    return state;
  }

  void Load(const Arrays& state) override {
    if (const auto it = state.find("state"); it != state.end()) {
      re_ = it->second.vector().transpose();
    }
    if (const auto it = state.find("state.im"); it != state.end()) {
      im_ = it->second.vector().transpose();
    }
  }

 private:
  /// w (.) v, where a gate of exactly 0 takes nothing, not even NaN.
  static Vector Weighed(const Vector& w, const Vector& v) {
    return (w.array() == 0).select(Vector::Zero(v.size()), w.cwiseProduct(v));
  }

  Vector Weight(const Token& token) const {
    switch (constants_.recipe.weights.importance) {
      case Importance::kComplement: return Complement(token.log_decay);
      case Importance::kRootComplement: return RootComplement(token.log_decay);
      default:
        return Vector::Constant(re_.cols(), token.importance);  // 1 where the recipe takes none
    }
  }

  Constants constants_;
  Matrix re_, im_;  // h as a row: its channels are columns, as the key channels of a matrix are
};

}  // namespace

std::unique_ptr<Memory> MakeGatedVector(const Constants& constants) {
  return std::make_unique<GatedVector>(constants);
}

}  // namespace ttr::definition
