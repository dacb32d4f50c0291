#include "tests/tools/command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ttr::test {
namespace {

const std::vector<std::string> kCommands = {"zoo",      "plan",       "apply", "recall",
                                            "forecast", "experiment", "bench", "doctor"};

// The names that are promised to stay.
const std::vector<std::string> kLayers = {"linear_attention",
                                          "retnet",
                                          "gla",
                                          "gateloop",
                                          "hgrn2",
                                          "rwkv6",
                                          "rwkv7",
                                          "mlstm",
                                          "mamba",
                                          "mamba2",
                                          "lru",
                                          "hgrn",
                                          "rg_lru",
                                          "deltanet",
                                          "nlms",
                                          "longhorn",
                                          "efla",
                                          "leaky_lms",
                                          "decoupled_lms",
                                          "gated_deltanet",
                                          "kda",
                                          "comba",
                                          "gated_deltanet2",
                                          "delta_product",
                                          "preconditioned_deltanet",
                                          "momentum_deltanet",
                                          "rls",
                                          "weighted_rls",
                                          "mesa",
                                          "intention",
                                          "kalmanet",
                                          "batch_gd",
                                          "quasi_newton",
                                          "softmax",
                                          "kernel_smoother",
                                          "nadaraya_watson",
                                          "kernel_ridge",
                                          "local_linear",
                                          "local_quadratic",
                                          "local_cubic",
                                          "window_softmax",
                                          "decayed_softmax",
                                          "affine_rls",
                                          "feature_rls",
                                          "ttt_linear",
                                          "ttt_mlp",
                                          "titans"};
const std::vector<std::string> kFeatures = {
    "elu1",    "relu",    "cosformer", "dpfp",  "t2r",     "hedgehog_exp", "hedgehog_softmax",
    "taylor2", "rebased", "rfa",       "favor", "dijiang", "power2"};

TEST(Command, EveryHelpHasAnExample) {
  for (const std::string& command : kCommands) {
    const Outcome help = Ttr({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_NE(help.out.find("Examples:\n  ttr " + command), std::string::npos) << help.out;
    EXPECT_EQ(help.err, "") << command;
  }
  const Outcome help = Ttr({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const std::string& command : kCommands) {
    EXPECT_NE(help.out.find("\n  " + command + " "), std::string::npos) << command;
  }
}

TEST(Command, WrongUsageIsOneLineAndCodeTwo) {
  EXPECT_EQ(NoRefusal(Ttr({}), 2, "subcommand"), "");
  EXPECT_EQ(NoRefusal(Ttr({"fly"}), 2, "no command 'fly'"), "");
  EXPECT_EQ(NoRefusal(Ttr({"zoo", "--fly"}), 2, "--fly"), "");
  EXPECT_EQ(NoRefusal(Ttr({"zoo", "gated_deltanett"}), 2, "gated_deltanet"), "");
  EXPECT_EQ(NoRefusal(Ttr({"plan", "rls{ridge: -1}"}), 2, "ridge"), "");
  EXPECT_EQ(NoRefusal(Ttr({"plan", "rls", "--dk", "x"}), 2, "--dk"), "");
  EXPECT_EQ(NoRefusal(Ttr({"apply", "rls"}), 2, "--in"), "");
}

TEST(Command, FailuresOfTheSystemAreCodeOne) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const TemporaryFolder folder;
  Write(folder / "t.csv", "x\n1\n2\n3\n");
  const Outcome full = Ttr({"forecast", folder / "t.csv", "--column", "x", "--lags", "2", "--out",
                            "/dev/full", "--quiet"});
  EXPECT_EQ(NoRefusal(full, 1, "/dev/full"), "");
}

TEST(Command, ZooHoldsEveryPromisedName) {
  const Outcome zoo = Ttr({"zoo"});
  ASSERT_EQ(zoo.code, 0) << zoo.err;
  for (const std::string& name : kLayers) {
    EXPECT_NE(zoo.out.find(name), std::string::npos) << name;
    const Outcome layer = Ttr({"zoo", name});
    EXPECT_EQ(layer.code, 0) << name << layer.err;
    EXPECT_NE(layer.out.find("state"), std::string::npos) << name;
    const Outcome plan = Ttr({"plan", name, "--json"});
    EXPECT_EQ(plan.code, 0) << name << plan.err;
    EXPECT_TRUE(nlohmann::json::accept(plan.out)) << name;
  }
  for (const std::string& map : kFeatures) {
    const Outcome plan = Ttr({"plan", "linear_attention{features: " + map + "}"});
    EXPECT_EQ(plan.code, 0) << map << plan.err;
  }
  EXPECT_TRUE(nlohmann::json::accept(Ttr({"zoo", "--json"}).out));
}

TEST(Command, LayersDocumentIsFresh) {
  const Outcome markdown = Ttr({"zoo", "--markdown"});
  ASSERT_EQ(markdown.code, 0) << markdown.err;
  EXPECT_TRUE(markdown.out == ReadAll(TTR_SOURCE_DIR "/docs/layers.md"))
      << "docs/layers.md is stale: run scripts/update_docs";
}

}  // namespace
}  // namespace ttr::test
