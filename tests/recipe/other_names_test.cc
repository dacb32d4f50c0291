#include "src/recipe/other_names.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/recipe/message.h"
#include "ttr/zoo.h"

namespace ttr {
namespace {

// Does the error about a layer of this name say to try `meant` first?
bool Leads(const std::string& name, const std::string& meant) {
  const std::string message = Message([&] { ParseRecipe(name); });
  const std::string asked = "[recipe] layer must be a name of the zoo but is '";
  return message.starts_with(asked) && message.find("': try " + meant) != std::string::npos;
}

TEST(OtherNames, LeadToTheLayerThatIsMeant) {
  const std::pair<const char*, const char*> cases[] = {
      {"lms", "deltanet (DeltaNet, LMS)"},
      {"LMS", "deltanet (DeltaNet, LMS)"},
      {"Widrow-Hoff", "deltanet ("},
      {"delta rule", "deltanet ("},
      {"sgd", "deltanet ("},
      {"fast weights", "deltanet (what a key held is rewritten), or linear_attention ("},
      {"fast_weights", "deltanet ("},
      {"normalised LMS", "nlms ("},
      {"normalized lms", "nlms ("},
      {"kaczmarz", "nlms ("},
      {"projection method", "nlms ("},
      {"TTT", "ttt_linear (TTT-Linear), or ttt_mlp ("},
      {"griffin", "rg_lru ("},
      {"s6", "mamba (Mamba (S6))"},
      {"ssd", "mamba2 ("},
      {"mamba-1", "mamba ("},
      {"performer", "linear_attention{features: favor} ("},
      {"based", "linear_attention{features: taylor2} ("},
      {"cosFormer", "linear_attention{features: cosformer} ("},
      {"dpfp", "linear_attention{features: dpfp} ("},
      {"hedgehog", "linear_attention{features: hedgehog_exp} ("},
      {"linear transformer", "linear_attention{features: elu1, normalise_sum: sum} ("},
      {"newton", "quasi_newton (Quasi-Newton)"},
      {"Newton's method", "quasi_newton (steps with an approximate inverse), or rls{ridge: 0} ("},
      {"least squares", "rls{ridge: 0} ("},
      {"mesa-layer", "rls ("},
      {"qknorm", "softmax{normalise_qk: true} ("},
      {"QK-norm", "softmax{normalise_qk: true} ("},
      {"self-attention", "softmax ("},
      {"attention", "softmax ("},
      {"delta", "deltanet ("},
      {"Delta Net", "deltanet"},
      {"gated-delta-net", "gated_deltanet"},
      {"gated DeltaProduct", "delta_product ("},
      {"lightning-attention", "retnet ("},
      {"forgetting transformer", "decayed_softmax ("},
      {"ALiBi", "softmax{pair_bias: distance} ("},
      {"SWA", "window_softmax ("},
      {"L-BFGS", "low_rank_rls ("},
      {"conjugate_gradient", "rls{optimizer: conjugate_gradient, steps: 8} ("},
      {"Skyformer", "kernel_smoother{kernel: gaussian, bandwidth: 1} ("},
      {"Kohonen", "linear_attention ("},
      {"hopfield",
       "softmax (one read of a modern Hopfield network is softmax attention), or "
       "linear_attention ("},
      {"kernel regression", "kernel_ridge{ridge: 0} ("},
      {"nadaraya-watson", "nadaraya_watson"},
      {"Nadaraya", "nadaraya_watson ("},
      {"lla", "local_linear ("},
      {"mamba-3", "mamba2 (of two rows a token"},
      {"EDA", "erase_then_delta ("},
      {"PKDA", "preconditioned_kda ("},
      {"Adam", "adam_lms (on a linear memory), or titans{"},
      {"kalman delta", "preconditioned_kda (a curvature a channel), or low_rank_rls ("},
      {"qknorm{scale: 8}", "softmax{normalise_qk: true} ("},
  };
  for (const auto& [name, meant] : cases) {
    EXPECT_TRUE(Leads(name, meant)) << name << ": " << Message([&] { ParseRecipe(name); });
  }
}

TEST(OtherNames, OfTheTableLeadToRecipesAndAreNoLayersThemselves) {
  for (const OtherName& other : OtherNames()) {
    EXPECT_EQ(Message([&] { ParseRecipe(other.recipe); }), "");
    EXPECT_FALSE(other.reason.empty()) << other.names;
    std::istringstream names{std::string(other.names)};
    for (std::string name; std::getline(names >> std::ws, name, ',');) {
      EXPECT_EQ(FindInZoo(name), nullptr) << name;
      EXPECT_NE(MeantBy(name).find(other.recipe), std::string::npos) << name;
    }
  }
}

TEST(OtherNames, OfNothingLeadNowhere) {
  for (const char* name : {"", "v", "in", "resnet"}) EXPECT_EQ(MeantBy(name), "") << name;
}

}  // namespace
}  // namespace ttr
