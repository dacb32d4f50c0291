// The corpora that the fuzzers keep, through the same functions in an ordinary build: what was
// found once stays mended, and the fuzzers compile.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tests/fuzz/fuzzers.h"
#include "tests/io/temp_folder.h"

namespace ttr::fuzz {
namespace {

struct Fuzzer {
  const char* name;
  void (*run)(Bytes);
};

class Replay : public testing::TestWithParam<Fuzzer> {
 protected:
  void Run(const std::string& bytes) const {
    EXPECT_NO_THROW(
        GetParam().run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
  }
};

INSTANTIATE_TEST_SUITE_P(Fuzzers, Replay,
                         testing::Values(Fuzzer{"safetensors", Safetensors},
                                         Fuzzer{"recipe_text", RecipeText},
                                         Fuzzer{"recipe_json", RecipeJson},
                                         Fuzzer{"tables", Tables}, Fuzzer{"calls", Calls}),
                         [](const auto& made) { return std::string(made.param.name); });

TEST_P(Replay, KeepsItsPromisesOnTheKeptCorpus) {
  const auto folder = std::filesystem::path(TTR_SOURCE_DIR) / "tests/fuzz/corpus" / GetParam().name;
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(folder)) files.push_back(file);
  std::ranges::sort(files);
  EXPECT_GE(files.size(), 5u);
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    Run(test::ReadBytes(file));
  }
}

TEST_P(Replay, KeepsItsPromisesOnNothing) {
  Run("");
  Run(std::string(1, '\0'));
}

}  // namespace
}  // namespace ttr::fuzz
