/// One memory that reads tokens: the key is the embedding of a token, the value that of the next.
///
/// At every token x_t but the first the memory is asked with x_{t-1} before it sees x_t, and then
/// memorizes (x_{t-1} -> x_t). In one call of a layer: read after write, with everything one token
/// late (k = x_{t-2}, v = x_{t-1}, q = x_{t-1}), or, for a recipe that reads before it writes,
/// k = q = x_{t-1}, v = x_t. Blocks of tokens run on the engine that the recipe is planned on, in
/// float32; on the definition in float64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/forecast/constant_gates.h"
#include "ttr/layer.h"

namespace ttr::experiments {

class RecallReader {
 public:
  /// Throws Error for recipes that cannot read tokens of this dimension.
  RecallReader(const Recipe& recipe, std::int64_t dim, const GateConstants& constants);

  const Layer& layer() const { return layer_; }
  /// Does it keep all pairs, so that time grows with the square of the length?
  bool grows() const { return grows_; }

  /// `embeddings` holds the rows of x_{b-2}, x_{b-1}, x_b, ..., x_{e-1} for a block of tokens b ..
  /// e, b >= 2 (or b - 2 = 0). Answers to the questions about x_b .. x_{e-1} go to `answers`, [e -
  /// b, dim].
  void Read(std::span<const float> embeddings, std::span<float> answers);

 private:
  template <class T>
  void Run(std::span<const T> embeddings, std::span<T> answers);

  Layer layer_;
  std::int64_t dim_;
  std::vector<forecasting::ConstantGate> gates_;
  bool before_;
  bool grows_;
  bool started_ = false;  // has read a block
  State state_;
};

}  // namespace ttr::experiments
