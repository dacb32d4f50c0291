#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/definition/memory.h"
#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Recipe Trained(std::int64_t depth = 1, std::int64_t mini_batch = 1) {
  Recipe recipe;
  recipe.function.kind = FunctionClass::kNetwork;
  recipe.function.depth = depth;
  recipe.function.expansion = 2;
  recipe.optimizer.solver = Solver::kSgd;
  recipe.optimizer.mini_batch = mini_batch;
  return recipe;
}

/// Constants with a learned norm and row factors that are not trivial.
Constants Learned(const Recipe& recipe, int dk, int dv) {
  Constants constants = Sized(recipe, dk, dv);
  Noise noise(77);
  constants.ln_weight = Vector::Ones(dv) + .3 * noise.Vec(dv);
  constants.ln_bias = .3 * noise.Vec(dv);
  constants.row_bias = .2 * noise.Vec(recipe.optimizer.mini_batch);
  return constants;
}

Token Step(Noise& noise, int dk, int dv, double step) {
  return Pair(noise.Vec(dk), noise.Vec(dv), step);
}

/// Start weights that leave nothing at zero.
Arrays Filled(const Constants& constants, std::uint64_t seed) {
  Arrays state = MakeNetwork(constants)->Save();
  Noise noise(seed);
  for (auto& [name, array] : state) {
    if (name == "state.position") continue;
    for (double& x : array.values) x = .5 * noise.Normal();
  }
  return state;
}

std::vector<Recipe> Shapes() {
  std::vector<Recipe> recipes;
  for (const std::int64_t depth : {1, 2, 3}) {
    for (const Activation activation :
         {Activation::kSilu, Activation::kGelu, Activation::kRelu, Activation::kTanh}) {
      for (const bool dressed : {false, true}) {
        Recipe recipe = Trained(depth);
        recipe.function.activation = activation;
        recipe.function.norm = recipe.function.residual = recipe.function.bias = dressed;
        recipes.push_back(recipe);
      }
    }
  }
  for (const int part : {0, 1, 2}) {
    Recipe recipe = Trained(2);
    (part == 0   ? recipe.function.norm
     : part == 1 ? recipe.function.residual
                 : recipe.function.bias) = true;
    recipes.push_back(recipe);
  }
  for (const std::int64_t depth : {2, 3}) {
    Recipe recipe = Trained(depth);
    recipe.function.gated = true;
    recipes.push_back(recipe);
    recipe.function.norm = recipe.function.residual = recipe.function.bias = true;
    recipe.optimizer.loss = Loss::kDotProduct;
    recipes.push_back(recipe);
  }
  return recipes;
}

TEST(Network, EveryGradientIsTheCentralDifferenceOfTheLoss) {
  for (const Recipe& recipe : Shapes()) {
    const int d = 4;
    const Constants constants = Learned(recipe, d, d);
    const Arrays start = Filled(constants, 1);
    Noise noise(2);
    const Token token = Step(noise, d, d, 1);
    const auto loss = [&](const Arrays& weights) {
      const auto memory = MakeNetwork(constants);
      memory->Load(weights);
      const Vector y = memory->Read(token.k).y, v = token.v.col(0);
      if (recipe.optimizer.loss == Loss::kDotProduct) return -v.dot(y);
      return .5 * (y - v).squaredNorm();
    };
    // One step of size 1 leaves W - gradient.
    const auto memory = MakeNetwork(constants);
    memory->Load(start);
    memory->Write(token);
    const Arrays stepped = memory->Save();
    for (const auto& [name, array] : start) {
      for (std::size_t i = 0; i < array.values.size(); ++i) {
        const double h = 1e-5;
        Arrays high = start;
        Arrays low = start;
        high.at(name).values[i] += h;
        low.at(name).values[i] -= h;
        const double numeric = (loss(high) - loss(low)) / (2 * h);
        const double analytic = array.values[i] - stepped.at(name).values[i];
        EXPECT_NEAR(analytic, numeric, 1e-7 * (1 + std::abs(numeric)))
            << name << "[" << i << "], depth " << recipe.function.depth << ", activation "
            << static_cast<int>(recipe.function.activation);
      }
    }
  }
}

