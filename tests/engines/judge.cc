#include "tests/engines/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/definition/gather.h"
#include "src/definition/state_io.h"
#include "tests/support/engines.h"

namespace ttr::test {
namespace {

using definition::Arrays;
using definition::Constants;
using definition::Matrix;
using definition::Vector;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix AsMatrix(const Arrays& state, const char* name) {
  const auto entry = state.find(name);
  if (entry == state.end()) return {};
  const std::int64_t columns = entry->second.shape.back();
  const auto rows = static_cast<std::int64_t>(entry->second.values.size()) / columns;
  return Eigen::Map<const RowMajor>(entry->second.values.data(), rows, columns);
}

/// The memory of head h of sequence n through its tokens.
class Judgement {
 public:
  Judgement(const Question& question, const MakeErrors& errors, std::int64_t n, std::int64_t h)
      : q_(question), dims_(q_.dims()), n_(n), h_(h), constants_(ConstantsOf(q_, h)) {
    memory_ = definition::MakeMemory(constants_);
    State state;
    state.Bind("state", q_.state);
    if (q_.state_im.defined()) state.Bind("state.im", q_.state_im);
    const Arrays start = definition::LoadArrays(q_.recipe, state, n, h);
    memory_->Load(start);
    if (errors) errors_ = errors(constants_, AsMatrix(start, "state"), AsMatrix(start, "state.im"));
  }

  void Run(Expected& expected) {
    const bool packed = !q_.cu_seqlens.empty();
    const auto at = static_cast<std::size_t>(n_);
    const std::int64_t b = packed ? 0 : n_;
    const std::int64_t first = packed ? q_.cu_seqlens[at] : 0;
    const std::int64_t last = packed ? q_.cu_seqlens[at + 1] : dims_.tokens;
    const bool before = q_.recipe.reading.read == Read::kBefore;
    for (std::int64_t t = first; t < last; ++t) {
      if (before) Answer(b, t, expected);
      if (q_.inputs.v.defined()) Write(b, t);
      if (!before) Answer(b, t, expected);
    }
    const Arrays end = memory_->Save();
    Put(AsMatrix(end, "state"), expected.state);
    if (q_.state_im.defined()) Put(AsMatrix(end, "state.im"), expected.im);
    if (errors_) Put(errors_->State(), expected.state_bound);
  }

 private:
  static Constants ConstantsOf(const Question& q, std::int64_t h) {
    Constants constants = definition::GatherConstants(q.recipe, q.dims(), q.inputs, h);
    if (!q.decay_factors.empty()) {
      constants.recipe.weights.decay_factor = q.decay_factors[static_cast<std::size_t>(h)];
    }
    return constants;
  }

  void Write(std::int64_t b, std::int64_t t) {
    const definition::Token token = definition::GatherToken(constants_, q_.inputs, b, t);
    if (errors_) errors_->Write(token, AsMatrix(memory_->Save(), "state"));
    memory_->Write(token);
  }

  void Answer(std::int64_t b, std::int64_t t, Expected& expected) const {
    const std::int64_t queries = q_.y.defined() ? q_.y.size(2) / dims_.heads : 0;
    for (std::int64_t r = 0; r < queries; ++r) {
      const std::int64_t head = dims_.query_heads < dims_.heads
                                    ? h_ / (dims_.heads / dims_.query_heads)
                                    : h_ * queries + r;
      const Vector q =
          constants_.scale * definition::GatherQuery(constants_, q_.inputs, b, t, head);
      const auto row = ((b * dims_.tokens + t) * q_.y.size(2) + h_ * queries + r) * dims_.value_dim;
      const Vector y = memory_->Read(q).y;
      std::copy(y.begin(), y.end(), expected.y.begin() + row);
      if (!errors_) continue;
      const Vector bound = errors_->Read(q);
      std::copy(bound.begin(), bound.end(), expected.y_bound.begin() + row);
    }
  }

  void Put(const RowMajor& memory, std::vector<double>& to) const {
    std::copy_n(memory.data(), memory.size(), to.begin() + (n_ * dims_.heads + h_) * memory.size());
  }

