/// A network trained while it reads, on the loss 1/2 |f(k) - v|^2 or -v . f(k), with all gradients
/// of a mini-batch taken at the weights W_bar where it began (TTT, Titans, LaCT).
///
/// Plainly, token j in place i_j = 0, 1, ... of its mini-batch:
///
///     G = sum over the tokens j of this mini-batch so far of step_j grad_j(W_bar)
///     W = W_bar - row_i G,   row_i = 1  or  max(1/(i + 1) + row_bias_i, 0)
///
/// where i is the place of the latest token; after the last place W becomes the next W_bar.
///
/// With momentum or weight decay:
///
///     S_t = momentum_t S_{t-1} - step_t grad_t(W_bar)
///     W_t = (1 - weight_decay_t) W_{t-1} + S_t       (coupled: 1 - step_t weight_decay_t)
///
/// With steps adapted a weight, element by element, of mini-batches of one token:
///
///     adagrad  V = V' + grad^2,               G = grad
///     adam     V = c V' + (1 - c) grad^2,     G = momentum G' + (1 - momentum) grad
///     W = (1 - weight_decay) W' - step G / (sqrt V + eps)
///
/// where a token of step 0 brings no gradient.
///
/// A query reads W after its token or before it, W_bar, or W after the last token of its mini-batch
/// that the call holds.
///
/// Biases are trained, and decay, as the weights are. What a factor of zero forgets is gone, NaN
/// included. Where the weights or an answer are not finite, though what the token and its query
/// bring is, the status says that training diverges. Source: TTT 2407.04620, Titans 2501.00663,
/// LaCT 2505.23884; Adagrad, Duchi, Hazan, Singer 2011; Adam 1412.6980, the form in which its step
/// makes up for means that begin at zero.
#include <algorithm>
#include <string>

#include "src/definition/memory.h"
#include "src/definition/multilayer.h"

namespace ttr::definition {
namespace {

Parameters Zeros(const Parameters& like) {
  Parameters zeros;
  for (const Matrix& m : like) zeros.push_back(Matrix::Zero(m.rows(), m.cols()));
  return zeros;
}

/// x <- factor x + scale y; a factor or a scale of zero takes nothing, not even NaN.
void Combine(double factor, Parameters& x, double scale, const Parameters& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Faded(factor, x[i]) + Faded(scale, y[i]);
}

class Network : public Memory {
 public:
  explicit Network(const Constants& constants)
      : optimizer_(constants.recipe.optimizer),
        reads_anchor_(constants.recipe.reading.read == Read::kBatchStart),
        row_bias_(constants.row_bias),
        network_(constants),
        weights_(network_.Start()),
        anchor_(weights_),
        gradient_(Zeros(weights_)),
        velocity_(Zeros(weights_)),
        squares_(Zeros(weights_)) {}

  void Write(const Token& token) override {
    const double step = token.step(0);
    const Parameters gradient = network_.Gradient(anchor_, token.k.col(0), token.v.col(0));
    if (plain()) {
      Combine(1, gradient_, step, gradient);
      weights_ = anchor_;
      Combine(1, weights_, -RowFactorAt(position_), gradient_);
    } else if (optimizer_.adapt != Adapt::kNone) {
      WriteAdapted(token, gradient);
    } else {
      Combine(optimizer_.momentum ? token.momentum : 0, velocity_, -step, gradient);
      Combine(ShrinkingAt(token), weights_, 1, velocity_);
    }
    if (++position_ < optimizer_.mini_batch) return;
    position_ = 0;
    anchor_ = weights_;
    gradient_ = Zeros(weights_);
  }

  bool CompletesBatch() const override { return position_ == 0; }

  /// y = f(q) with the weights after the latest token, or W_bar.
  Answer Read(const Vector& q) const override {
    const Parameters& weights = reads_anchor_ ? anchor_ : weights_;
    Answer answer{network_.Evaluate(weights, q)};
    const bool finite =
        answer.y.allFinite() &&
        std::all_of(weights.begin(), weights.end(), [](const Matrix& w) { return w.allFinite(); });
    if (!finite && q.allFinite()) answer.status = Status::kNotConverged;
    return answer;
  }

