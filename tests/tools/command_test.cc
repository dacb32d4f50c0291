#include "tests/tools/command.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ttr/zoo.h"

namespace ttr::test {
namespace {

const std::vector<std::string> kCommands = {"zoo",        "plan",  "apply", "recall", "forecast",
                                            "experiment", "bench", "chart", "doctor"};

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
                                          "erase_then_delta",
                                          "preconditioned_deltanet",
                                          "preconditioned_gated_deltanet",
                                          "preconditioned_kda",
                                          "low_rank_rls",
                                          "affine_projection",
                                          "momentum_deltanet",
                                          "adagrad_lms",
                                          "adam_lms",
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
                                          "titans",
                                          "lact",
                                          "in_place_ttt"};
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

TEST(Command, MisspelledWordsLeadToTheNearest) {
  const std::pair<std::vector<std::string>, std::string> kCases[] = {
      {{"forcast"}, "ttr has no command 'forcast' (did you mean forecast?); there are zoo, "},
      {{"experiment", "online-regresion"},
       "ttr experiment has no command 'online-regresion' (did you mean online-regression?)"},
      {{"plan", "rls", "--dkk", "3"}, "ttr plan has no option --dkk (did you mean --dk?)"},
      {{"plan", "rls", "more"}, "'more' was not expected (see ttr plan --help)"},
  };
  for (const auto& [words, text] : kCases) {
    const Outcome refused = Ttr(words);
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find(text), std::string::npos) << refused.err;
  }
}

TEST(Command, APlanSaysWhichSizesTheDefinitionRuns) {
  const std::string says = "definition\nwhy              no fast engine takes these sizes";
  EXPECT_NE(Ttr({"plan", "local_quadratic"}).out.find(says), std::string::npos);
  EXPECT_EQ(Ttr({"plan", "local_quadratic", "--dk", "16"}).out.find(says), std::string::npos);
  EXPECT_EQ(Ttr({"plan", "local_linear"}).out.find(says), std::string::npos);
}

TEST(Command, OtherNamesLeadToTheLayerThatIsMeant) {
  struct Name {
    std::string typed, meant;
  };
  const std::vector<Name> names = {
      {"lms", "'lms': try deltanet (DeltaNet, LMS)\n"},
      {"ttt",
       "try ttt_linear (TTT-Linear), or ttt_mlp (TTT-MLP), or in_place_ttt (In-Place TTT)\n"},
      {"kaczmarz", "try nlms ("},
      {"griffin", "try rg_lru (RG-LRU (Griffin))\n"},
      {"Griffin", "'Griffin': try rg_lru"},
      {"performer", "try linear_attention{features: favor} ("},
      {"based", "try linear_attention{features: taylor2} ("},
      {"newton", "try quasi_newton (Quasi-Newton)\n"},
      {"lms{step: nlms}", "'lms': try deltanet ("},
      {"Gated DeltaNet", "try gated_deltanet\n"},
      {"GLA", "try gla\n"}};
  for (const Name& name : names) {
    EXPECT_EQ(NoRefusal(Ttr({"zoo", name.typed}), 2, name.meant), "") << name.typed;
    EXPECT_EQ(NoRefusal(Ttr({"plan", name.typed}), 2, name.meant), "") << name.typed;
  }
  // Words that all layers share, and the names themselves, are left to the parser.
  for (const char* word : {"memory", "decay", "uniform", "arXiv", "a"}) {
    EXPECT_EQ(Ttr({"zoo", word}).err.find("try "), std::string::npos) << word;
  }
  EXPECT_EQ(Ttr({"zoo", " rls "}).code, 0);
  EXPECT_EQ(NoRefusal(Ttr({"zoo", " rls {ridge: -1}"}), 2, "ridge"), "");
  EXPECT_EQ(NoRefusal(Ttr({"zoo", "gated_deltanett"}), 2, "did you mean gated_deltanet?"), "");
}

