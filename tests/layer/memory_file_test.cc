// Saved memories that lie, and saves that fail. (That a loaded memory goes on as before is tested
// for every layer in memory_test.cc.)
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/io/temp_folder.h"
#include "ttr/error.h"
#include "ttr/memory.h"
#include "ttr/util/safetensors.h"

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

// A saved memory, changed in one place, and the error of loading it with the path as FILE.
class MemoryFile : public testing::Test {
 protected:
  MemoryFile() {
    AssociativeMemory memory("weighted_rls{decay: 0.5}", {.key_dim = 2, .value_dim = 1});
    memory.Memorize(Numbers{1, 2}, Numbers{3});
    memory.Save(path());
    file_ = ReadSafetensors(path());
  }

  std::string path() const { return folder_ / "memory"; }

  std::string ErrorOfLoading() const {
    WriteSafetensors(path(), file_);
    std::string error = ErrorOf([&] { AssociativeMemory::Load(path()); });
    const std::size_t place = error.find(path());
    if (place != std::string::npos) error.replace(place, path().size(), "FILE");
    return error;
  }

  TempFolder folder_;
  TensorFile file_;
};

TEST_F(MemoryFile, CarriesRecipeAndVersion) {
  EXPECT_EQ(ErrorOfLoading(), "no error");
  EXPECT_EQ(ParseRecipe(file_.metadata.at("recipe_line")), ParseRecipe("weighted_rls{decay: 0.5}"));
  EXPECT_EQ(RecipeFromJson(file_.metadata.at("recipe")), ParseRecipe("weighted_rls{decay: 0.5}"));
  EXPECT_FALSE(file_.metadata.at("ttr.version").empty());
  EXPECT_TRUE(file_.tensors.contains("state"));
  EXPECT_TRUE(file_.tensors.contains("state.a"));
}

TEST_F(MemoryFile, MetadataIsChecked) {
  for (const char* key :
       {"ttr.memory", "recipe", "recipe_line", "key_dim", "value_dim", "heads", "count"}) {
    const std::string old = file_.metadata.at(key);
    file_.metadata.erase(key);
    EXPECT_EQ(ErrorOfLoading(), "[Load] metadata '" + std::string(key) +
                                    "' of FILE must be there, as in every saved memory but is "
                                    "absent");
    file_.metadata[key] = "{";
    EXPECT_EQ(ErrorOfLoading().substr(0, 7), "[Load] ") << key;
    EXPECT_NE(ErrorOfLoading().find("FILE"), std::string::npos) << key;
    file_.metadata[key] = old;
  }
  file_.metadata["recipe_line"] = ToString(ParseRecipe("rls"));
  EXPECT_EQ(ErrorOfLoading().substr(0, 46), "[Load] recipe_line of FILE must be the recipe ");
}

TEST_F(MemoryFile, AbsurdSizes) {
  for (const char* key : {"key_dim", "value_dim", "heads"}) {
    const std::string old = file_.metadata.at(key);
    for (const char* size :
         {"0", "-1", "3", "4611686018427387904", "9223372036854775808", "2x", "", " 2", "1e3"}) {
      file_.metadata[key] = size;
      EXPECT_EQ(ErrorOfLoading().substr(0, 7), "[Load] ") << key << " = " << size;
    }
    file_.metadata[key] = old;
  }
}

TEST_F(MemoryFile, StateIsChecked) {
  const TensorFile good = file_;
  file_.tensors.erase("state.a");
  EXPECT_EQ(ErrorOfLoading(),
            "[Load] tensor 'state.a' of FILE must be there after 1 tokens but is absent");
  file_ = good;
  file_.metadata["count"] = "0";
  EXPECT_EQ(ErrorOfLoading(),
            "[Load] tensor 'state' of FILE must be absent after 0 tokens but is there");
  file_ = good;
  file_.tensors["state"] = Tensor(DType::kFloat64, {1, 1, 2, 2});
  EXPECT_EQ(ErrorOfLoading(),
            "[Load] state of FILE: state must be [N,H,Dphi,Dv] = [1,1,2,1] but is [1,1,2,2]");
  file_ = good;
  file_.tensors["state"] = Tensor(DType::kFloat32, {1, 1, 2, 1});
  EXPECT_EQ(ErrorOfLoading(), "[Load] tensor 'state' of FILE must be float64 but is float32");
  file_ = good;
  file_.tensors["state.x"] = Tensor(DType::kFloat64, {1});
  EXPECT_EQ(ErrorOfLoading(),
            "[Load] state of FILE: state must be one of state, state.a but is 'state.x'");
  file_ = good;
  file_.tensors["gate.step"] = Tensor(DType::kFloat64, {1});
  EXPECT_EQ(ErrorOfLoading().substr(0, 47), "[Load] tensor 'gate.step' of FILE: gate must be");
}

TEST_F(MemoryFile, NotAMemory) {
  file_ = {};
  EXPECT_EQ(ErrorOfLoading(),
            "[Load] metadata 'ttr.memory' of FILE must be there, as in every saved memory but is "
            "absent");
}

TEST_F(MemoryFile, DamageIsRefusedOrHarmless) {
  const std::string good = test::ReadBytes(path());
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = good;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t place = random() % bytes.size();
      // A digit more often than not: sizes, counts and options of the recipe.
      bytes[place] = static_cast<char>(random() % 2 == 0 ? '0' + random() % 10 : random() % 256);
    }
    test::WriteBytes(path(), bytes);
    try {
      AssociativeMemory::Load(path());
    } catch (const Error& error) {
      ++refused;
      ASSERT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 5000);
}

TEST_F(MemoryFile, AFailedSaveLeavesTheOldFile) {
  const std::string before = test::ReadBytes(path());
  AssociativeMemory large("linear_attention", {.key_dim = 100, .value_dim = 100});
  large.Memorize(Numbers(100, 1), Numbers(100, 1));
  {
    const test::FullDisk full(4096);
    EXPECT_THROW(large.Save(path()), SystemError);
  }
  EXPECT_EQ(test::ReadBytes(path()), before);
  EXPECT_EQ(folder_.files(), 1);
  EXPECT_THROW(large.Save(folder_.path() / "none" / "memory"), SystemError);
}

}  // namespace
}  // namespace ttr