TEST(Network, ForwardByHand) {
  // f = W2^T act(W1^T x + b1) + b2 in one dimension: W1 = 2, b1 = -1, W2 = 3, b2 = .5, x = 1: z
  // = 1.
  const auto at = [](Activation activation) {
    Recipe recipe = Trained(2);
    recipe.function.activation = activation;
    recipe.function.expansion = 1;
    recipe.function.bias = true;
    const auto memory = MakeNetwork(Sized(recipe, 1, 1));
    memory->Load({{"state.w1", {{1, 1}, {2}}},
                  {"state.b1", {{1}, {-1}}},
                  {"state.w2", {{1, 1}, {3}}},
                  {"state.b2", {{1}, {.5}}}});
    return memory->Read(Column({1})).y(0);
  };
  EXPECT_NEAR(at(Activation::kTanh), 3 * std::tanh(1.) + .5, 1e-15);
  EXPECT_NEAR(at(Activation::kSilu), 3 / (1 + std::exp(-1.)) + .5, 1e-15);
  EXPECT_NEAR(at(Activation::kRelu), 3.5, 1e-15);
  // GELU(1), tanh form: 1/2 (1 + tanh(0.7978845608 * 1.044715)) = 0.8411919906.
  EXPECT_NEAR(at(Activation::kGelu), 3 * .8411919906082768 + .5, 1e-14);
}

TEST(Network, GateByHand) {
  // z = (2, 3) x at x = 1: f = silu(2) 3.
  Recipe recipe = Trained(2);
  recipe.function.expansion = 1;
  recipe.function.gated = true;
  const auto memory = MakeNetwork(Sized(recipe, 1, 1));
  memory->Load({{"state.w1", {{1, 2}, {2, 3}}}, {"state.w2", {{1, 1}, {1}}}});
  EXPECT_NEAR(memory->Read(Column({1})).y(0), 2 / (1 + std::exp(-2.)) * 3, 1e-15);
}

// W <- W + sum step v k^T, of whole mini-batches: none of their tokens is read before their end.
TEST(Network, OfDotProductsReadsWholeMiniBatches) {
  Noise noise(6);
  Recipe recipe = Trained(1, 3);
  recipe.optimizer.loss = Loss::kDotProduct;
  recipe.reading.read = Read::kBatchStart;
  const auto memory = MakeNetwork(Sized(recipe, 4, 3));
  Matrix m = Matrix::Zero(3, 4), next = m;
  for (int t = 0; t < 10; ++t) {
    const Vector q = noise.Vec(4);
    EXPECT_LT(Gap(memory->Read(q).y, m * q), 1e-13);
    const Token token = Step(noise, 4, 3, noise.Uniform(.1, .5));
    memory->Write(token);
    EXPECT_EQ(memory->CompletesBatch(), t % 3 == 2);
    next += token.step(0) * token.v * token.k.transpose();
    if (t % 3 == 2) m = next;
  }
}

// One weight, key 1, loss (w - v)^2 / 2: the gradient is w - v.
TEST(Network, AdaptedStepsByHand) {
  const auto written = [](Adapt adapt) {
    Recipe recipe = Trained();
    recipe.optimizer.adapt = adapt;
    recipe.optimizer.momentum = adapt == Adapt::kAdam;
    recipe.optimizer.curvature_decay = .75;
    recipe.optimizer.eps = .5;
    const auto memory = MakeNetwork(Sized(recipe, 1, 1));
    memory->Load({{"state.w1", {{1, 1}, {3}}}, {"state.squares_w1", {{1, 1}, {4}}}});
    Token token = Pair(Column({1}), Column({1}), .1);  // the gradient is 2
    token.momentum = .25;
    memory->Write(token);
    Token padding = Pair(Column({kNaN}), Column({1}), 0);
    padding.momentum = 1;
    memory->Write(padding);
    return memory->Save();
  };
  const Arrays adagrad = written(Adapt::kAdagrad);
  EXPECT_NEAR(adagrad.at("state.squares_w1").values[0], 8, 1e-15);
  EXPECT_NEAR(adagrad.at("state.w1").values[0], 3 - .1 * 2 / (std::sqrt(8.) + .5), 1e-15);
  const Arrays adam = written(Adapt::kAdam);
  EXPECT_NEAR(adam.at("state.s_w1").values[0], 1.5, 1e-15);
  EXPECT_NEAR(adam.at("state.squares_w1").values[0], 3, 1e-15);  // 4, and .75 of that
  EXPECT_NEAR(adam.at("state.w1").values[0], 3 - .1 * 1.5 / (2 + .5), 1e-15);
}

