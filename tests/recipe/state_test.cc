#include "ttr/state.h"

#include <gtest/gtest.h>

#include <utility>

#include "ttr/inputs.h"

namespace ttr {
namespace {

TEST(State, OwnsWhatIsSetAndSharesWhatIsBound) {
  State state;
  EXPECT_TRUE(state.empty());
  EXPECT_FALSE(state.Get("state").defined());

  Tensor mine(DType::kFloat64, {2});
  state.Bind("state", mine.view());
  state.Get("state").Set({1}, 3);
  EXPECT_EQ(mine.view().At({1}), 3);

  state.Set("state.n", Tensor(DType::kFloat32, {4}));
  EXPECT_EQ(state.entries().size(), 2u);
  EXPECT_EQ(state.Get("state.n").shape(), Shape({4}));

  state.Set("state", Tensor(DType::kFloat32, {5}));  // takes the place of the bound one
  EXPECT_EQ(state.entries().size(), 2u);
  EXPECT_EQ(state.Get("state").shape(), Shape({5}));
  EXPECT_NE(state.Get("state").data(), mine.data());

  state.clear();
  EXPECT_TRUE(state.empty());
}

TEST(State, CopiesAreTheirOwn) {
  State state;
  state.Set("state", Tensor(DType::kFloat32, {1}));
  Tensor mine(DType::kFloat32, {1});
  state.Bind("state.n", mine.view());
  {
    State copy = state;
    copy.Get("state").Set({0}, 7);
    copy.Get("state.n").Set({0}, 8);
    EXPECT_EQ(copy.Get("state").At({0}), 7);
  }
  EXPECT_EQ(state.Get("state").At({0}), 0);
  EXPECT_EQ(state.Get("state.n").At({0}), 8);  // bound memory stays shared

  State other;
  other.Set("state", Tensor(DType::kFloat64, {9}));
  other = state;
  EXPECT_NE(other.Get("state").data(), state.Get("state").data());
  const void* data = other.Get("state").data();
  const State moved = std::move(other);
  EXPECT_EQ(moved.Get("state").data(), data);
}

TEST(State, SharedOnesChangeEntriesAndAddNone) {
  State state;
  state.Set("state", Tensor(DType::kFloat32, {1}));
  State shared = state.Shared();
  shared.Get("state").Set({0}, 7);
  shared.Set("state.n", Tensor(DType::kFloat32, {1}));
  EXPECT_EQ(state.Get("state").At({0}), 7);
  EXPECT_FALSE(state.Get("state.n").defined());
}

}  // namespace
}  // namespace ttr
