// The inputs and the state of a recipe.
#include <gtest/gtest.h>

#include <set>

#include "src/recipe/validate.h"
#include "tests/support/random_recipe.h"
#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr {
namespace {

std::string Axes(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis axis : axes) text += (text.empty() ? "" : ",") + std::string(Name(axis));
  return "[" + text + "]";
}

// "q[B,T,Hq,Dk] k[B,T,Hk,Dk] ..."; optional ones with a "?", alternatives with a "/". cu_seqlens,
// the same for all, is left out.
std::string InputsOf(std::string_view recipe) {
  std::string text;
  for (const InputSpec& spec : InputSpecs(ParseRecipe(recipe))) {
    if (spec.name == "cu_seqlens") continue;
    text += (text.empty() ? "" : " ") + std::string(spec.name) + (spec.required ? "" : "?");
    for (std::size_t i = 0; i < spec.shapes.size(); ++i) {
      text += (i == 0 ? "" : "/") + Axes(spec.shapes[i]);
    }
  }
  return text;
}

std::string States(std::string_view recipe) {
  std::string text;
  for (const StateSpec& spec : StateSpecs(ParseRecipe(recipe))) {
    text += (text.empty() ? "" : " ") + spec.name + Axes(spec.shape);
  }
  return text;
}

const std::string kQkv = "q[B,T,Hq,Dk] k[B,T,Hk,Dk] v[B,T,Hv,Dv]";

TEST(Specs, InputsOfLayersWithOneGradientStep) {
  EXPECT_EQ(InputsOf("linear_attention"), kQkv);
  EXPECT_EQ(InputsOf("retnet"), kQkv);
  EXPECT_EQ(InputsOf("linear_attention{decay: 0.9}"), kQkv);
  EXPECT_EQ(InputsOf("mamba2"), kQkv + " log_decay[B,T,H]");
  EXPECT_EQ(InputsOf("gla"), kQkv + " log_decay[B,T,H,Dk]");
  EXPECT_EQ(InputsOf("gateloop"), kQkv + " log_decay[B,T,H,Dk] phase[B,T,H,Dk]");
  EXPECT_EQ(InputsOf("hgrn2"), "q[B,T,Hq,Dk] v[B,T,Hv,Dv] log_decay[B,T,H,Dk]");
  EXPECT_EQ(InputsOf("rwkv6"), kQkv + " log_decay[B,T,H,Dk] bonus[H,Dk]");
  EXPECT_EQ(InputsOf("mlstm"), kQkv + " log_decay[B,T,H] log_importance[B,T,H]");
  EXPECT_EQ(InputsOf("mamba"), kQkv + " dt[B,T,H,Dv] a[H,Dv,Dk]");
  EXPECT_EQ(InputsOf("lru"), "v[B,T,H,Dv] log_decay[B,T,H,Dv] phase[B,T,H,Dv] v_im?[B,T,H,Dv]");
  EXPECT_EQ(InputsOf("rg_lru"), "v[B,T,H,Dv] log_decay[B,T,H,Dv]");
}

TEST(Specs, InputsOfLayersThatStep) {
  EXPECT_EQ(InputsOf("deltanet"), kQkv + " step[B,T,H]");
  EXPECT_EQ(InputsOf("nlms"), kQkv);
  EXPECT_EQ(InputsOf("delta_product"),
            "q[B,T,Hq,Dk] k[B,T n,Hk,Dk] v[B,T n,Hv,Dv] log_decay[B,T,H] step[B,T n,H]");
  EXPECT_EQ(InputsOf("comba"), kQkv + " log_decay[B,T,H] step[B,T,H] erase_key[B,T,H,Dk]");
  EXPECT_EQ(InputsOf("gated_deltanet2"), kQkv + " log_decay[B,T,H,Dk] erase_gate[B,T,H,Dk]");
  EXPECT_EQ(InputsOf("rwkv7"),
            kQkv + " log_decay[B,T,H,Dk] erase_key[B,T,H,Dk] erase_gate[B,T,H,Dk]");
  EXPECT_EQ(InputsOf("momentum_deltanet"),
            kQkv + " step[B,T,H] momentum[B,T,H] weight_decay[B,T,H]");
  EXPECT_EQ(InputsOf("preconditioned_deltanet"), kQkv + " step[B,T,H] importance?[B,T,H]");
  EXPECT_EQ(InputsOf("titans"), kQkv + " step[B,T,H] momentum[B,T,H] weight_decay[B,T,H]");
  EXPECT_EQ(InputsOf("ttt_mlp"), kQkv +
                                     " step[B,T,H] ln_weight?[H,Dv] ln_bias?[H,Dv] "
                                     "row_bias?[H,mini_batch]");
}

TEST(Specs, InputsOfLayersThatSolve) {
  EXPECT_EQ(InputsOf("rls"), kQkv + " ridge?[H]/[H,Dk]");
  EXPECT_EQ(InputsOf("mesa"), kQkv + " log_decay[B,T,H] importance?[B,T,H] ridge?[H]/[H,Dk]");
  EXPECT_EQ(InputsOf("kalmanet"), kQkv + " log_decay[B,T,H] ridge?[H]");
  EXPECT_EQ(InputsOf("batch_gd"), kQkv + " ridge?[H]/[H,Dk]");
  EXPECT_EQ(InputsOf("rls{features: taylor2}"), kQkv + " ridge?[H]");
  EXPECT_EQ(InputsOf("softmax"), kQkv);
  EXPECT_EQ(InputsOf("decayed_softmax"), kQkv + " log_decay[B,T,H]");
  EXPECT_EQ(InputsOf("kernel_ridge"), kQkv + " ridge?[H]");
}

