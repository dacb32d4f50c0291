#include "src/definition/sequence.h"

#include <cmath>
#include <vector>

#include "src/definition/gather.h"
#include "src/definition/state_io.h"
#include "src/recipe/family.h"

namespace ttr::definition {
namespace {

constexpr char kPosition[] = "state.position";

/// Is all that a network takes of a token finite?
bool IsFinite(const Token& token) {
  return token.k.allFinite() && token.v.allFinite() && token.step.allFinite() &&
         std::isfinite(token.momentum) && std::isfinite(token.weight_decay);
}

/// One memory of one sequence: what recipes share, around the Memory of the family.
class Reader {
 public:
  Reader(const Recipe& recipe, const Dims& dims, const Inputs& inputs, std::int64_t head,
         const State& state, Choices* choices)
      : constants_(ConstantsOf(recipe, dims, inputs, head, state, choices)),
        inputs_(inputs),
        memory_(MakeMemory(constants_)),
        counts_position_(recipe.function.features == FeatureMap::kCosformer),
        queries_(std::max<std::int64_t>(1, dims.query_heads / dims.heads)) {}

  void Load(const Arrays& arrays) {
    if (const auto position = arrays.find(kPosition);
        counts_position_ && position != arrays.end()) {
      position_ = static_cast<std::int64_t>(position->second.scalar());
    }
    if (const auto keys = arrays.find("state.k"); keys != arrays.end() && KeepsPairs(recipe())) {
      const auto length = arrays.find("state.length");
      position_ = length == arrays.end() ? keys->second.shape.front()
                                         : static_cast<std::int64_t>(length->second.scalar());
    }
    if (!arrays.empty()) memory_->Load(arrays);
  }

  Arrays Save() const {
    Arrays arrays = memory_->Save();
    if (counts_position_) arrays[kPosition] = Array::Of(static_cast<double>(position_));
    return arrays;
  }

  /// Tokens begin .. end of batch row b.
  void Run(Mode mode, std::int64_t b, std::int64_t begin, std::int64_t end,
           const Outputs& outputs) {
    const Reading& reading = constants_.recipe.reading;
    const bool reads = mode != Mode::kMemorize;
    if (mode == Mode::kRetrieve) {
      // The queries stand where the last token stood.
      const std::int64_t last = std::max<std::int64_t>(position_ - 1, 0);
      for (std::int64_t t = begin; t < end; ++t) Answer(b, t, last, nullptr, outputs);
      return;
    }
    const std::int64_t start = position_ - begin;
    const bool reads_before = reading.read == Read::kBefore || reading.read == Read::kBatchStart;
    std::vector<Token> waiting;  // for the end of their mini-batch
    for (std::int64_t t = begin; t < end; ++t) {
      const Token token = Prepared(b, t);
      const bool reads_here = reads && reading.causal;
      if (reads_here && reads_before) Answer(b, t, start + t, &token, outputs);
      memory_->Write(token);
      ++position_;
      if (reads_here && reading.read == Read::kAfter) Answer(b, t, start + t, &token, outputs);
      if (!reads_here || reading.read != Read::kBatchEnd) continue;
      waiting.push_back(token);
      if (!memory_->CompletesBatch() && t + 1 < end) continue;
      std::int64_t i = t + 1 - static_cast<std::int64_t>(waiting.size());
      for (const Token& one : waiting) {
        Answer(b, i, start + i, &one, outputs);
        ++i;
      }
      waiting.clear();
    }
    if (!reads || reading.causal) return;
    for (std::int64_t t = begin; t < end; ++t) Answer(b, t, start + t, nullptr, outputs);
  }

 private:
  const Recipe& recipe() const { return constants_.recipe; }

  /// phi(x), with the 1 of an affine memory behind it.
  Vector Phi(const Vector& x, std::int64_t position) const {
    Vector phi = x;
    if (recipe().function.features != FeatureMap::kNone) {
      phi = ApplyFeatures(constants_, x, position);
    }
    if (recipe().function.kind == FunctionClass::kAffine) {
      phi.conservativeResize(phi.size() + 1);
      phi[phi.size() - 1] = 1;
    }
    return phi;
  }