TEST(Network, LayerNormAndResidualByHand) {
  // W = I, x = (1, 3): z - mean = (-1, 1), variance 1.
  Recipe recipe = Trained();
  recipe.function.norm = recipe.function.residual = true;
  Constants constants = Sized(recipe, 2, 2);
  constants.ln_weight = Column({2, 5});
  constants.ln_bias = Column({10, 20});
  const auto memory = MakeNetwork(constants);
  memory->Load({{"state.w1", {{2, 2}, {1, 0, 0, 1}}}});
  const double s = std::sqrt(1 + 1e-6);
  EXPECT_LT(Gap(memory->Read(Column({1, 3})).y, Column({1 + 10 - 2 / s, 3 + 20 + 5 / s})), 1e-14);
}

TEST(Network, StartsFromZerosOrFromItsSeed) {
  EXPECT_EQ(MakeNetwork(Sized(Trained(1), 3, 2))->Save().at("state.w1").matrix(),
            Matrix::Zero(3, 2));
  Recipe recipe = Trained(2);
  recipe.function.bias = true;
  Constants constants = Sized(recipe, 64, 64);
  constants.head = 1;
  const Arrays start = MakeNetwork(constants)->Save();
  const Matrix w1 = start.at("state.w1").matrix();
  EXPECT_EQ(w1.cols(), 128);
  EXPECT_EQ(start.at("state.b1").vector(), Vector::Zero(128));
  CounterRandom random(0, 1);
  EXPECT_EQ(w1(0, 0), random.NormalAt(0) / 8);
  EXPECT_EQ(w1(2, 5), random.NormalAt(2 * 128 + 5) / 8);
  EXPECT_EQ(start.at("state.w2").matrix()(0, 1), random.NormalAt(64 * 128 + 1) / std::sqrt(128.));
  EXPECT_EQ(MakeNetwork(constants)->Save().at("state.w1").values, start.at("state.w1").values);
  constants.head = 2;
  EXPECT_NE(MakeNetwork(constants)->Save().at("state.w1").matrix(), w1);
  constants.head = 1;
  constants.recipe.function.seed = 1;
  EXPECT_NE(MakeNetwork(constants)->Save().at("state.w1").matrix(), w1);
}

TEST(Network, PlainTttLinearIsDeltaNet) {
  // M <- M + b (v - M k) k^T
  Noise noise(3);
  const auto memory = MakeNetwork(Sized(Trained(), 4, 3));
  Matrix m = Matrix::Zero(3, 4);
  for (int t = 0; t < 10; ++t) {
    const Token token = Step(noise, 4, 3, noise.Uniform(.1, .5));
    memory->Write(token);
    m += token.step(0) * (token.v - m * token.k) * token.k.transpose();
    const Vector q = noise.Vec(4);
    EXPECT_LT(Gap(memory->Read(q).y, m * q), 1e-12 * (1 + m.norm()));
  }
}

TEST(Network, OneMiniBatchIsLinearAttention) {
  Noise noise(4);
  const auto memory = MakeNetwork(Sized(Trained(1, 12), 4, 3));
  Matrix m = Matrix::Zero(3, 4);
  for (int t = 0; t < 12; ++t) {
    const Token token = Step(noise, 4, 3, noise.Uniform(.1, 1));
    memory->Write(token);
    m += token.step(0) * token.v * token.k.transpose();
    const Vector q = noise.Vec(4);
    EXPECT_LT(Gap(memory->Read(q).y, m * q), 1e-13);
  }
}

TEST(Network, TitansOfDepthOneWithoutMomentumIsDeltaNet) {
  Recipe recipe = Trained();
  recipe.optimizer.momentum = true;
  recipe.optimizer.weight_decay = WeightDecay::kDecoupled;
  Noise noise(5);
  const auto memory = MakeNetwork(Sized(recipe, 4, 3));
  Matrix m = Matrix::Zero(3, 4);
  for (int t = 0; t < 10; ++t) {
    const Token token = Step(noise, 4, 3, noise.Uniform(.1, .5));  // momentum and weight decay 0
    memory->Write(token);
    m += token.step(0) * (token.v - m * token.k) * token.k.transpose();
    const Vector q = noise.Vec(4);
    EXPECT_LT(Gap(memory->Read(q).y, m * q), 1e-12 * (1 + m.norm()));
  }
}