TEST(Specs, InputsOfFeatureMaps) {
  const auto features = [](const std::string& map) {
    return InputsOf("linear_attention{features: " + map + "}").substr(kQkv.size());
  };
  EXPECT_EQ(features("elu1"), "");
  EXPECT_EQ(features("cosformer"), "");
  EXPECT_EQ(features("t2r"), " features.w[H,F,Dk] features.b?[H,F]");
  EXPECT_EQ(features("hedgehog_exp"), " features.w[H,F,Dk]");
  EXPECT_EQ(features("hedgehog_softmax"), " features.w[H,F,Dk]");
  EXPECT_EQ(features("rebased"), " features.w?[H,1,Dk] features.b?[H,Dk]");
  EXPECT_EQ(features("rfa"), " features.w?[H,F,Dk]");
  EXPECT_EQ(features("favor"), " features.w?[H,F,Dk]");
  EXPECT_EQ(features("dijiang"), " features.w?[H,F,Dk] features.b?[H,F]");
}

TEST(Specs, States) {
  EXPECT_EQ(States("linear_attention"), "state[N,H,Dphi,Dv]");
  EXPECT_EQ(States("mlstm"), "state[N,H,Dphi,Dv] state.n[N,H,Dphi] state.m[N,H]");
  EXPECT_EQ(States("gateloop"), "state[N,H,Dphi,Dv] state.im[N,H,Dphi,Dv]");
  EXPECT_EQ(States("lru"), "state[N,H,Dv] state.im[N,H,Dv]");
  EXPECT_EQ(States("hgrn"), "state[N,H,Dv]");
  EXPECT_EQ(States("momentum_deltanet"), "state[N,H,Dphi,Dv] state.momentum[N,H,Dphi,Dv]");
  EXPECT_EQ(States("preconditioned_deltanet"), "state[N,H,Dphi,Dv] state.d[N,H,Dphi]");
  EXPECT_EQ(States("mesa"), "state[N,H,Dphi,Dv] state.a[N,H,Dphi,Dphi]");
  EXPECT_EQ(States("softmax"), "state.k[N,S,H,Dk] state.v[N,S,H,Dv] state.length[N,H]");
  EXPECT_EQ(States("decayed_softmax"),
            "state.k[N,S,H,Dk] state.v[N,S,H,Dv] state.log_weight[N,S,H] state.length[N,H]");
  EXPECT_EQ(States("intention"), "");
  EXPECT_EQ(States("deltanet{features: cosformer}"), "state[N,H,Dphi,Dv] state.position[N,H]");
  EXPECT_EQ(States("ttt_linear"),
            "state.w1[N,H,Dk,Dv] state.b1[N,H,Dv] state.position[N,H] state.g_w1[N,H,Dk,Dv] "
            "state.g_b1[N,H,Dv]");
  EXPECT_EQ(States("ttt_linear{mini_batch: 1}"), "state.w1[N,H,Dk,Dv] state.b1[N,H,Dv]");
  EXPECT_EQ(States("titans"),
            "state.w1[N,H,Dk,hidden] state.w2[N,H,hidden,Dv] state.s_w1[N,H,Dk,hidden] "
            "state.s_w2[N,H,hidden,Dv]");
  EXPECT_EQ(States("titans{mini_batch: 4, depth: 1}"),
            "state.w1[N,H,Dk,Dv] state.position[N,H] state.s_w1[N,H,Dk,Dv] "
            "state.anchor_w1[N,H,Dk,Dv]");
  EXPECT_EQ(States("titans{gated: true, momentum: false, weight_decay: none, bias: true}"),
            "state.w1[N,H,Dk,2 hidden] state.b1[N,H,2 hidden] state.w2[N,H,hidden,Dv] "
            "state.b2[N,H,Dv]");
}

TEST(Specs, TheKeyDimensionOfTheState) {
  Dims dims;
  dims.key_dim = 5;
  dims.features = 7;
  const auto dim = [&](std::string_view recipe) { return PhiDim(ParseRecipe(recipe), dims); };
  EXPECT_EQ(dim("deltanet"), 5);
  EXPECT_EQ(dim("affine_rls"), 6);
  EXPECT_EQ(dim("rls{features: t2r}"), 7);
  EXPECT_EQ(dim("affine_rls{features: power2}"), 16);
  EXPECT_EQ(dim("softmax"), 5);
}

TEST(Specs, FieldsNameEveryInput) {
  std::set<std::string_view> names;
  for (const InputField& field : InputFields()) names.insert(field.name);
  EXPECT_EQ(names.size(), sizeof(Inputs) / sizeof(TensorView));
  EXPECT_EQ(names.size(), InputFields().size());
}

TEST(Specs, OfAnyRecipeAreWellFormed) {
  RandomRecipes random(7);
  for (int i = 0; i < 3000; ++i) {
    const Recipe recipe = NearestValid(random.Next());
    std::set<std::string> names;
    bool optional_seen = false;
    for (const InputSpec& spec : InputSpecs(recipe)) {
      EXPECT_TRUE(names.insert(std::string(spec.name)).second) << spec.name;
      EXPECT_FALSE(spec.required && optional_seen) << spec.name;
      optional_seen |= !spec.required;
      EXPECT_FALSE(spec.meaning.empty());
    }
    for (const StateSpec& spec : StateSpecs(recipe)) {
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      EXPECT_EQ(spec.shape[0], Axis::kStates);
      EXPECT_LE(spec.shape.size(), static_cast<std::size_t>(kMaxRank));
      EXPECT_FALSE(spec.meaning.empty());
    }
  }
}

}  // namespace
}  // namespace ttr
