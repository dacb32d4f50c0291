#include "ttr/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/io/temp_folder.h"
#include "tests/support/calls.h"
#include "ttr/error.h"
#include "ttr/zoo.h"

namespace ttr {
namespace {

using test::TempFolder;
using Numbers = std::vector<double>;

template <class F>
std::string ErrorOf(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

constexpr std::int64_t kTokens = 7;
constexpr AssociativeMemory::Sizes kSizes{.key_dim = 3, .value_dim = 3, .heads = 2};

Dims DimsOfCall() {
  Dims dims;
  dims.tokens = kTokens;
  dims.query_heads = dims.key_heads = dims.value_heads = dims.heads = kSizes.heads;
  dims.key_dim = kSizes.key_dim;
  dims.value_dim = kSizes.value_dim;
  return dims;
}

// Rows of a tensor [1, rows, ...] as plain numbers; all of it for a constant.
Numbers RowsOf(const TensorView& view, std::int64_t begin, std::int64_t count) {
  const Tensor rows = Tensor::Copy(view.Slice(1, begin, count), DType::kFloat64);
  return {rows.as<double>().begin(), rows.as<double>().end()};
}
Numbers AllOf(const TensorView& view) {
  const Tensor all = Tensor::Copy(view, DType::kFloat64);
  return {all.as<double>().begin(), all.as<double>().end()};
}

// A call of a layer, handed to a memory one token at a time.
class Stream {
 public:
  explicit Stream(const Recipe& recipe)
      : call_(recipe, DimsOfCall(), DType::kFloat64, 11),
        rows_(recipe.optimizer.solver == Solver::kSgd ? recipe.optimizer.steps : 1) {}

  const test::Call& call() const { return call_; }

  void SetConstants(AssociativeMemory& memory) const {
    ForEachGate([&](std::string_view name, const TensorView& view, std::int64_t per_token) {
      if (per_token == 0) memory.SetGate(name, AllOf(view));
    });
  }

  void Memorize(AssociativeMemory& memory, std::int64_t t) const {
    std::vector<std::pair<std::string, Numbers>> saved;
    ForEachGate([&](std::string_view name, const TensorView& view, std::int64_t per_token) {
      if (per_token > 0) saved.emplace_back(name, RowsOf(view, t * per_token, per_token));
    });
    Gates gates;
    for (const auto& [name, numbers] : saved) gates.emplace(name, numbers);
    const Inputs& inputs = call_.inputs;
    const Numbers key = inputs.k.defined() ? RowsOf(inputs.k, t * rows_, rows_) : Numbers{};
    const std::int64_t value_rows = inputs.v.size(1) / kTokens;
    memory.Memorize(key, RowsOf(inputs.v, t * value_rows, value_rows), gates);
  }

  Numbers Retrieve(const AssociativeMemory& memory, std::int64_t t) const {
    const TensorView& q = call_.inputs.q;
    Numbers y(static_cast<std::size_t>(kSizes.heads * kSizes.value_dim), std::nan(""));
    memory.Retrieve(q.defined() ? RowsOf(q, t, 1) : Numbers{}, y);
    return y;
  }

 private:
  // visit(name, view, rows of it a token has; 0 for a constant)
  template <class Visit>
  void ForEachGate(Visit visit) const {
    for (const InputSpec& spec : InputSpecs(call_.recipe)) {
      const TensorView& view = call_.inputs.*spec.view;
      if (!view.defined() || spec.name == "q" || spec.name == "k" || spec.name == "v") continue;
      const std::vector<Axis>& axes = spec.shapes.front();
      const bool per_token =
          axes.size() > 1 && (axes[1] == Axis::kTokens || axes[1] == Axis::kRows);
      visit(spec.name, view, per_token ? view.size(1) / kTokens : 0);
    }
  }

  test::Call call_;
  std::int64_t rows_;
};

class EveryLayer : public testing::TestWithParam<ZooEntry> {
 protected:
  Recipe recipe() const { return ParseRecipe(GetParam().name); }
};

bool Counts(const Recipe& recipe, std::string_view name) {
  const std::vector<StateSpec> specs = StateSpecs(recipe);
  return std::ranges::any_of(
      specs, [&](const StateSpec& spec) { return spec.name == name && spec.counts(); });
}

std::vector<ZooEntry> CausalLayers() {
  std::vector<ZooEntry> layers;
  for (const ZooEntry& entry : Zoo()) {
    if (ParseRecipe(entry.name).reading.causal) layers.push_back(entry);
  }
  return layers;
}

void ExpectNear(const Numbers& actual, const Numbers& expected, const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size()) << where;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 1e-12 * std::max(1.0, std::abs(expected[i])))
        << where << ", element " << i;
  }
}

