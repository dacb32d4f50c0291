#include "experiments/studies/recall_task.h"

#include <map>
#include <numeric>
#include <span>
#include <unordered_map>

#include "experiments/data/embedding.h"

namespace ttr::experiments {
namespace {

// Vectors of tokens by their number.
class Embedder {
 public:
  Embedder(const MqarExample& example, std::int64_t dim, std::uint64_t seed, Embedding embedding)
      : dim_(dim), seed_(seed) {
    if (embedding != Embedding::kOrthonormal) return;
    const auto pairs = static_cast<std::int64_t>(example.pairs.size());
    table_ = OrthonormalVectors(seed, 2 * pairs, dim);
    for (std::int64_t j = 0; j < pairs; ++j) {
      place_[example.pairs[static_cast<std::size_t>(j)].cue] = j;
      place_[example.pairs[static_cast<std::size_t>(j)].response] = pairs + j;
    }
  }

  void Append(std::int64_t token, std::vector<double>& rows) {
    const auto dim = static_cast<std::size_t>(dim_);
    auto place = place_.find(token);
    if (place == place_.end()) {
      place = place_.emplace(token, static_cast<std::int64_t>(table_.size() / dim)).first;
      table_.resize(table_.size() + dim);
      UnitVector(seed_, token, std::span<double>(table_).last(dim));
    }
    const auto from = table_.begin() + place->second * dim_;
    rows.insert(rows.end(), from, from + dim_);
  }

 private:
  std::int64_t dim_;
  std::uint64_t seed_;
  std::vector<double> table_;
  std::unordered_map<std::int64_t, std::int64_t> place_;  // row of the table
};

double Dot(const double* a, const double* b, std::int64_t dim) {
  return std::inner_product(a, a + dim, b, 0.0);
}

}  // namespace

RecallTask MakeRecallTask(const MqarExample& example, std::int64_t dim, std::uint64_t seed,
                          Embedding embedding, Memorized memorized, bool decode_cues) {
  Embedder embedder(example, dim, seed, embedding);
  RecallTask task;
  task.dim = dim;
  std::map<std::int64_t, std::int64_t> row_of;
  for (const MqarPair& pair : example.pairs) {
    row_of[pair.response] = static_cast<std::int64_t>(row_of.size());
    embedder.Append(pair.response, task.candidates);
  }
  if (decode_cues) {
    for (const MqarPair& pair : example.pairs) embedder.Append(pair.cue, task.candidates);
  }
  if (memorized == Memorized::kPairs) {
    for (const MqarPair& pair : example.memory) {
      embedder.Append(pair.cue, task.k);
      embedder.Append(pair.response, task.v);
    }
  } else {
    for (std::size_t t = 1; t + 1 < example.tokens.size(); ++t) {
      embedder.Append(example.tokens[t - 1], task.k);
      embedder.Append(example.tokens[t], task.v);
    }
  }
  const auto written = static_cast<std::int64_t>(task.k.size()) / dim;
  for (const MqarQuery& query : example.queries) {
    embedder.Append(query.cue, task.q);
    task.answer.push_back(row_of.at(query.response));
    // The pair (x_{t-1}, x_t) is number t - 1: at position t, t of them are there.
    task.after.push_back(std::min(query.position, written));
  }
  return task;
}

double Accuracy(const RecallTask& task, const std::vector<double>& y) {
  const auto candidates = static_cast<std::int64_t>(task.candidates.size()) / task.dim;
  std::int64_t right = 0;
  for (std::size_t i = 0; i < task.answer.size(); ++i) {
    const double* answer = y.data() + static_cast<std::int64_t>(i) * task.dim;
    const auto score = [&](std::int64_t row) {
      return Dot(answer, task.candidates.data() + row * task.dim, task.dim);
    };
    const double mine = score(task.answer[i]);
    bool best = true;
    for (std::int64_t row = 0; row < candidates && best; ++row) {
      best = row == task.answer[i] || mine > score(row);
    }
    right += best ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(task.answer.size());
}

std::vector<double> AskInPlace(const StudyLayer& layer, const RecallTask& task) {
  const auto rows_of = [&](const std::vector<double>& all, std::int64_t begin, std::int64_t end) {
    return std::span<const double>(all).subspan(static_cast<std::size_t>(begin * task.dim),
                                                static_cast<std::size_t>((end - begin) * task.dim));
  };
  std::vector<double> y;
  State state;
  std::int64_t written = 0;
  for (std::size_t i = 0; i < task.after.size(); ++i) {
    if (task.after[i] > written) {
      layer.Memorize({.key_dim = task.dim,
                      .value_dim = task.dim,
                      .k = rows_of(task.k, written, task.after[i]),
                      .v = rows_of(task.v, written, task.after[i])},
                     state);
      written = task.after[i];
    }
    const auto place = static_cast<std::int64_t>(i);
    const std::vector<double> answer =
        layer.Retrieve(rows_of(task.q, place, place + 1), task.dim, task.dim, state);
    y.insert(y.end(), answer.begin(), answer.end());
  }
  return y;
}

}  // namespace ttr::experiments