TEST(Network, TitansByHand) {
  // In one dimension, k = 1: grad = W - v. W_0 = 0, S_0 = 0.
  Recipe recipe = Trained();
  recipe.optimizer.momentum = true;
  recipe.optimizer.weight_decay = WeightDecay::kDecoupled;
  Token token = Pair(Column({1}), Column({4}), .5);
  token.momentum = .25;
  token.weight_decay = .1;
  const auto memory = MakeNetwork(Sized(recipe, 1, 1));
  memory->Write(token);  // S = 2, W = 2
  EXPECT_NEAR(memory->Read(Column({1})).y(0), 2, 1e-15);
  memory->Write(token);  // S = .5 + 1 = 1.5, W = 1.8 + 1.5
  EXPECT_NEAR(memory->Read(Column({1})).y(0), 3.3, 1e-15);

  recipe.optimizer.weight_decay = WeightDecay::kCoupled;
  const auto coupled = MakeNetwork(Sized(recipe, 1, 1));
  coupled->Write(token);
  coupled->Write(token);  // W = (1 - .05) 2 + 1.5
  EXPECT_NEAR(coupled->Read(Column({1})).y(0), 3.4, 1e-15);
}

TEST(Network, TitansInMiniBatchesByHand) {
  // As above with mini-batches of 2: the second gradient is still at W = 0.
  Recipe recipe = Trained(1, 2);
  recipe.optimizer.momentum = true;
  recipe.optimizer.weight_decay = WeightDecay::kDecoupled;
  Token token = Pair(Column({1}), Column({4}), .5);
  token.momentum = .25;
  token.weight_decay = .1;
  const auto memory = MakeNetwork(Sized(recipe, 1, 1));
  memory->Write(token);  // S = 2, W = 2
  memory->Write(token);  // S = .5 + 2, W = 1.8 + 2.5 = 4.3
  EXPECT_NEAR(memory->Read(Column({1})).y(0), 4.3, 1e-14);
  memory->Write(token);  // gradient .3 at 4.3: S = .625 - .15, W = 3.87 + .475
  EXPECT_NEAR(memory->Read(Column({1})).y(0), 4.345, 1e-14);
}

TEST(Network, RowFactorsByHand) {
  // k = 1, v = 4, step 1/2, W_bar = 0: gradients -4, sums of steps -2, -4. Row factors 1 + .5, and
  // 1/2 - .25.
  Recipe recipe = Trained(1, 2);
  recipe.optimizer.row_factor = RowFactor::kInverse;
  Constants constants = Sized(recipe, 1, 1);
  constants.row_bias = Column({.5, -.25});
  const auto memory = MakeNetwork(constants);
  const Token token = Pair(Column({1}), Column({4}), .5);
  const auto read = [&] { return memory->Read(Column({1})).y(0); };
  EXPECT_EQ(read(), 0);
  memory->Write(token);
  EXPECT_NEAR(read(), 3, 1e-15);
  memory->Write(token);
  EXPECT_NEAR(read(), 1, 1e-15);
  memory->Write(token);  // gradient -3 at W_bar = 1: 1 + 1.5 * 1.5
  EXPECT_NEAR(read(), 3.25, 1e-15);

  constants.row_bias = Column({-2, 0});  // clipped at 0
  const auto clipped = MakeNetwork(constants);
  clipped->Write(token);
  EXPECT_EQ(clipped->Read(Column({1})).y(0), 0);
  clipped->Write(token);
  EXPECT_NEAR(clipped->Read(Column({1})).y(0), 2, 1e-15);
}

TEST(Network, MiniBatchIsBatchGradientDescent) {
  // After a mini-batch: W - row sum_j step_j grad_j(W), each gradient from a memory of its own.
  for (Recipe recipe : Shapes()) {
    const int d = 3;
    recipe.optimizer.row_factor = RowFactor::kInverse;
    recipe.optimizer.mini_batch = 4;
    const Constants batched = Learned(recipe, d, d);
    recipe.optimizer.row_factor = RowFactor::kOne;
    recipe.optimizer.mini_batch = 1;
    Constants single = batched;
    single.recipe = recipe;
    const Arrays start = Filled(single, 6);
    const auto memory = MakeNetwork(batched);
    memory->Load(start);
    Arrays expected = start;
    const double row = std::max(.25 + batched.row_bias(3), 0.);
    Noise noise(7);
    for (int t = 0; t < 4; ++t) {
      const Token token = Step(noise, d, d, noise.Uniform(.05, .2));
      memory->Write(token);
      const auto one = MakeNetwork(single);
      one->Load(start);
      one->Write(token);
      const Arrays stepped = one->Save();
      for (auto& [name, array] : expected) {
        for (std::size_t i = 0; i < array.values.size(); ++i) {
          array.values[i] += row * (stepped.at(name).values[i] - start.at(name).values[i]);
        }
      }
    }
    const Arrays reached = memory->Save();
    EXPECT_EQ(reached.at("state.position").scalar(), 0);
    for (const auto& [name, array] : expected) {
      EXPECT_LT(Gap(reached.at(name).vector(), array.vector()), 1e-12) << name;
    }
  }
}

