/// What the definition says of a call of an engine, number by number, and how far from it rounding
/// may lead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/definition/memory.h"
#include "src/engines/common/output_norm.h"
#include "ttr/tensor.h"

namespace ttr::test {

/// A call in the words of a recipe, beside its state and answers as an engine has them: [N, H, Dk,
/// Dv] or [N, H, Dv], and [B, T, heads of y, Dv]. Nothing of it need pass the door of a layer.
struct Question {
  Recipe recipe;
  Inputs inputs;
  std::vector<double> decay_factors;  // [H], of a constant decay
  std::vector<std::int64_t> cu_seqlens;
  TensorView state, state_im{}, y;
  /// Answers over sqrt(their mean square, or sum of squares, + eps): no recipe has the eps, and
  /// bounds want what answers were before.
  common::OutputNorm output_norm = common::OutputNorm::kNone;
  double output_norm_eps = 0;
  double norm_rounding = 0;

  Dims dims() const;
};

/// How far roundings may have led one memory, of so many rows (key channels) and columns (value
/// channels), token by token.
class Errors {
 public:
  virtual ~Errors() = default;
  /// The memory is `before`, and takes the token.
  virtual void Write(const definition::Token& token, const definition::Matrix& before) = 0;
  /// The error of the answer to q, scaled, in every column.
  virtual definition::Vector Read(const definition::Vector& q) const = 0;
  /// The error of every entry.
  virtual definition::Matrix State() const = 0;
};
/// Makes the errors of a memory that starts as `re` (and `im`).
using MakeErrors = std::function<std::unique_ptr<Errors>(const definition::Constants& constants,
                                                         const definition::Matrix& re,
                                                         const definition::Matrix& im)>;

/// In the order of the tensors' elements.
struct Expected {
  std::vector<double> y, y_bound;
  std::vector<double> state, state_bound;
  std::vector<double> im, im_bound;
};

/// Without `errors` there are no bounds.
Expected Judge(const Question& question, const MakeErrors& errors = nullptr);

/// Compares a tensor with what is expected, number by number; a number that is expected not to be
/// finite must not be finite, and no other.
void ExpectAsJudged(const TensorView& got, const std::vector<double>& expected,
                    const std::vector<double>& bound, const std::string& what);

}  // namespace ttr::test
