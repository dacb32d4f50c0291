// A call that is given its scratch allocates nothing: Forward, Step and a decoder's Step of every
// recipe on every engine. A state that keeps its pairs doubles when it is full, and allocates then;
// the calls counted here find room.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "ttr/decoder.h"
#include "ttr/layer.h"
#include "ttr/plan.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TTR_COUNTS_ALLOCATIONS false  // their allocator is the sanitizer's
#else
#define TTR_COUNTS_ALLOCATIONS true
#endif

namespace {
thread_local std::int64_t allocations = 0;

[[maybe_unused]] void* Allocated(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, whole > 0 ? whole : alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

#if TTR_COUNTS_ALLOCATIONS
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // both sides are here
#endif
void* operator new(std::size_t bytes) { return Allocated(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocated(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace ttr {
namespace {

class Allocations : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, Allocations, testing::ValuesIn(test::LayerRecipes()), test::CaseName);

template <class Call>
std::int64_t AllocationsOf(const Call& call) {
  // Constants of these sizes are made once. A state of pairs that took as many three times has room
  // for as many again.
  for (int i = 0; i < 3; ++i) call();
  const std::int64_t before = allocations;
  call();
  return allocations - before;
}

TEST_P(Allocations, AreNoneWithScratch) {
  if (!TTR_COUNTS_ALLOCATIONS) GTEST_SKIP() << "the allocator is a sanitizer's";
  const Recipe recipe = ParseRecipe(GetParam());
  const Layer layer(recipe);
  if (layer.plan().engine == kDefinition)
    GTEST_SKIP() << "no engine runs it, and the definition allocates";
  Dims dims = test::SmallDims(recipe);
  const test::Call call(recipe, dims, DType::kFloat32, 1, true);
  const Inputs token = TokensOf(call, 0, 1);
  const Tensor y(DType::kFloat32, OutputShape(dims)), status(DType::kInt8, StatusShape(dims));
  const Tensor iterations(DType::kInt64, StatusShape(dims));
  const Tensor residual(DType::kFloat64, StatusShape(dims));
  const Outputs all{y.view(), status.view(), iterations.view(), residual.view()};
  const auto first = [](const Tensor& tensor) { return tensor.view().Slice(1, 0, 1); };
  const Outputs one{first(y), first(status), first(iterations), first(residual)};
  Dims room = dims;
  room.tokens *= 4;  // a matrix of all pairs is as large as these are
  std::vector<std::byte> scratch(layer.ScratchBytes(room, 1));
  const CallOptions options{.executor = &SequentialExecutor(), .scratch = scratch};
  State state;
  EXPECT_EQ(AllocationsOf([&] { layer.Forward(call.inputs, state, all, options); }), 0);
  if (!recipe.reading.causal) return;
  EXPECT_EQ(AllocationsOf([&] { layer.Step(token, state, one, options); }), 0);
  dims.tokens = 1;
  Decoder decoder(layer, dims, DType::kFloat32);
  EXPECT_EQ(AllocationsOf([&] { decoder.Step(token, one, options); }), 0);
}

}  // namespace
}  // namespace ttr
