#include "experiments/real/recall.h"

#include <algorithm>
#include <bit>
#include <set>

#include "experiments/data/embedding.h"
#include "ttr/error.h"
#include "ttr/executor.h"

namespace ttr::experiments {
namespace {

constexpr const char* kCounts = "pair_counts";
// Scores held at a time: tokens of a block times words of the vocabulary.
constexpr std::int64_t kScores = std::int64_t{1} << 21;

const RecallOptions& Checked(const RecallOptions& options) {
  if (options.dim < 1 || options.dim > 4096) {
    throw Error("recall", "--dim", "from 1 to 4096", std::to_string(options.dim));
  }
  if (options.kept < 1) {
    throw Error("recall", "--kept", "1 or more", std::to_string(options.kept));
  }
  return options;
}

}  // namespace

RecallRun::RecallRun(const RecallOptions& options)
    : options_(Checked(options)), scorer_(ParseRecipe("linear_attention")), novelty_(options.kind) {
  std::set<std::string> known = {kCounts};
  results_.push_back({.method = kCounts});
  for (const NamedRecipe& memory : options.memories) {
    if (!known.insert(memory.text).second) {
      throw Error("recall", "--memory", "different from all others", "'" + memory.text + "' twice");
    }
    try {
      readers_.emplace_back(memory.recipe, options.dim, options.gates);
    } catch (const Error& error) {
      throw Error("--memory '" + memory.text + "': " + error.what());
    }
    results_.push_back({.method = memory.text});
  }
  mixtures_.resize(readers_.size());
  latest_.resize(readers_.size(), -1);
}

void RecallRun::AddToVocabulary(std::string_view token, bool is_new) {
  const std::int64_t id = vocabulary_.Add(token);
  if (!is_new) return;
  const std::int64_t dim = options_.dim;
  std::vector<double> vector(static_cast<std::size_t>(dim));
  UnitVector(options_.seed, id, vector);
  for (const double x : vector) rows_.push_back(static_cast<float>(x));
  if (vocabulary_.size() > capacity_) {
    capacity_ = std::max<std::int64_t>(1024, 2 * capacity_);
    columns_.assign(static_cast<std::size_t>(dim * capacity_), 0);
    for (std::int64_t i = 0; i < id; ++i) {
      for (std::int64_t j = 0; j < dim; ++j) columns_[j * capacity_ + i] = rows_[i * dim + j];
    }
  }
  for (std::int64_t j = 0; j < dim; ++j) columns_[j * capacity_ + id] = rows_[id * dim + j];
}

void RecallRun::Read(std::string_view token) {
  const std::int64_t known = vocabulary_.size();
  const bool is_new = vocabulary_.Find(token) == Vocabulary::kAbsent;
  AddToVocabulary(token, is_new);
  const std::int64_t id = vocabulary_.Find(token);
  const std::int64_t before = last_two_.empty() ? -1
                              : block_.empty()  ? last_two_.back()
                                                : block_.back().token;
  Question question{.before = before,
                    .token = id,
                    .vocabulary = known,
                    .is_new = is_new,
                    .seen = before >= 0 && counts_.Known(before),
                    .pair = before >= 0 && counts_.Followed(before, id),
                    .shared_bits = novelty_.Bits(is_new, token)};
  const std::int64_t best = before >= 0 ? counts_.Best(before) : -1;
  const double bits = is_new || before < 0 ? 0 : counts_.Bits(before, id);
  Count(results_[0], question, tokens_, best, bits);
  counts_.Add(before, id);
  ++tokens_;
  if (tokens_ <= 2) {
    // Nothing has been memorized when the first two come: no memory has anything to say. The second
    // can be known already (the first again), and then is the only one that can be meant.
    for (std::size_t m = 0; m < readers_.size(); ++m) {
      Count(results_[m + 1], question, tokens_ - 1, -1, 0);
    }
    last_two_.push_back(id);
    return;
  }
  block_.push_back(question);
  if (static_cast<std::int64_t>(block_.size()) == kBlock) Finish();
}

void RecallRun::Finish() {
  if (block_.empty()) return;
  for (std::size_t m = 0; m < readers_.size(); ++m) Answer(m);
  for (const Question& question : block_) {
    last_two_ = {last_two_.back(), question.token};
  }
  block_.clear();
}

void RecallRun::Answer(std::size_t memory) {
  RecallReader& reader = readers_[memory];
  RecallResult& result = results_[memory + 1];
  const std::int64_t dim = options_.dim;
  const std::int64_t first = tokens_ - static_cast<std::int64_t>(block_.size());
  auto count = static_cast<std::int64_t>(block_.size());
  if (reader.grows()) count = std::min(count, options_.kept - first);
  if (count <= 0) return;

  std::vector<float> embeddings;
  const auto append = [&](std::int64_t id) {
    embeddings.insert(embeddings.end(), rows_.begin() + id * dim, rows_.begin() + (id + 1) * dim);
  };
  for (const std::int64_t id : last_two_) append(id);
  for (std::int64_t t = 0; t < count; ++t) append(block_[t].token);
  std::vector<float> answers(static_cast<std::size_t>(count * dim));
  reader.Read(embeddings, answers);

  // The inner products with every token are what a linear memory with the vocabulary as its state
  // answers.
  const std::int64_t words = vocabulary_.size();
  const std::int64_t strides[] = {dim * capacity_, dim * capacity_, capacity_, 1};
  State vocabulary;
  vocabulary.Bind("state",
                  TensorView(columns_.data(), DType::kFloat32, {1, 1, dim, words}, strides));
  const std::int64_t piece = std::clamp<std::int64_t>(kScores / words, 1, count);
  std::vector<float> scores(static_cast<std::size_t>(piece * words));
  std::vector<ScoreSummary> summaries(static_cast<std::size_t>(piece));
  for (std::int64_t begin = 0; begin < count; begin += piece) {
    const std::int64_t size = std::min(piece, count - begin);
    scorer_.Retrieve({.q = TensorView::Of(answers.data() + begin * dim, {1, size, 1, dim})},
                     vocabulary,
                     {.y = TensorView::Of(scores.data(), {1, size, 1, words}), .status = {}});
    constexpr std::int64_t kTokensATask = 16;
    DefaultExecutor().Run((size + kTokensATask - 1) / kTokensATask, [&](std::int64_t task) {
      const std::int64_t end = std::min(size, (task + 1) * kTokensATask);
      for (std::int64_t t = task * kTokensATask; t < end; ++t) {
        const Question& question = block_[begin + t];
        const auto known = std::span(scores).subspan(t * words, question.vocabulary);
        summaries[t] = Summarise(known, question.is_new ? 0 : question.token);
      }
    });
    for (std::int64_t t = 0; t < size; ++t) {
      const Question& question = block_[begin + t];
      const double bits = question.is_new ? 0 : mixtures_[memory].Bits(summaries[t]);
      latest_[memory] = summaries[t].best;
      Count(result, question, first + begin + t, summaries[t].best, bits);
    }
  }
}

void RecallRun::Count(RecallResult& result, const Question& question, std::int64_t position,
                      std::int64_t answer, double bits) {
  ++result.tokens;
  result.bits += question.shared_bits + bits;
  if (!question.is_new) {
    ++result.known;
    result.known_bits += bits;
  }
  if (question.before < 0) return;  // nothing to ask with
  const std::int64_t hit = answer == question.token ? 1 : 0;
  const auto add = [&](HitRate& rate) {
    rate.hits += hit;
    ++rate.questions;
  };
  add(result.all);
  if (question.pair) add(result.pair);
  if (!question.seen) return;
  add(result.seen);
  const auto bin = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(position))) - 1;
  add(result.bins[std::min(bin, RecallResult::kBins - 1)]);
}

}  // namespace ttr::experiments