  Arrays Save() const override {
    Arrays state;
    // Without momentum and weight decay W follows from W_bar and G.
    Put("", plain() ? anchor_ : weights_, state);
    if (optimizer_.momentum) Put("s_", velocity_, state);
    if (optimizer_.adapt != Adapt::kNone) Put("squares_", squares_, state);
    if (optimizer_.mini_batch > 1) {
      state["state.position"] = Array::Of(static_cast<double>(position_));
      plain() ? Put("g_", gradient_, state) : Put("anchor_", anchor_, state);
    }
    return state;
  }

  void Load(const Arrays& state) override {
    Take(state, "", weights_);
    anchor_ = weights_;
    gradient_ = velocity_ = squares_ = Zeros(weights_);
    Take(state, "anchor_", anchor_);
    Take(state, "s_", velocity_);
    Take(state, "squares_", squares_);
    Take(state, "g_", gradient_);
    if (const auto position = state.find("state.position"); position != state.end()) {
      position_ = static_cast<std::int64_t>(position->second.scalar());
    }
    if (plain() && position_ > 0) Combine(1, weights_, -RowFactorAt(position_ - 1), gradient_);
  }

 private:
  bool plain() const {
    return !optimizer_.momentum && optimizer_.weight_decay == WeightDecay::kNone &&
           optimizer_.adapt == Adapt::kNone;
  }

  double ShrinkingAt(const Token& token) const {
    const bool coupled = optimizer_.weight_decay == WeightDecay::kCoupled;
    return 1 - (coupled ? token.step(0) : 1) * token.weight_decay;
  }

  void WriteAdapted(const Token& token, const Parameters& gradient) {
    const bool adam = optimizer_.adapt == Adapt::kAdam;
    const double step = token.step(0), mean = adam ? token.momentum : 0;
    const double keeps = adam ? optimizer_.curvature_decay : 1, takes = adam ? 1 - keeps : 1;
    const double here = step == 0 ? 0 : 1;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const Matrix g = Faded(here, gradient[i]);
      squares_[i] = Faded(keeps, squares_[i]) + takes * g.cwiseAbs2();
      velocity_[i] = Faded(mean, velocity_[i]) + (1 - mean) * g;
      const Matrix root = squares_[i].cwiseSqrt().array() + optimizer_.eps;
      weights_[i] =
          Faded(ShrinkingAt(token), weights_[i]) - Faded(step, velocity_[i].cwiseQuotient(root));
    }
  }

  double RowFactorAt(std::int64_t place) const {
    if (optimizer_.row_factor == RowFactor::kOne) return 1;
    const double bias = place < row_bias_.size() ? row_bias_(place) : 0;
    return std::max(1 / static_cast<double>(place + 1) + bias, 0.);
  }

  void Put(const std::string& prefix, const Parameters& parameters, Arrays& state) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::string& name = network_.names()[i];
      state["state." + prefix + name] =
          name[0] == 'b' ? Array::Of(Vector(parameters[i])) : Array::Of(parameters[i]);
    }
  }

  void Take(const Arrays& state, const std::string& prefix, Parameters& parameters) const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::string& name = network_.names()[i];
      const auto array = state.find("state." + prefix + name);
      if (array == state.end()) continue;
      parameters[i] = name[0] == 'b' ? Matrix(array->second.vector()) : array->second.matrix();
    }
  }

  Optimizer optimizer_;
  bool reads_anchor_;
  Vector row_bias_;
  Multilayer network_;
  std::int64_t position_ = 0;  // tokens of this mini-batch so far
  Parameters weights_;         // W, after the latest token
  Parameters anchor_;          // W_bar
  Parameters gradient_;        // G
  Parameters velocity_;        // S, or G of adapted steps
  Parameters squares_;         // V
};

}  // namespace

std::unique_ptr<Memory> MakeNetwork(const Constants& constants) {
  return std::make_unique<Network>(constants);
}

}  // namespace ttr::definition