TEST(Network, SplitIsWholeAlsoInsideAMiniBatch) {
  for (const Recipe& shape : Shapes()) {
    for (const std::int64_t mini_batch : {1, 4}) {
      for (const int kind : {0, 1, 2, 3, 4}) {
        Recipe recipe = shape;
        recipe.optimizer.mini_batch = mini_batch;
        if (kind == 1) recipe.optimizer.row_factor = RowFactor::kInverse;
        recipe.optimizer.momentum = kind == 2 || kind == 4;
        if (kind >= 3) recipe.optimizer.weight_decay = WeightDecay::kDecoupled;
        const int d = 3;
        const Constants constants = Learned(recipe, d, d);
        const auto whole = MakeNetwork(constants);
        auto split = MakeNetwork(constants);
        Noise noise(8);
        for (int t = 0; t < 10; ++t) {
          Token token = Step(noise, d, d, .05);
          token.momentum = noise.Uniform(0, .9);
          token.weight_decay = noise.Uniform(0, .3);
          auto resumed = MakeNetwork(constants);
          resumed->Load(split->Save());
          split = std::move(resumed);
          const Vector q = noise.Vec(d);
          EXPECT_EQ(whole->Read(q).y, split->Read(q).y);  // before writing
          whole->Write(token);
          split->Write(token);
          EXPECT_EQ(whole->Read(q).y, split->Read(q).y);
        }
      }
    }
  }
}

TEST(Network, StateNames) {
  const auto names = [](const Recipe& recipe) {
    std::string list;
    for (const auto& [name, array] : MakeNetwork(Sized(recipe, 2, 2))->Save()) {
      list += name.substr(6) + ' ';
    }
    return list;
  };
  Recipe recipe = Trained(2);
  recipe.function.bias = true;
  EXPECT_EQ(names(recipe), "b1 b2 w1 w2 ");
  recipe.function.bias = false;
  recipe.optimizer.momentum = true;
  EXPECT_EQ(names(recipe), "s_w1 s_w2 w1 w2 ");
  recipe.optimizer.mini_batch = 3;
  EXPECT_EQ(names(recipe), "anchor_w1 anchor_w2 position s_w1 s_w2 w1 w2 ");
  recipe.optimizer.momentum = false;
  EXPECT_EQ(names(recipe), "g_w1 g_w2 position w1 w2 ");
  recipe.optimizer.weight_decay = WeightDecay::kDecoupled;
  EXPECT_EQ(names(recipe), "anchor_w1 anchor_w2 position w1 w2 ");
}

TEST(Network, NaNReachesWhatDependsOnIt) {
  for (const std::int64_t depth : {1, 2}) {
    Recipe recipe = Trained(depth);
    recipe.optimizer.momentum = true;
    recipe.optimizer.weight_decay = WeightDecay::kDecoupled;
    const auto memory = MakeNetwork(Sized(recipe, 3, 3));
    Noise noise(9);
    memory->Write(Step(noise, 3, 3, .1));
    const Vector q = noise.Vec(3);
    const Vector before = memory->Read(q).y;
    EXPECT_TRUE(before.allFinite());
    EXPECT_FALSE(memory->Read(Column({kNaN, 1, 1})).y.allFinite());
    EXPECT_EQ(memory->Read(q).y, before);
    // A step of zero writes nothing, whatever the pair holds.
    memory->Write(Pair(Column({kNaN, 0, 0}), noise.Vec(3), 0));
    EXPECT_EQ(memory->Read(q).y, before);
    memory->Write(Pair(Column({kNaN, 0, 0}), noise.Vec(3), .1));
    EXPECT_FALSE(memory->Read(q).y.allFinite());
    // No momentum and full weight decay forget it, except for the gradient at those weights.
    Token forget = Pair(noise.Vec(3), noise.Vec(3), 0);
    forget.weight_decay = 1;
    memory->Write(forget);
    EXPECT_EQ(memory->Read(q).y, Vector::Zero(3));
  }
}

}  // namespace
}  // namespace ttr::definition
