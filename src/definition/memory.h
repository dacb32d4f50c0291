/// The definition: every recipe as a memory that is written token by token and read query by query,
/// literally as the mathematics says, in double precision. It judges all engines.
///
/// A family implements `Memory`; what recipes share (normalising q and k, feature maps, the affine
/// 1, scale, denominators, bonus, output norm, the order of reading and writing) is in sequence.cc.
///
/// One legend for all families, as in the paper: column vectors, k and q in R^Dk (after phi), v in
/// R^Dv, memory M in R^{Dv x Dk}, y = M q. Stored states hold the transpose, [Dk, Dv].
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/definition/choices.h"
#include "ttr/call.h"
#include "ttr/executor.h"
#include "ttr/inputs.h"
#include "ttr/recipe.h"
#include "ttr/state.h"

namespace ttr::definition {

using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What one memory sees of one token. Inputs that the recipe does not take keep these defaults.
struct Token {
  Matrix k;          // Dk x n: n pairs a token (1 unless the recipe says more), after phi
  Matrix v;          // Dv x n
  Vector v_im;       // Dv, imaginary part of a complex input (zero if absent)
  Vector log_decay;  // size 0: no decay; 1: scalar (also the recipe's constant); Dk: per channel
  Vector phase;      // per channel, size 0 if real
  Vector dt;         // Dv: matrix decay exp(dt_c a_cn)
  Vector step;       // n
  double importance = 1;
  double log_importance = 0;
  Vector erase_key;   // Dk
  Vector erase_gate;  // Dk
  double momentum = 0;
  double weight_decay = 0;
};

/// An input that is a row, or a number, of a token as it is given; true: of one pair.
template <class Value>
struct TokenField {
  Value Token::* to;
  TensorView Inputs::* from;
  bool of_pair = false;
};
inline constexpr TokenField<Vector> kTokenRows[] = {
    {&Token::phase, &Inputs::phase},
    {&Token::dt, &Inputs::dt},
    {&Token::erase_key, &Inputs::erase_key, true},
    {&Token::erase_gate, &Inputs::erase_gate, true},
};
inline constexpr TokenField<double> kTokenNumbers[] = {
    {&Token::importance, &Inputs::importance},
    {&Token::log_importance, &Inputs::log_importance},
    {&Token::weight_decay, &Inputs::weight_decay},
};

/// What stays the same for all tokens of one memory.
struct Constants {
  Recipe recipe;
  Dims dims;
  std::int64_t head = 0;       // index of the memory, 0 .. H-1
  std::int64_t phi_dim = 0;    // length of the k and q that a memory sees (features, the affine 1)
  std::int64_t value_dim = 0;  // length of its v (one more than Dv where a denominator is kept)
  double scale = 1;   // resolved; sequence.cc multiplies q by it, except for similarity kernels
  Vector ridge;       // phi_dim entries, from the recipe or the input; 0 on the affine 1
  Vector bonus;       // Dk
  Matrix a;           // Dv x Dk
  Matrix features_w;  // F x Dk
  Vector features_b;
  Vector ln_weight, ln_bias;                                 // Dv
  Vector row_bias;                                           // mini_batch, zero if absent
  DType kept_k = DType::kFloat64, kept_v = DType::kFloat64;  // of the pairs in the state
  Choices* choices = nullptr;                                // to note or to follow, if any
};

/// One tensor of a memory's state: sizes and row-major values.
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<double> values;

  static Array Of(double x);
  static Array Of(const Vector& x);
  static Array Of(const Matrix& x);          // rows x cols, row-major
  static Array Transposed(const Matrix& m);  // the [Dk, Dv] form of a Dv x Dk memory
  double scalar() const;
  Vector vector() const;
  Matrix matrix() const;
  Matrix transposed() const;
};
/// Arrays by the names of StateSpecs() ("state", "state.n", ...).
using Arrays = std::map<std::string, Array>;

struct Answer {
  Vector y;
  Status status = Status::kSolved;
  std::int64_t iterations = 0;
  double residual = 0;
  double leverage = 0;
  double effective_pairs = 0;
  Matrix slope{};  // Dv x Dk; empty: 0
};

class Memory {
 public:
  virtual ~Memory() = default;

  /// Memorizes one token: forget, then write.
  virtual void Write(const Token& token) = 0;

  /// Has the latest token completed a mini-batch?
  virtual bool CompletesBatch() const { return true; }

  /// What the next reads take beside their query, where it is an input: the sizes of the steps of
  /// gradient descent, and their momentum.
  virtual void SetSteps(const Vector& /*sizes*/, double /*momentum*/) {}

  /// What the next read adds to log w_i, i = 1 .. S; empty: nothing.
  virtual void SetPairBias(const Vector& /*bias*/) {}

  /// Retrieves y = m(q).
  virtual Answer Read(const Vector& q) const = 0;

  /// y and everything else that Read returns are multiples of exp(LogScale()): 0 but for memories
  /// that keep a running maximum of their log-weights (mLSTM's m).
  virtual double LogScale() const { return 0; }

  /// The whole state, and going on from one. `Load` gets only what the caller gave; what is missing
  /// keeps its start.
  virtual Arrays Save() const = 0;
  virtual void Load(const Arrays& state) = 0;
};

/// g m, and exactly zero where g is zero: what is forgotten altogether leaves no NaN behind.
inline Matrix Faded(double g, const Matrix& m) {
  return g == 0 ? Matrix::Zero(m.rows(), m.cols()) : Matrix(g * m);
}

/// One maker per family; MakeMemory (make_memory.cc) chooses by the values of the recipe.
std::unique_ptr<Memory> MakeHebbian(const Constants& constants);              // hebbian.cc
std::unique_ptr<Memory> MakeGatedVector(const Constants& constants);          // gated_vector.cc
std::unique_ptr<Memory> MakeSgd(const Constants& constants);                  // sgd.cc
std::unique_ptr<Memory> MakeLeastSquares(const Constants& constants);         // least_squares.cc
std::unique_ptr<Memory> MakeRotatedLeastSquares(const Constants& constants);  // least_squares_qr.cc
std::unique_ptr<Memory> MakeKernelSmoother(const Constants& constants);       // kernel_smoother.cc
std::unique_ptr<Memory> MakeKernelRegression(const Constants& constants);  // kernel_regression.cc
std::unique_ptr<Memory> MakeKernelDescent(const Constants& constants);     // kernel_descent.cc
std::unique_ptr<Memory> MakeKernelDictionary(const Constants& constants);  // kernel_dictionary.cc
std::unique_ptr<Memory> MakeLocalPolynomial(const Constants& constants);   // local_polynomial.cc
std::unique_ptr<Memory> MakeNetwork(const Constants& constants);           // network.cc

std::unique_ptr<Memory> MakeMemory(const Constants& constants);

/// phi(x). `position` counts the tokens before this one (cosFormer). Random maps draw their
/// directions anew at every call where `constants.features_w` is empty: whoever maps many vectors
/// puts DrawFeatures() there first. features.cc
Vector ApplyFeatures(const Constants& constants, const Vector& x, std::int64_t position);
/// The directions of a random map (rfa, favor, dijiang), [feature_dim, Dk], from the recipe's seed
/// and the index of the memory. Empty for other maps.
Matrix DrawFeatures(const Recipe& recipe, std::int64_t key_dim, std::int64_t head);

/// s(k, q) of Similarity; `scale` is that of k . q. kernel_smoother.cc
double EvaluateKernel(const Similarity& similarity, double scale, const Vector& k, const Vector& q);

}  // namespace ttr::definition