TEST(Command, APlanEstimatesTheTime) {
  for (const ZooEntry& layer : Zoo()) {
    const Outcome plan = Ttr({"plan", std::string(layer.name), "--dk", "8", "--dv", "8", "--json"});
    ASSERT_EQ(plan.code, 0) << layer.name << plan.err;
    const auto json = nlohmann::json::parse(plan.out);
    EXPECT_GT(json["seconds"].get<double>(), 0) << layer.name;
    EXPECT_LT(json["seconds"].get<double>(), 100) << layer.name;
    EXPECT_GE(json["tokens_timed"].get<int>(), 1) << layer.name;
  }
  // Ten times the tokens take ten times as long, however few are run; nothing is run for a day.
  EXPECT_NE(Ttr({"plan", "rls", "--tokens", "1000000000000"}).out.find(" days on one thread"),
            std::string::npos);
  EXPECT_NE(Ttr({"plan", "rls", "--dk", "1000000"}).out.find("not tried"), std::string::npos);
  EXPECT_NE(Ttr({"plan", "rls", "--tokens", "0"}).out.find("none: no token"), std::string::npos);
}

TEST(Command, APlanNamesOneEngine) {
  for (const char* layer : {"local_cubic", "local_linear", "rls"}) {
    const Outcome plan = Ttr({"plan", layer, "--dk", "64"});
    ASSERT_EQ(plan.code, 0) << plan.err;
    const std::size_t first = plan.out.find("\nengine ");
    ASSERT_NE(first, std::string::npos) << plan.out;
    EXPECT_EQ(plan.out.find("\nengine ", first + 1), std::string::npos) << plan.out;
  }
}

TEST(Command, WhatJsonPrintsOfARecipeIsOne) {
  const TemporaryFolder folder;
  for (const std::string recipe : {"rls", "rls{ridge: 0.1}", "kalmanet", "ttt_mlp", "mlstm"}) {
    // Without tokens: a time differs from one call to the next.
    const std::string plan = Ttr({"plan", recipe, "--json", "--tokens", "0"}).out;
    for (const char* command : {"zoo", "plan"}) {
      const Outcome printed = Ttr({command, recipe, "--json"});
      ASSERT_EQ(printed.code, 0) << printed.err;
      Write(folder / "r.json", printed.out);
      const Outcome read =
          Ttr({"plan", "@" + (folder / "r.json").string(), "--json", "--tokens", "0"});
      EXPECT_EQ(read.out, plan) << command << " " << recipe << ": " << read.err;
    }
  }
  Write(folder / "r.json", "{\"recipe\": \"rsl\"}");
  EXPECT_EQ(NoRefusal(Ttr({"plan", "@" + (folder / "r.json").string()}), 2, "rsl"), "");
}