  /// The token as the family sees it. The denominator sum_i gamma_i phi(k_i) . q is the memory of
  /// the value 1, so a recipe that divides by it memorizes one value more.
  Token Prepared(std::int64_t b, std::int64_t t) const {
    Token token = GatherToken(constants_, inputs_, b, t);
    if (token.k.rows() > 0) {
      Matrix phi(constants_.phi_dim, token.k.cols());
      for (Eigen::Index j = 0; j < token.k.cols(); ++j) phi.col(j) = Phi(token.k.col(j), position_);
      token.k = phi;
    }
    Round(constants_.kept_k, token.k);
    Round(constants_.kept_v, token.v);
    if (constants_.value_dim > token.v.rows()) {
      token.v.conservativeResize(constants_.value_dim, Eigen::NoChange);
      token.v.bottomRows(1).setOnes();
    }
    return token;
  }

  static Constants ConstantsOf(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                               std::int64_t head, const State& state, Choices* choices) {
    Constants constants = GatherConstants(recipe, dims, inputs, head);
    constants.choices = choices;
    if (const TensorView k = state.Get("state.k"); k.defined()) constants.kept_k = k.dtype();
    if (const TensorView v = state.Get("state.v"); v.defined()) constants.kept_v = v.dtype();
    return constants;
  }

  /// Rounds x to what a state of two bytes a number holds.
  static void Round(DType dtype, Matrix& x) {
    if (!IsNarrow(dtype)) return;
    const bool half = dtype == DType::kFloat16;
    for (double& number : x.reshaped()) {
      number = half ? ToFloat(ToFloat16(number)) : ToFloat(ToBFloat16(number));
    }
  }

  /// q as the memory reads it: corrected, phi, scaled (a similarity kernel scales inside).
  Vector PreparedQuery(std::int64_t b, std::int64_t t, std::int64_t j, std::int64_t position,
                       const Token* token) const {
    Vector q = GatherQuery(constants_, inputs_, b, t, j);
    if (token != nullptr && recipe().reading.correction != 0) {
      q -= recipe().reading.correction * token->erase_key;
    }
    if (q.size() == 0) return q;
    const bool kernel_scales = recipe().similarity.kernel != Kernel::kNone;
    const Vector phi = Phi(q, position);
    return kernel_scales ? phi : Vector(constants_.scale * phi);
  }

  /// y_t of every query head that reads this memory. `token` is the one being read at, if any.
  void Answer(std::int64_t b, std::int64_t t, std::int64_t position, const Token* token,
              const Outputs& outputs) const {
    const Dims& dims = constants_.dims;
    if (recipe().optimizer.solver == Solver::kGradient) {
      memory_->SetSteps(GatherSteps(constants_, inputs_, b, t),
                        GatherMomentum(constants_, inputs_, b, t));
    }
    for (std::int64_t r = 0; r < queries_; ++r) {
      const std::int64_t output_head = constants_.head * queries_ + r;
      const std::int64_t query_head = dims.query_heads >= dims.heads
                                          ? output_head
                                          : constants_.head / (dims.heads / dims.query_heads);
      const Vector q = PreparedQuery(b, t, query_head, position, token);
      const Weights& weights = recipe().weights;
      if (weights.pair_bias == PairBias::kInput) {
        memory_->SetPairBias(GatherPairBias(inputs_, b, t, query_head));
      } else if (weights.pair_bias != PairBias::kNone) {
        memory_->SetPairBias(PairBiasAt(weights, position, std::max(position_, position + 1)));
      }
      definition::Answer answer = memory_->Read(q);
      const bool network = recipe().function.kind == FunctionClass::kNetwork;
      if (network && token != nullptr && !IsFinite(*token)) answer.status = Status::kSolved;
      if (token != nullptr && recipe().reading.bonus) {
        const Vector k = token->k.col(0);
        // Weighed as the memory weighs what it reads: eta times the sum.
        answer.y +=
            recipe().optimizer.eta * constants_.bonus.cwiseProduct(k).dot(q) * token->v.col(0);
      }
      Normalise(answer);
      for (std::int64_t c = 0; c < dims.value_dim; ++c) {
        outputs.y.Set({b, t, output_head, c}, answer.y[c]);
      }
      if (outputs.status.defined()) {
        outputs.status.Set({b, t, output_head}, static_cast<double>(answer.status));
      }
      if (outputs.iterations.defined()) {
        outputs.iterations.Set({b, t, output_head}, static_cast<double>(answer.iterations));
      }
      if (outputs.residual.defined()) {
        outputs.residual.Set({b, t, output_head}, answer.residual);
      }
      Report(answer, {b, t, output_head}, outputs);
    }
  }