  const Question& q_;
  Dims dims_;
  std::int64_t n_, h_;
  Constants constants_;
  std::unique_ptr<definition::Memory> memory_;
  std::unique_ptr<Errors> errors_;
};

/// With e the error of y, that of y / |y| is at most (e + |y|/|y| |e|) / |y|.
void Normalise(const Question& question, Expected& expected) {
  const auto width = static_cast<std::size_t>(question.state.shape()[question.state.rank() - 1]);
  const bool mean = question.output_norm == common::OutputNorm::kRms;
  for (std::size_t row = 0; row + width <= expected.y.size(); row += width) {
    double sum = 0, error = 0;
    for (std::size_t d = row; d < row + width; ++d) {
      sum += expected.y[d] * expected.y[d];
      error += expected.y_bound[d] * expected.y_bound[d];
    }
    const double count = mean ? static_cast<double>(width) : 1;
    const double norm = std::sqrt(sum / count + question.output_norm_eps);
    for (std::size_t d = row; d < row + width && norm != 0; ++d) {
      const double share = std::abs(expected.y[d]) / std::sqrt(sum);
      expected.y[d] /= norm;
      expected.y_bound[d] = (expected.y_bound[d] + share * std::sqrt(error)) / norm +
                            question.norm_rounding * std::abs(expected.y[d]);
    }
  }
}

}  // namespace

Dims Question::dims() const {
  const TensorView& timed = inputs.v.defined() ? inputs.v : y;
  const std::int64_t heads = state.size(1);
  const auto heads_of = [&](const TensorView& x) { return x.defined() ? x.size(2) : heads; };
  return {.batch = timed.size(0),
          .tokens = timed.size(1),
          .query_heads = heads_of(inputs.q),
          .key_heads = heads_of(inputs.k),
          .value_heads = heads_of(inputs.v),
          .heads = heads,
          .key_dim = state.rank() == 4 ? state.size(2) : 1,
          .value_dim = state.size(state.rank() - 1)};
}

Expected Judge(const Question& question, const MakeErrors& errors) {
  const auto numbers = [](const TensorView& view) {
    const std::int64_t count = view.defined() ? view.shape().elements() : 0;
    return std::vector<double>(static_cast<std::size_t>(count));
  };
  Expected expected;
  expected.y = expected.y_bound = numbers(question.y);
  expected.state = expected.state_bound = numbers(question.state);
  expected.im = numbers(question.state_im);
  for (std::int64_t n = 0; n < question.state.size(0); ++n) {
    for (std::int64_t h = 0; h < question.state.size(1); ++h) {
      Judgement(question, errors, n, h).Run(expected);
    }
  }
  expected.im_bound = expected.state_bound;
  if (question.output_norm != common::OutputNorm::kNone) Normalise(question, expected);
  return expected;
}

void ExpectAsJudged(const TensorView& got, const std::vector<double>& expected,
                    const std::vector<double>& bound, const std::string& what) {
  if (!got.defined()) return;
  const Tensor copy = Tensor::Copy(got, DType::kFloat64);
  // Stored narrower than it was computed: half a unit in the last place more.
  const double rounding = Epsilon(got.dtype()) / 2;
  ASSERT_EQ(copy.as<double>().size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double actual = copy.as<double>()[i];
    ASSERT_EQ(std::isfinite(actual), std::isfinite(expected[i]))
        << what << " [" << i << "] is " << actual << ", expected " << expected[i];
    // The bound is of both parts of a complex number, of which one may not be finite.
    if (!std::isfinite(actual) || !std::isfinite(bound[i])) continue;
    const double allowed = bound[i] + rounding * std::abs(expected[i]) +
                           static_cast<double>(std::numeric_limits<float>::min());
    ASSERT_LE(std::abs(actual - expected[i]), allowed)
        << what << " [" << i << "] is " << actual << ", expected " << expected[i];
  }
}

}  // namespace ttr::test