// Whatever is wrong, of whichever subcommand: code 2, one line, and nothing of what was typed
// drives the terminal.
TEST(Command, EveryBadInvocationIsOneLine) {
  const TemporaryFolder folder;
  const std::string json = folder / "recipe.json", here = folder.path();
  const std::string table = folder / "t.csv", missing = folder / "none\n\x1b[31m";
  Write(json, "{\"weights\": {\"decay\": 1e999}}");
  Write(table, "x,y\n1,2\n3,4\n");
  struct Bad {
    std::vector<std::string> call;
    std::string says;
  };
  const std::vector<Bad> table_of_bad = {
      {{"fl\ny"}, "no command 'fl\\ny'"},
      {{"\x1b[31m"}, "no command '\\x1b[31m'"},
      {{""}, "no command ''"},
      {{"--fl\ty"}, "no option --fl\\ty"},
      {{"zoo", "xe\nlta"}, "'xe'"},
      {{"zoo", "\x1b[31mred"}, "'\\x1b'"},
      {{"zoo", "\xff\xfe"}, "'\\xff'"},
      {{"zoo", "a", "b\nc"}, "b\\nc"},
      {{"plan"}, "RECIPE"},
      {{"plan", ""}, "recipe"},
      {{"plan", "deltanet{step:\n\x07}"}, "\\x07"},
      {{"plan", "@" + missing}, "not there"},
      {{"plan", "@" + missing}, "none\\n\\x1b[31m"},
      {{"plan", "@" + here}, "a folder"},
      {{"plan", "@"}, "recipe"},
      {{"plan", "@/dev/null"}, "JSON"},
      {{"plan", "@/dev/zero"}, "JSON"},
      {{"plan", "@" + json}, "range"},
      {{"plan", "@" + table}, "JSON"},
      {{"plan", "rls", "--dk", "0"}, "--dk"},
      {{"plan", "rls", "--dk", "1\n2"}, "1\\n2"},
      {{"plan", "rls", "--tokens", "99999999999999999999"}, "--tokens"},
      {{"apply", "rls", "--in", missing, "--out", folder / "o"}, "none\\n\\x1b[31m"},
      {{"apply", "rls", "--in", here, "--out", folder / "o"}, "directory"},
      {{"apply", "rls", "--in", table, "--out", folder / "o"}, "t.csv"},
      {{"apply", "@" + missing, "--in", table, "--out", folder / "o"}, "not there"},
      {{"apply", "rls", "--in", table, "--out", folder / "o", "--via", "\x1b"}, "\\x1b"},
      {{"apply", "rls", "--in", table, "--out", folder / "o", "--split", "0"}, "--split"},
      {{"recall", missing}, "none\\n\\x1b[31m"},
      {{"recall", here}, "directory"},
      {{"recall", "--memory", "@" + missing}, "not there"},
      {{"recall", "--memory", "\x1b"}, "\\x1b"},
      {{"recall", table, "--kept", "x\ny"}, "x\\ny"},
      {{"recall", table, "--decay", "2"}, "decay"},
      {{"forecast", missing, "--column", "x"}, "none\\n\\x1b[31m"},
      {{"forecast", table, "--column", "\x1b[31m"}, "\\x1b[31m"},
      {{"forecast", table, "--column", "x", "--memory", "@" + here}, "a folder"},
      {{"forecast", table, "--column", "x", "--separator", "a\nb"}, "a\\nb"},
      {{"forecast", table, "--column", "x", "--interval", "\x1b"}, "\\x1b"},
      {{"forecast", table, "--column", "x", "--resume", missing}, "none\\n\\x1b[31m"},
      {{"forecast", table, "--column", "x", "--resume", table}, "t.csv"},
      {{"experiment", "fl\ny"}, "fl\\ny"},
      {{"experiment", "mqar", "--pairs", "0"}, "pairs"},
      {{"experiment", "mqar", "--recipe", "\x1b"}, "\\x1b"},
      {{"experiment", "dials", "--steps", "x\ny"}, "x\\ny"},
      {{"experiment", "identities", "--resume"}, "--out"},
      {{"bench", "\x1b[31m"}, "\\x1b"},
      {{"bench", "--measure", "fl\ny"}, "fl\\ny"},
      {{"bench", "@" + missing}, "none\\n\\x1b[31m"},
      {{"chart", missing}, "none\\n\\x1b[31m"},
      {{"chart", table}, "a chart as JSON"},
      {{"doctor", "a\nb"}, "a\\nb"},
      {{"demo", "--series", missing}, "TEXT"},
  };
  for (const Bad& bad : table_of_bad) {
    const Outcome outcome = Ttr(bad.call);
    std::string call;
    for (const std::string& word : bad.call) call += " " + word;
    EXPECT_EQ(NoRefusal(outcome, 2, bad.says), "") << "ttr" << call;
    for (const char c : outcome.err) EXPECT_TRUE(c == '\n' || c >= ' ' || c < 0) << "ttr" << call;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "o"));
}

