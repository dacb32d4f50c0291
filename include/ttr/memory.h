/// The streaming face of a layer: memorize pairs, retrieve values, save, load.
///
///     ttr::AssociativeMemory memory("weighted_rls{decay: 0.99}", {.key_dim = 16, .value_dim = 1});
///     memory.Memorize(key, value);
///     memory.Retrieve(query, answer);
///     memory.Save("filter.safetensors");
///
/// For every causal recipe; memories that keep their pairs (softmax, kernel regression) grow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/decoder.h"

namespace ttr {

struct TensorFile;

/// Values of gates for one token, by input name: {{"log_decay", x}, ...}, each one number per
/// memory or per channel as the recipe's InputSpecs say. A gate that is a constant can be set once.
using Gates = std::map<std::string, std::span<const double>, std::less<>>;

class AssociativeMemory {
 public:
  struct Sizes {
    std::int64_t key_dim = 1;
    std::int64_t value_dim = 1;
    std::int64_t heads = 1;
  };

  AssociativeMemory(std::string_view recipe, const Sizes& sizes);
  AssociativeMemory(const Recipe& recipe, const Sizes& sizes);

  const Recipe& recipe() const { return layer_->recipe(); }
  const Sizes& sizes() const { return sizes_; }
  /// Tokens memorized so far, over all sessions.
  std::int64_t count() const { return count_; }
  /// After the last token; empty before the first.
  const State& state() const;

  /// Writes one association: key [H, Dk], value [H, Dv] ([n, H, Dk] and [n, H, Dv] where the recipe
  /// takes n steps a token; a recipe without keys ignores `key`). `gates` take the place of those
  /// of SetGate() for this token. Error, and nothing written: sizes, a gate that the recipe does
  /// not take, or one that it requires and that was not given.
  void Memorize(std::span<const double> key, std::span<const double> value,
                const Gates& gates = {});

  /// Reads y = m(q) into `value` [H, Dv]; q is [H, Dk] (ignored by a recipe without queries).
  /// Changes nothing. Returns the worst status of all heads.
  Status Retrieve(std::span<const double> query, std::span<double> value) const;

  /// 1/2 |v - m(k)|^2 of the memory as it is, summed over heads: this pair's part of the
  /// regression's loss.
  double Loss(std::span<const double> key, std::span<const double> value) const;

  /// How well the regression is determined: l_max / l_min, the ratio of the extreme eigenvalues of
  /// D^-1/2 A D^-1/2, where A is the Gram matrix of the keys with the recipe's ridge, as A x = q is
  /// solved with it, and D its diagonal (so that a channel of small keys is not mistaken for a
  /// missing one). The worst of all heads. Answers lose about log10 of it in digits; half as many
  /// under `factor: qr`, whose A is formed for this alone.
  ///
  /// Infinity where some A is singular to rounding (keys that do not span their space, and no ridge
  /// or one that has faded; before the first token without a ridge) or not finite; 1, never NaN,
  /// for recipes whose state has neither "state.a" nor "state.r". Changes nothing; O(H Dk^3), for
  /// an occasional look.
  double Condition() const;

  /// Sets a gate for all later tokens, for example the step size of a delta rule, or a constant of
  /// the recipe ("features.w", "ridge", ...). Inputs of a token that InputSpecs() call optional
  /// need not be set. What queries take (InputSpec::of_query: the steps of gradient descent and
  /// their momentum) is set here alone.
  void SetGate(std::string_view name, std::span<const double> values);

  /// One safetensors file: state, gates, recipe and version. Atomic: a crash leaves the old file or
  /// the new one. `extra` travels along in the header. A loaded memory continues bit for bit.
  void Save(const std::filesystem::path& path,
            const std::map<std::string, std::string>& extra = {}) const;
  static AssociativeMemory Load(const std::filesystem::path& path,
                                std::map<std::string, std::string>* extra = nullptr);

  /// What Save() writes and Load() reads, for programs that keep more than one memory in a file.
  /// `source` stands for the file in errors.
  TensorFile ToTensors(const std::map<std::string, std::string>& extra = {}) const;
  static AssociativeMemory FromTensors(TensorFile file, const std::string& source,
                                       std::map<std::string, std::string>* extra = nullptr);

 private:
  Status Read(const Layer& layer, std::string_view op, std::string_view name,
              std::span<const double> query, std::span<double> value) const;

  std::shared_ptr<const Layer> layer_;
  Layer fit_;  // without what belongs to reading alone (scale, output norm): m itself
  Sizes sizes_;
  std::vector<InputSpec> specs_;
  std::optional<Decoder> decoder_;  // since the first token, which has the number of features
  std::map<std::string, Tensor, std::less<>> gates_;
  std::int64_t count_ = 0;
};

}  // namespace ttr