  struct Place {
    std::int64_t b, t, head;
  };
  /// What the regression knows beside y.
  static void Report(const definition::Answer& answer, const Place& at, const Outputs& outputs) {
    if (outputs.leverage.defined()) outputs.leverage.Set({at.b, at.t, at.head}, answer.leverage);
    if (outputs.effective_pairs.defined()) {
      outputs.effective_pairs.Set({at.b, at.t, at.head}, answer.effective_pairs);
    }
    if (!outputs.slope.defined()) return;
    for (Eigen::Index i = 0; i < answer.slope.cols(); ++i) {
      for (Eigen::Index j = 0; j < answer.slope.rows(); ++j) {
        outputs.slope.Set({at.b, at.t, at.head, i * answer.slope.rows() + j}, answer.slope(j, i));
      }
    }
  }

  void Normalise(definition::Answer& answer) const {
    const double log_scale = memory_->LogScale();
    Vector y = answer.y.head(constants_.dims.value_dim);
    switch (recipe().reading.normalise_sum) {
      case NormaliseSum::kNone:
        if (log_scale != 0) y *= std::exp(log_scale);
        break;
      case NormaliseSum::kSum: {
        const double z = answer.y[constants_.dims.value_dim];
        if (z == 0) {
          y.setZero();
          answer.status = Status::kSingular;
        } else {
          y /= z;
        }
        break;
      }
      case NormaliseSum::kStabilised:
        y /= std::max(std::abs(answer.y[constants_.dims.value_dim]), std::exp(-log_scale));
        break;
    }
    double size = 0;
    switch (recipe().reading.output_norm) {
      case OutputNorm::kNone: break;
      case OutputNorm::kL2: size = y.norm(); break;
      case OutputNorm::kRms: size = y.norm() / std::sqrt(static_cast<double>(y.size())); break;
    }
    if (size != 0) y /= size;
    answer.y = y;
  }

  Constants constants_;
  const Inputs& inputs_;
  std::unique_ptr<Memory> memory_;
  bool counts_position_;
  std::int64_t queries_;       // query heads that read this memory
  std::int64_t position_ = 0;  // tokens written so far
};

}  // namespace

void RunSequences(Mode mode, const SequenceCall& call, State& state, const Outputs& outputs,
                  Executor& executor, std::vector<Choices>* choices) {
  const auto& [recipe, dims, inputs] = call;
  const std::int64_t count = dims.states() * dims.heads;
  if (choices != nullptr) {
    choices->resize(static_cast<std::size_t>(count));
    for (Choices& of_memory : *choices) of_memory.Restart();
  }
  std::vector<Arrays> arrays(static_cast<std::size_t>(count));
  executor.Run(count, [&](std::int64_t task) {
    const std::int64_t sequence = task / dims.heads;
    const std::int64_t head = task % dims.heads;
    Choices* const own = choices != nullptr ? &(*choices)[static_cast<std::size_t>(task)] : nullptr;
    Reader reader(recipe, dims, inputs, head, state, own);
    reader.Load(LoadArrays(recipe, state, sequence, head));
    if (mode != Mode::kStart) {
      const bool packed = dims.sequences > 0;
      reader.Run(
          mode, packed ? 0 : sequence, packed ? inputs.cu_seqlens.as<std::int64_t>()[sequence] : 0,
          packed ? inputs.cu_seqlens.as<std::int64_t>()[sequence + 1] : dims.tokens, outputs);
    }
    if (mode != Mode::kRetrieve) arrays[static_cast<std::size_t>(task)] = reader.Save();
  });
  if (mode == Mode::kRetrieve || !recipe.reading.causal) return;
  StoreArrays(recipe, arrays, dims.heads, ArithmeticType(inputs, state), state);
}

}  // namespace ttr::definition
