// No file that a command reads is one that it writes.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/tools/command.h"

namespace ttr::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTable = "x\n1\n2\n3\n4\n5\n6\n";

// A folder with an input in it, and that file under other names.
class Files : public ::testing::Test {
 protected:
  Files() {
    Write(folder_ / "in", kTable);
    Write(folder_ / "recipe.json", "{\"weights\": {\"decay\": \"scalar\"}}");
    fs::create_directory(folder_ / "sub");
    fs::create_symlink("in", folder_ / "symbolic");
    fs::create_hard_link(folder_ / "in", folder_ / "hard");
    fs::create_directory_symlink(".", folder_ / "itself");
    files_ = folder_.Count();
  }

  std::string At(const char* name) const { return folder_ / name; }

  // The input by its name, and by all others.
  std::vector<std::string> Spellings() const {
    return {At("in"), At("sub/../in"), At("./in"), At("itself/in"), At("symbolic"), At("hard")};
  }

  // Is the call refused, with nothing written?
  std::string Refused(const std::vector<std::string>& call, const std::string& text) const {
    const Outcome outcome = Ttr(call);
    if (ReadAll(folder_ / "in") != kTable) return "the input has changed";
    if (folder_.Count() != files_) return "something was written";
    return NoRefusal(outcome, 2, text);
  }

  TemporaryFolder folder_;

 private:
  std::ptrdiff_t files_ = 0;
};

TEST_F(Files, AnOutputOfForecastIsNoInput) {
  for (const std::string& other : Spellings()) {
    const std::vector<std::string> call = {"forecast", At("in"), "--column", "x", "--lags", "2"};
    for (const char* option : {"--out", "--save"}) {
      std::vector<std::string> writing = call;
      writing.insert(writing.end(), {option, other});
      EXPECT_EQ(Refused(writing, "[forecast] " + std::string(option) +
                                     " must be another file than what TABLE reads but is " + other),
                "");
    }
    EXPECT_EQ(Refused({"forecast", other, "--column", "x", "--out", At("in")}, "--out"), "");
    EXPECT_EQ(Refused({"forecast", "-", "--resume", other, "--out", At("in")}, "--resume"), "");
  }
  EXPECT_EQ(Refused({"forecast", At("in"), "--column", "x", "--memory", "@" + At("recipe.json"),
                     "--save", At("recipe.json")},
                    "--memory"),
            "");
  fs::rename(folder_ / "hard", folder_ / "hard.svg");
  EXPECT_EQ(Refused({"forecast", At("in"), "--column", "x", "--chart", At("hard")}, "--chart"), "");
}

TEST_F(Files, ARedirectedStandardInputIsSeenThrough) {
  const std::vector<std::string> redirect = {"sh", "-c", "exec \"$@\" < '" + At("in") + "'", "sh"};
  const Outcome outcome =
      Ttr({"forecast", "-", "--column", "x", "--lags", "2", "--out", At("in")}, "", redirect);
  EXPECT_EQ(NoRefusal(outcome, 2, "the same file as standard input"), "");
  EXPECT_EQ(ReadAll(folder_ / "in"), kTable);
}

TEST_F(Files, OutputsAreDifferentFiles) {
  const std::vector<std::string> call = {"forecast", At("in"), "--column", "x", "--lags", "2"};
  std::vector<std::string> writing = call;
  writing.insert(writing.end(), {"--out", At("new"), "--save", At("sub/../new")});
  EXPECT_EQ(Refused(writing, "--out must be another file than that of --save"), "");
}

TEST_F(Files, AnOutputOfApplyIsNoInput) {
  for (const std::string& other : Spellings()) {
    EXPECT_EQ(Refused({"apply", "rls", "--in", At("in"), "--out", other},
                      "[apply] --out must be another file than what --in reads but is " + other),
              "");
  }
  EXPECT_EQ(Refused({"apply", "@" + At("recipe.json"), "--in", At("in"), "--out",
                     At("itself/recipe.json")},
                    "RECIPE"),
            "");
}

TEST_F(Files, AFolderReceivesNoFileThatIsRead) {
  const auto becomes = [&](const char* name) {
    fs::rename(folder_ / "hard", folder_ / name);
    return [this, name] { fs::rename(folder_ / name, folder_ / "hard"); };
  };
  const std::string here = folder_.path();
  std::function<void()> back = becomes("recall.csv");
  EXPECT_EQ(Refused({"recall", At("in"), "--out", here},
                    "[recall] --out must be another file than what FILE reads but is " +
                        At("recall.csv")),
            "");
  back();
  back = becomes("inner-loss.json");
  EXPECT_EQ(
      Refused({"experiment", "inner-loss", "--quick", "--text", At("in"), "--out", here}, "--text"),
      "");
  EXPECT_EQ(
      Refused({"experiment", "inner-loss", "--quick", "--table", At("in"), "--out", At("itself")},
              "--table"),
      "");
  back();
  back = becomes("forecast.csv");
  EXPECT_EQ(Refused({"demo", "--series", At("in"), At("recipe.json"), "--out", here}, "--series"),
            "");
  EXPECT_EQ(Refused({"demo", "--series", At("recipe.json"), At("in"), "--out", here}, "TEXT"), "");
  back();
  fs::create_hard_link(folder_ / "recipe.json", folder_ / "bench.json");
  EXPECT_EQ(
      NoRefusal(Ttr({"bench", "@" + At("recipe.json"), "--measure", "prefill", "--out", here}), 2,
                "WHAT"),
      "");
}

// What is neither read nor written counts for nothing: the folder of an input may receive files.
TEST_F(Files, AFolderOfInputsMayReceiveOthers) {
  const Outcome recall =
      Ttr({"recall", At("in"), "--memory", "rls", "--out", folder_.path(), "--quiet"});
  EXPECT_EQ(recall.code, 0) << recall.err;
  EXPECT_EQ(ReadAll(folder_ / "in"), kTable);
  const Outcome again =
      Ttr({"recall", At("in"), "--memory", "rls", "--out", folder_.path(), "--quiet"});
  EXPECT_EQ(again.code, 0) << again.err;
  const Outcome nowhere =
      Ttr({"forecast", "/dev/null", "--column", "1", "--lags", "2", "--out", "/dev/null"});
  EXPECT_EQ(NoRefusal(nowhere, 2, "empty"), "");
}

}  // namespace
}  // namespace ttr::test
