// How much engines keep in which cache, by what the system says of them.
#include "src/simd/caches.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/io/temp_folder.h"

namespace ttr::simd {
namespace {

constexpr std::int64_t kKilo = 1 << 10, kMega = 1 << 20;

// A folder as the system's, with what is written into it.
class Folder {
 public:
  void Add(const std::string& type, const std::string& size) {
    const auto level = folder_ / ("index" + std::to_string(count_++));
    std::filesystem::create_directory(level);
    test::WriteBytes(level / "type", type + "\n");
    test::WriteBytes(level / "size", size + "\n");
  }
  std::string path() const { return folder_.path().string(); }

 private:
  test::TempFolder folder_;
  int count_ = 0;
};

TEST(Caches, AreReadLevelByLevelWithoutThoseOfInstructions) {
  Folder folder;
  EXPECT_TRUE(ReadCacheLevels(folder.path()).empty());
  folder.Add("Data", "48K");
  folder.Add("Instruction", "64K");
  folder.Add("Unified", "2048K");
  folder.Add("Unified", "107520K");
  const std::vector<std::int64_t> levels{48 * kKilo, 2 * kMega, 105 * kMega};
  EXPECT_EQ(ReadCacheLevels(folder.path()), levels);
  folder.Add("Unified", "nonsense");
  EXPECT_EQ(ReadCacheLevels(folder.path()), levels);
}

void ExpectSame(const Caches& a, const Caches& b) {
  EXPECT_EQ(a.first_level, b.first_level);
  EXPECT_EQ(a.in_turn, b.in_turn);
  EXPECT_EQ(a.numbers_ahead, b.numbers_ahead);
  EXPECT_EQ(a.kept_states, b.kept_states);
  EXPECT_EQ(a.uncached_outputs, b.uncached_outputs);
  EXPECT_EQ(a.uncached_gradients, b.uncached_gradients);
}

TEST(Caches, OfThatMachineAreTheDefault) {
  ExpectSame(CachesOf({}), Caches());
  ExpectSame(CachesOf({32 * kKilo, kMega, 32 * kMega}), Caches());
  ExpectSame(CachesOf({32 * kKilo, kMega / 2, 32 * kMega}), Caches());  // a Zen 3
}

TEST(Caches, GrowWithTheLevels) {
  const Caches xeon = CachesOf({48 * kKilo, 2 * kMega, 105 * kMega});
  EXPECT_EQ(xeon.first_level, 48 * kKilo);
  EXPECT_EQ(xeon.in_turn, kMega);
  EXPECT_EQ(xeon.numbers_ahead, 2 << 16);
  EXPECT_EQ(xeon.kept_states, 105 * kMega / 2);
  EXPECT_EQ(xeon.uncached_outputs, 105 * kMega / 2);
  EXPECT_EQ(xeon.uncached_gradients, 105 * kMega / 16);
  // Two levels: the second is the last.
  EXPECT_EQ(CachesOf({64 * kKilo, 4 * kMega}).uncached_outputs, 2 * kMega);
}

TEST(Caches, AreForcedAndGivenBack) {
  const std::int64_t before = TheCaches().in_turn;
  const Caches other{.in_turn = 7};
  ForceCaches(&other);
  EXPECT_EQ(TheCaches().in_turn, 7);
  ForceCaches(nullptr);
  EXPECT_EQ(TheCaches().in_turn, before);
}

}  // namespace
}  // namespace ttr::simd