TEST_P(EveryLayer, RemembersAndAnswersAsTheLayerDoes) {
  const Reading reading = recipe().reading;
  // What these answer depends on the token that they are read at, or on tokens that follow, and not
  // on the query alone.
  const bool answers = !reading.bonus && reading.correction == 0 && reading.read != Read::kBatchEnd;
  const Stream stream(recipe());
  const test::Result whole = test::RunWhole(Layer(recipe()), stream.call());
  AssociativeMemory memory(recipe(), kSizes);
  stream.SetConstants(memory);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Numbers y;
    if (reading.read != Read::kAfter) y = stream.Retrieve(memory, t);
    stream.Memorize(memory, t);
    if (reading.read == Read::kAfter) y = stream.Retrieve(memory, t);
    if (answers) ExpectNear(y, RowsOf(whole.y, t, 1), "token " + std::to_string(t));
  }
  EXPECT_EQ(memory.count(), kTokens);
  State state = memory.state();
  test::TrimPairs(recipe(), state);
  ASSERT_EQ(state.entries().size(), whole.state.entries().size());
  for (const State::Entry& entry : whole.state.entries()) {
    ExpectNear(AllOf(state.Get(entry.name)), AllOf(entry.view), entry.name);
  }
}

TEST_P(EveryLayer, ContinuesBitForBitFromAFile) {
  const TempFolder folder;
  const Stream stream(recipe());
  for (const std::int64_t stop : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4}}) {
    AssociativeMemory memory(recipe(), kSizes);
    stream.SetConstants(memory);
    for (std::int64_t t = 0; t < stop; ++t) stream.Memorize(memory, t);
    memory.Save(folder / "memory", {{"note", "a = b"}});
    std::map<std::string, std::string> extra{{"old", "gone"}};
    AssociativeMemory loaded = AssociativeMemory::Load(folder / "memory", &extra);
    ASSERT_EQ(extra, (std::map<std::string, std::string>{{"note", "a = b"}}));
    ASSERT_EQ(loaded.count(), stop);
    ASSERT_EQ(loaded.recipe(), recipe());
    for (std::int64_t t = stop; t < kTokens; ++t) {
      ASSERT_EQ(stream.Retrieve(memory, t), stream.Retrieve(loaded, t)) << t;
      stream.Memorize(memory, t);
      stream.Memorize(loaded, t);
      ASSERT_EQ(stream.Retrieve(memory, t), stream.Retrieve(loaded, t)) << t;
    }
    ASSERT_EQ(memory.state().entries().size(), loaded.state().entries().size());
    for (const State::Entry& entry : memory.state().entries()) {
      ASSERT_EQ(entry.view.dtype(), Counts(recipe(), entry.name) ? DType::kInt64 : DType::kFloat64)
          << entry.name;
      ASSERT_EQ(AllOf(entry.view), AllOf(loaded.state().Get(entry.name))) << entry.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, EveryLayer, testing::ValuesIn(CausalLayers()),
                         [](const auto& entry) { return std::string(entry.param.name); });

TEST(Memory, GivesItsQueriesWhatTheyTake) {
  // x_1 = a q, x_2 = x_1 + b (q - A x_1) + m x_1 with a = b = .1; A = 4, B = 6.
  const auto answer = [](AssociativeMemory memory) {
    memory.Memorize(Numbers{2}, Numbers{3});
    Numbers y(1);
    memory.Retrieve(Numbers{1}, y);
    return y[0];
  };
  const AssociativeMemory::Sizes one{.key_dim = 1, .value_dim = 1, .heads = 1};
  AssociativeMemory steps("batch_gd{steps: 2, eta_kind: input}", one);
  steps.SetGate("step", Numbers{.1, .2});
  EXPECT_NEAR(answer(steps), 6 * (.3 - .02 * 4), 1e-15);
  AssociativeMemory momentum("batch_gd{steps: 2, eta_kind: constant, eta: 0.1, momentum: true}",
                             one);
  momentum.SetGate("momentum", Numbers{.5});
  EXPECT_NEAR(answer(momentum), 6 * .1 * (2 - .4 + .5), 1e-15);
  EXPECT_EQ(
      ErrorOf([&] { steps.Memorize(Numbers{2}, Numbers{3}, {{"step", Numbers{.1, .2}}}); }),
      "[Memorize] gate 'step' must be set by SetGate, for queries take it but is given with a "
      "pair");
  AssociativeMemory bare("batch_gd{steps: 2, eta_kind: input}", one);
  EXPECT_EQ(ErrorOf([&] { answer(bare); }), "[Retrieve] step must be [B,T,H,n] but is absent");
}

TEST(Memory, DeltaRuleByHand) {
  AssociativeMemory memory("deltanet", {.key_dim = 2, .value_dim = 1});
  memory.SetGate("step", Numbers{1});
  memory.Memorize(Numbers{1, 0}, Numbers{3});
  memory.Memorize(Numbers{0, 1}, Numbers{5});
  Numbers y(1);
  EXPECT_EQ(memory.Retrieve(Numbers{1, 0}, y), Status::kSolved);
  EXPECT_EQ(y[0], 3);
  memory.Memorize(Numbers{1, 0}, Numbers{7}, {{"step", Numbers{0.5}}});  // half of the way to 7
  memory.Retrieve(Numbers{1, 0}, y);
  EXPECT_EQ(y[0], 5);
  memory.Memorize(Numbers{1, 0}, Numbers{9});  // the gate that was set holds again
  memory.Retrieve(Numbers{2, 1}, y);
  EXPECT_EQ(y[0], 23);
  EXPECT_EQ(memory.count(), 4);
}

TEST(Memory, LossIsHalfTheSquaredErrorOverAllHeads) {
  AssociativeMemory memory("linear_attention", {.key_dim = 1, .value_dim = 2, .heads = 2});
  memory.Memorize(Numbers{1, 2}, Numbers{1, 0, 0, 1});  // M = (1, 0) and (0, 2)
  // Errors (1, 1) and (3, 2 - 2).
  EXPECT_EQ(memory.Loss(Numbers{1, 1}, Numbers{2, 1, 3, 2}), (1 + 1 + 9 + 0) / 2.0);
}

TEST(Memory, LossIsOfTheMemoryNotOfItsReading) {
  const Numbers key{1, 2};
  const Numbers value{4};
  AssociativeMemory plain("linear_attention", {.key_dim = 2, .value_dim = 1});
  AssociativeMemory read("linear_attention{scale: 3, output_norm: l2}",
                         {.key_dim = 2, .value_dim = 1});
  plain.Memorize(key, value);
  read.Memorize(key, value);
  EXPECT_EQ(plain.Loss(key, value), 16 * 16 / 2.0);  // m(k) = 4 |k|^2 = 20
  EXPECT_EQ(read.Loss(key, value), plain.Loss(key, value));
}

TEST(Memory, AnEmptyMemoryAnswers) {
  Numbers y(2, std::nan(""));
  EXPECT_EQ(AssociativeMemory("rls", {.key_dim = 3, .value_dim = 2}).Retrieve(Numbers{1, 2, 3}, y),
            Status::kSolved);
  EXPECT_EQ(y, (Numbers{0, 0}));
  const AssociativeMemory softmax("softmax", {.key_dim = 3, .value_dim = 2});
  EXPECT_EQ(softmax.Retrieve(Numbers{1, 2, 3}, y), Status::kSingular);  // no neighbour
  EXPECT_EQ(y, (Numbers{0, 0}));
}

TEST(Memory, StatusIsTheWorstOfAllHeads) {
  // Minimum norm: head 0 has seen a key, head 1 only zeros.
  AssociativeMemory memory("rls{ridge: 0}", {.key_dim = 1, .value_dim = 1, .heads = 2});
  memory.Memorize(Numbers{1, 0}, Numbers{1, 1});
  Numbers y(2);
  EXPECT_EQ(memory.Retrieve(Numbers{1, 1}, y), Status::kRegularised);
  memory.Memorize(Numbers{1, 1}, Numbers{1, 1});
  EXPECT_EQ(memory.Retrieve(Numbers{1, 1}, y), Status::kSolved);
}

TEST(Memory, ManyHeads) {
  // More than the room on the stack for their statuses.
  AssociativeMemory memory("linear_attention", {.key_dim = 1, .value_dim = 1, .heads = 100});
  memory.Memorize(Numbers(100, 2), Numbers(100, 3));
  Numbers y(100);
  EXPECT_EQ(memory.Retrieve(Numbers(100, 1), y), Status::kSolved);
  EXPECT_EQ(y, Numbers(100, 6));
}

TEST(Memory, CopiesAreIndependent) {
  AssociativeMemory first("linear_attention", {.key_dim = 1, .value_dim = 1});
  first.Memorize(Numbers{1}, Numbers{1});
  AssociativeMemory second = first;
  second.Memorize(Numbers{1}, Numbers{1});
  Numbers y(1);
  first.Retrieve(Numbers{1}, y);
  EXPECT_EQ(y[0], 1);
  second.Retrieve(Numbers{1}, y);
  EXPECT_EQ(y[0], 2);
}

TEST(MemoryErrors, Sizes) {
  AssociativeMemory memory("delta_product{steps: 2}", {.key_dim = 2, .value_dim = 1});
  EXPECT_EQ(ErrorOf([&] { memory.Memorize(Numbers(2), Numbers(2)); }),
            "[Memorize] key must be [n,H,Dk] = [2, 1, 2] but is 2 numbers");
  EXPECT_EQ(ErrorOf([&] { memory.Memorize(Numbers(4), Numbers(1)); }),
            "[Memorize] value must be [n,H,Dv] = [2, 1, 1] but is 1 numbers");
  Numbers y(3);
  EXPECT_EQ(ErrorOf([&] { memory.Retrieve(Numbers(2), y); }),
            "[Retrieve] value must be [H,Dv] = [1, 1] but is 3 numbers");
  EXPECT_EQ(ErrorOf([&] { memory.Retrieve(Numbers(4), y); }),
            "[Retrieve] query must be [H,Dk] = [1, 2] but is 4 numbers");
  EXPECT_EQ(ErrorOf([&] { (void)memory.Loss(Numbers(1), Numbers(1)); }),
            "[Loss] key must be [H,Dk] = [1, 2] but is 1 numbers");
  EXPECT_EQ(ErrorOf([] { AssociativeMemory("rls", {.key_dim = 0}); }),
            "[AssociativeMemory] key_dim must be from 1 to 2^30 but is 0");
}

TEST(MemoryErrors, Gates) {
  AssociativeMemory memory("gated_deltanet", {.key_dim = 2, .value_dim = 1, .heads = 2});
  const Numbers key(4);
  const Numbers value(2);
  const std::string shape = " must be [B,T,H] with H = 2, Dk = 2, Dv = 1 but is ";
  memory.SetGate("log_decay", Numbers{-1, -1});
  EXPECT_EQ(ErrorOf([&] { memory.Memorize(key, value); }),
            "[Memorize] gate 'step'" + shape + "absent");
  EXPECT_EQ(ErrorOf([&] { memory.Memorize(key, value, {{"step", Numbers(3)}}); }),
            "[Memorize] gate 'step'" + shape + "3 numbers");
  EXPECT_EQ(ErrorOf([&] { memory.SetGate("stop", Numbers(2)); }),
            "[SetGate] gate must be one of log_decay, step but is 'stop'");
  EXPECT_EQ(ErrorOf([&] { memory.Memorize(key, value, {{"k", Numbers(2)}}); }),
            "[Memorize] gate must be one of log_decay, step but is 'k'");
  EXPECT_EQ(ErrorOf([&] { memory.SetGate("step", Numbers{1, -1}); }),
            "[SetGate] step must be >= 0 but is -1 at [0,0,1]");
  EXPECT_EQ(memory.count(), 0);
  EXPECT_TRUE(memory.state().empty());
  EXPECT_EQ(ErrorOf([] { AssociativeMemory("linear_attention", {}).SetGate("step", Numbers(1)); }),
            "[SetGate] gate must be absent, as this recipe takes none but is 'step'");
}

TEST(MemoryErrors, NotCausal) {
  EXPECT_NE(ErrorOf([] { AssociativeMemory("intention", {}); }).find("causal: false"),
            std::string::npos);
}

}  // namespace
}  // namespace ttr