TEST(Command, ChartDrawsWhatJsonDescribes) {
  const Outcome drawn = Ttr({"chart"}, R"({"title": "A < B", "panels": [{"x": {"label": "tokens"},
      "series": [{"name": "one", "y": [1, 2]}, {"name": "two", "y": [2, null]}]}]})");
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_TRUE(drawn.out.starts_with("<svg"));
  for (const char* part : {"A &lt; B", ">tokens<", ">one<", ">two<", "</svg>\n"}) {
    EXPECT_NE(drawn.out.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(NoRefusal(Ttr({"chart"}, R"({"panels": []})"), 2, "panels must be one or more"), "");
}

TEST(Command, AFileWithoutPermissionIsCodeTwo) {
  const TemporaryFolder folder;
  Write(folder / "r.json", "{}");
  std::filesystem::permissions(folder / "r.json", std::filesystem::perms::none);
  if (std::ifstream(folder / "r.json")) GTEST_SKIP() << "runs with all permissions";
  EXPECT_EQ(NoRefusal(Ttr({"plan", "@" + (folder / "r.json").string()}), 2, "ermission"), "");
}

TEST(Command, AByteOrderMarkIsSkipped) {
  const TemporaryFolder folder;
  const std::string mark = "\xEF\xBB\xBF";
  const std::string recipe = "{\"weights\": {\"decay\": \"scalar\"}}";
  Write(folder / "bare", recipe);
  Write(folder / "marked", mark + recipe);
  const auto plan = [&](const char* file) {
    return Ttr({"plan", "@" + (folder / file).string(), "--json", "--tokens", "0"});
  };
  const Outcome bare = plan("bare");
  EXPECT_EQ(bare.code, 0) << bare.err;
  EXPECT_EQ(plan("marked").out, bare.out);

  const std::string rows = "x\n1\n2\n3\n4\n5\n";
  const std::vector<std::string> forecast = {"forecast", "-",        "--column", "x",      "--lags",
                                             "2",        "--memory", "nlms",     "--quiet"};
  EXPECT_EQ(Ttr(forecast, mark + rows).out, Ttr(forecast, rows).out);
  const std::vector<std::string> recall = {"recall", "--memory", "rls", "--json", "--quiet"};
  const Outcome text = Ttr(recall, "a b a b c");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(Ttr(recall, mark + "a b a b c").out, text.out);
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

// Who types the name of a published memory that no recipe is learns what is nearest.
TEST(Command, PublishedMemoriesLeadToWhatIsNearest) {
  std::istringstream text(ReadAll(TTR_SOURCE_DIR "/docs/layers.md"));
  std::string line;
  while (std::getline(text, line) && line != "## Published memories that no recipe is") continue;
  for (int i = 0; i < 3; ++i) std::getline(text, line);  // the head of the table
  int memories = 0;
  while (std::getline(text, line) && line.starts_with("| ")) {
    std::istringstream names(line.substr(2, line.find(" | ", 2) - 2));
    for (std::string name; std::getline(names, name, ',');) {
      const std::string one = name.substr(name.find_first_not_of(' '), name.find(" ("));
      EXPECT_NE(Ttr({"plan", one}).err.find("': try "), std::string::npos) << one;
      ++memories;
    }
  }
  EXPECT_GE(memories, 10);
}

TEST(Command, PaperDocumentIsFresh) {
  const Outcome markdown = Ttr({"zoo", "--paper", "--markdown"});
  ASSERT_EQ(markdown.code, 0) << markdown.err;
  EXPECT_TRUE(markdown.out == ReadAll(TTR_SOURCE_DIR "/docs/paper.md"))
      << "docs/paper.md is stale: run scripts/update_docs";
  EXPECT_NE(Ttr({"zoo", "--paper"}).out.find("eq. 1"), std::string::npos);
  EXPECT_EQ(NoRefusal(Ttr({"zoo", "rls", "--paper"}), 2, "--paper must be without NAME"), "");
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// Those of Python's programs are in python/tests.
TEST(Command, CommandsOfThePaperDocumentRun) {
  std::set<std::string> commands;
  for (const auto& entry : nlohmann::json::parse(Ttr({"zoo", "--paper", "--json"}).out)) {
    commands.insert(entry["command"].get<std::string>());
  }
  int run = 0;
  for (const std::string& command : commands) {
    std::vector<std::string> words = WordsOf(command);
    if (words.empty() || words.front() != "ttr") continue;
    words.erase(words.begin());
    if (words.front() == "experiment") {
      words.insert(words.end(), {"--quick", "--seeds", "1", "--quiet"});
    }
    const Outcome outcome = Ttr(words, "Hakuna Matata, it means no worries. Hakuna Matata",
                                {"env", "--chdir=" TTR_SOURCE_DIR});  // some read its files
    EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.err;
    EXPECT_FALSE(outcome.out.empty()) << command;
    ++run;
  }
  EXPECT_GE(run, 7);
}

}  // namespace
}  // namespace ttr::test
