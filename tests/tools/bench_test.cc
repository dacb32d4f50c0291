// What `ttr bench` says. No test asserts a time; what follows from one is checked.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/tools/command.h"

namespace ttr::test {
namespace {

using nlohmann::json;

json Bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  for (const char* argument : {"--repeats", "1", "--quiet", "--json"}) {
    arguments.emplace_back(argument);
  }
  const Outcome outcome = Ttr(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

TEST(Bench, PrefillFollowsFromItsTime) {
  const json bench = Bench({"retnet", "gated_deltanet", "--measure", "prefill", "--d", "8", "24",
                            "--tokens", "9", "--heads", "3"});
  ASSERT_TRUE(bench.contains("prefill")) << bench;
  EXPECT_FALSE(bench.contains("decode"));
  EXPECT_EQ(bench["about"]["tokens"], 9);
  EXPECT_FALSE(bench["about"]["target"].get<std::string>().empty());
  EXPECT_NE(bench["about"]["quietness"].get<std::string>().find(" samples "), std::string::npos);
  const json& rows = bench["prefill"]["rows"];
  ASSERT_EQ(rows.size(), 4u);
  const char* const layers[] = {"retnet", "gated_deltanet", "retnet", "gated_deltanet"};
  for (std::size_t i = 0; i < 4; ++i) {
    const json& row = rows[i];
    EXPECT_EQ(row["layer"], layers[i]);
    const int d = i < 2 ? 8 : 24;
    EXPECT_EQ(row["d"], d);
    const double time = row["time"], useful = row["useful"];
    EXPECT_GT(time, 0);
    const double flops = (i % 2 == 0 ? 4 : 6) * d * d;
    EXPECT_NEAR(useful * time, flops, 1e-9 * flops);
    EXPECT_GT(row["of limit"].get<double>(), 0);
  }
}

// Those that keep pairs, and networks, have parts of their own: at T = 2048 a polynomial of 64
// channels is the definition's, and a whole run would not end.
TEST(Bench, WithoutLayersTakesThoseOfConstantMemory) {
  const json bench =
      Bench({"--measure", "prefill", "pairs", "networks", "--d", "4", "--tokens", "20"});
  ASSERT_TRUE(bench.contains("prefill") && bench.contains("pairs")) << bench;
  std::set<std::string> layers;
  for (const json& row : bench["prefill"]["rows"]) layers.insert(row["layer"]);
  for (const char* layer : {"retnet", "gated_deltanet", "hgrn", "mamba", "rls", "mesa"}) {
    EXPECT_TRUE(layers.contains(layer)) << layer;
  }
  for (const char* layer : {"softmax", "kernel_ridge", "local_quadratic", "ttt_mlp", "titans"}) {
    EXPECT_FALSE(layers.contains(layer)) << layer;
  }
  EXPECT_EQ(bench["about"]["heads"], 32);
  EXPECT_EQ(bench["pairs"]["rows"][0]["H"], 8);
  EXPECT_EQ(bench["networks"]["rows"][0]["H"], 4);
}

std::set<std::string> LayersOf(const json& part) {
  std::set<std::string> layers;
  for (const json& row : part["rows"]) layers.insert(row["layer"]);
  return layers;
}

TEST(Bench, LayersMayFollowTheParts) {
  const std::vector<std::string> small = {"--d", "8", "--tokens", "20", "--heads", "1"};
  std::vector<std::string> call = {"--measure", "threads", "rls", "mesa{ridge: 0.5}"};
  call.insert(call.end(), small.begin(), small.end());
  const json bench = Bench(call);
  ASSERT_TRUE(bench.contains("threads")) << bench;
  EXPECT_EQ(LayersOf(bench["threads"]), (std::set<std::string>{"rls", "mesa{ridge: 0.5}"}));
  EXPECT_FALSE(bench.contains("prefill"));
}

TEST(Bench, WhatIsNamedIsAllThatRuns) {
  const json bench = Bench({"local_linear", "--d", "16", "--tokens", "20", "--heads", "1"});
  ASSERT_TRUE(bench.contains("prefill")) << bench;
  for (const char* part : {"pairs", "networks", "operators", "least_squares"}) {
    EXPECT_FALSE(bench.contains(part)) << part;
  }
  for (const auto& [name, part] : bench.items()) {
    if (name == "about" || name == "limits") continue;
    EXPECT_EQ(LayersOf(part), std::set<std::string>{"local_linear"}) << name;
  }
  // The peak and what the works needed, none of the levels of memory.
  const json asked = Bench({"local_linear", "--measure", "limits", "--d", "16"});
  EXPECT_GT(asked["limits"]["rows"].size(), bench["limits"]["rows"].size());
}

TEST(Bench, SeveralThreadsAndBf16) {
  const json bench = Bench({"deltanet", "--measure", "threads", "bf16", "--d", "16", "--tokens",
                            "70", "--heads", "2", "--threads", "2"});
  ASSERT_TRUE(bench.contains("threads") && bench.contains("bf16")) << bench;
  const json& threads = bench["threads"]["rows"][0];
  EXPECT_EQ(threads["threads"], 2);
  EXPECT_DOUBLE_EQ(threads["speed-up"].get<double>(),
                   threads["one thread"].get<double>() / threads["all threads"].get<double>());
  // float32 arithmetic leaves the rounding of the answers, 2^-9 of each; a wrong one is far off.
  const json& bf16 = bench["bf16"]["rows"][0];
  EXPECT_GT(bf16["median error"].get<double>(), 1e-5);
  EXPECT_LT(bf16["median error"].get<double>(), 1. / 512);
  EXPECT_LT(bf16["greatest error"].get<double>(), 10. / 512);
}

TEST(Bench, DecodesInCacheAndInMainMemory) {
  const json bench = Bench({"gated_deltanet", "--part", "decode", "--d", "128"});
  ASSERT_TRUE(bench.contains("decode")) << bench;
  const json& row = bench["decode"]["rows"][0];
  for (const char* where : {"cache", "DRAM"}) {
    const std::string in = std::string(", ") + where;
    EXPECT_GT(row["time" + in].get<double>(), 0);
    // The limit that binds is no less than the one of the memory alone.
    EXPECT_GE(row["of limit" + in].get<double>(), row["of in-place" + in].get<double>());
  }
}

TEST(Bench, LayersThatTheDefinitionRunsHaveNoGradientsToTime) {
  const json bench = Bench({"local_cubic{degree: 4}", "--measure", "train", "decode", "--d", "2",
                            "--tokens", "3", "--heads", "1"});
  ASSERT_TRUE(bench.contains("train")) << bench;
  // Its memory is the list of its pairs: there is no size to decode at.
  EXPECT_FALSE(bench.contains("decode"));
  const json& row = bench["train"]["rows"][0];
  EXPECT_GT(row["forward"].get<double>(), 0);
  if (row["engine"] == "definition") {
    EXPECT_TRUE(row["forward + backward"].is_null());
  }
}

TEST(Bench, LeastSquaresStandsBesideTheDeltaRule) {
  const json bench = Bench({"rls", "mesa", "retnet", "--measure", "least_squares", "--d", "16",
                            "--tokens", "70", "--heads", "2"});
  ASSERT_TRUE(bench.contains("least_squares")) << bench;
  const json& rows = bench["least_squares"]["rows"];
  ASSERT_EQ(rows.size(), 3u);  // retnet carries no Gram matrix
  const json& rls = rows[0];
  const json& delta = rows[2];
  EXPECT_EQ(delta["layer"], "gated_deltanet");
  EXPECT_DOUBLE_EQ(rls["forward / delta"].get<double>(),
                   rls["forward"].get<double>() / delta["forward"].get<double>());
  EXPECT_DOUBLE_EQ(delta["forward / delta"].get<double>(), 1);
  // 4 D^2 + 6 D Dv + m (3 D + 3 Dv) + (D^3 + m^3) / 3m; a factor a token: D^3 / 3 + 11 D^2.
  const double shared = 10 * 256 + 64 * 96 + (4096 + 262144) / 192.;
  const double own = 4096 / 3. + 11 * 256;
  EXPECT_NEAR(rls["useful"].get<double>() * rls["forward"].get<double>(), shared, 1e-9 * shared);
  EXPECT_NEAR(rows[1]["useful"].get<double>() * rows[1]["forward"].get<double>(), own, 1e-9 * own);
  // Well-posed systems are what is timed.
  for (const json& row : rows) EXPECT_EQ(row["solved"], 100) << row;
  ASSERT_TRUE(bench.contains("least_squares_decode")) << bench;
  for (const json& row : bench["least_squares_decode"]["rows"]) {
    for (const std::string where : {"cache", "DRAM"}) {
      EXPECT_EQ(row["solved, " + where], 100) << row;
      EXPECT_NEAR(row["times limit, " + where].get<double>() * row["limit, " + where].get<double>(),
                  row["time, " + where].get<double>(), 1e-9 * row["time, " + where].get<double>());
    }
  }
}

TEST(Bench, NetworksStandBesideThePeakAndAnUpdateInPlace) {
  const json bench = Bench({"--measure", "networks", "--d", "8", "--tokens", "40", "--heads", "2"});
  ASSERT_TRUE(bench.contains("networks")) << bench;
  const json& rows = bench["networks"]["rows"];
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    const auto number = [&](const char* column) { return row[column].get<double>(); };
    for (const char* column : {"of peak", "both: of peak", "both: memory", "heads: speed-up",
                               "one head: speed-up", "token: of in-place"}) {
      EXPECT_GT(number(column), 0) << row;
    }
    EXPECT_DOUBLE_EQ(number("both / forward"), number("forward + backward") / number("forward"));
    EXPECT_GE(number("threads"), 2);
    EXPECT_EQ(row["of in-place"].is_null(), row["memory"] != "Titans") << row;
  }
}

TEST(Bench, KeptPairsStandBesideSoftmax) {
  const json bench = Bench({"--measure", "pairs", "--d", "8", "--tokens", "300", "--heads", "2"});
  ASSERT_TRUE(bench.contains("pairs")) << bench;
  const json& rows = bench["pairs"]["rows"];
  ASSERT_EQ(rows.size(), 10u);
  EXPECT_EQ(rows[0]["memory"], "softmax");
  EXPECT_EQ(rows[0]["times softmax"], 1);
  EXPECT_EQ(rows[7]["T"], 1200);
  for (const json& row : rows) {
    for (const char* column : {"", "both: "}) {
      EXPECT_GT(row[column + std::string("of peak")].get<double>(), 0) << row;
      EXPECT_GT(row[column + std::string("times softmax")].get<double>(), 0) << row;
    }
    // Weighted means of the same length have as many flops.
    if (row["T"] == 300 && row["H"] == 2) {
      EXPECT_DOUBLE_EQ(row["times softmax"].get<double>(), row["a flop"].get<double>()) << row;
    }
  }
  EXPECT_EQ(rows[9]["memory"], "kernel ridge, one head");
  // T / 2 columns of a factor a token, and as many flops to solve with it: 2 T^2 / 3 at the least.
  const double flops = rows[9]["of peak"].get<double>() * rows[9]["forward"].get<double>();
  EXPECT_GE(flops * bench["limits"]["rows"][0]["value"].get<double>() / 100, 2 * 600. * 600 / 3);
}

TEST(Bench, PairsInBFloat16StandBesideThoseInFloat32) {
  const json bench = Bench({"--measure", "pairs", "--d", "8", "--tokens", "40", "--heads", "16"});
  ASSERT_TRUE(bench.contains("pairs_decode")) << bench;
  for (const json& row : bench["pairs_decode"]["rows"]) {
    // Keys and values of 64 MB.
    EXPECT_EQ(row["pairs"], (64 << 20) / (16 * 8 * 2 * 4)) << row;
    EXPECT_GT(row["of limit"].get<double>(), 0) << row;
    EXPECT_DOUBLE_EQ(row["times quicker"].get<double>(),
                     row["float32"].get<double>() / row["bfloat16"].get<double>());
  }
  EXPECT_EQ(bench["pairs_decode"]["rows"][0]["limit"], "read 64 MB");
}

TEST(Bench, OperatorsStandBesideAStream) {
  const json bench =
      Bench({"--measure", "operators", "--d", "8", "--tokens", "20", "--heads", "3"});
  ASSERT_TRUE(bench.contains("operators")) << bench;
  EXPECT_FALSE(bench.contains("prefill"));
  const json& rows = bench["operators"]["rows"];
  ASSERT_EQ(rows.size(), 18u);
  for (const json& row : rows) {
    const double time = row["time"], moved = row["moved"];
    EXPECT_NEAR(row["bandwidth"].get<double>() * time, moved, 1e-9 * moved) << row;
    EXPECT_GT(row["of stream"].get<double>(), 0) << row;
  }
  // Rows of x and y; and those of x, dy and dx.
  EXPECT_EQ(rows[0]["operator"], "short convolution");
  EXPECT_DOUBLE_EQ(rows[0]["moved"].get<double>(), 2 * 8 * 4);
  EXPECT_DOUBLE_EQ(rows[1]["moved"].get<double>(), 5 * 8 * 4);
  // A token of a state of four, which is read and written.
  EXPECT_EQ(rows[2]["doing"], "one token");
  EXPECT_DOUBLE_EQ(rows[2]["moved"].get<double>(), (2 + 2 * 4) * 8 * 4);
}

TEST(Bench, WithoutAGramMatrixThereIsNoLeastSquares) {
  EXPECT_FALSE(
      Bench({"retnet", "--measure", "least_squares", "--d", "16"}).contains("least_squares"));
}

TEST(Bench, WritesTablesAndPictures) {
  const TemporaryFolder folder;
  const Outcome outcome =
      Ttr({"bench", "retnet", "--measure", "prefill", "curves", "--d", "16", "--tokens", "16",
           "--heads", "2", "--repeats", "1", "--quiet", "--out", folder.path().string()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Prefill, float32"), std::string::npos) << outcome.out;
  EXPECT_TRUE(json::accept(ReadAll(folder / "bench.json")));
  EXPECT_NE(ReadAll(folder / "bench.md").find("| retnet |"), std::string::npos);
  EXPECT_TRUE(ReadAll(folder / "prefill.csv").starts_with("layer,engine,d,"));
  for (const char* picture :
       {"roofline.svg", "cost-T.svg", "cost-d.svg", "cost-H.svg", "cost-threads.svg"}) {
    EXPECT_NE(ReadAll(folder / picture).find("<svg"), std::string::npos) << picture;
  }
}

TEST(Bench, RefusesWhatHasNoMeaning) {
  EXPECT_EQ(NoRefusal(Ttr({"bench", "--measure", "fly"}), 2, "--measure"), "");
  EXPECT_EQ(NoRefusal(Ttr({"bench", "--measure", "rls"}), 2, "--measure must be one of limits, "),
            "");
  EXPECT_EQ(NoRefusal(Ttr({"bench", "--measure", "threads", "decod"}), 2, "'decod'"), "");
  EXPECT_EQ(NoRefusal(Ttr({"bench", "--d", "0"}), 2, "--d"), "");
  EXPECT_EQ(NoRefusal(Ttr({"bench", "gated_deltanett"}), 2, "gated_deltanet"), "");
}

}  // namespace
}  // namespace ttr::test
