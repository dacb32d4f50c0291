// A call that is given its scratch allocates nothing: Forward, Step and a decoder's Step of every
// layer whose memory does not grow.
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

// Memories of one size. Least squares map keys and normalise outputs by way of a copy.
std::vector<std::string> OfOneSize() {
  std::vector<std::string> recipes;
  for (const std::string& text : test::LayerRecipes()) {
    const Recipe recipe = ParseRecipe(text);
    const std::string_view engine = MakePlan(recipe).engine;
    const bool plain = recipe.function.features == FeatureMap::kNone &&
                       recipe.function.kind == FunctionClass::kLinear &&
                       !recipe.reading.normalise_qk &&
                       recipe.reading.output_norm == OutputNorm::kNone;
    const bool of_one_size = engine == "fast_weights" || engine == "scan" ||
                             engine == "kernel_dictionary" || (engine == "least_squares" && plain);
    if (of_one_size && recipe.reading.causal) recipes.push_back(text);
  }
  return recipes;
}

class Allocations : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, Allocations, testing::ValuesIn(OfOneSize()), test::CaseName);

template <class Call>
std::int64_t AllocationsOf(const Call& call) {
  call();  // constants of these sizes are made once
  const std::int64_t before = allocations;
  call();
  return allocations - before;
}

TEST_P(Allocations, AreNoneWithScratch) {
  if (!TTR_COUNTS_ALLOCATIONS) GTEST_SKIP() << "the allocator is a sanitizer's";
  const Recipe recipe = ParseRecipe(GetParam());
  const Layer layer(recipe);
  Dims dims = test::SmallDims(recipe);
  const test::Call call(recipe, dims, DType::kFloat32, 1, true);
  const Inputs token = TokensOf(call, 0, 1);
  const Tensor y(DType::kFloat32, OutputShape(dims));
  std::vector<std::byte> scratch(layer.ScratchBytes(dims, 1));
  const CallOptions options{.executor = &SequentialExecutor(), .scratch = scratch};
  const Outputs all{.y = y.view()}, one{.y = y.view().Slice(1, 0, 1)};
  State state;
  EXPECT_EQ(AllocationsOf([&] { layer.Forward(call.inputs, state, all, options); }), 0);
  EXPECT_EQ(AllocationsOf([&] { layer.Step(token, state, one, options); }), 0);
  dims.tokens = 1;
  Decoder decoder(layer, dims, DType::kFloat32);
  EXPECT_EQ(AllocationsOf([&] { decoder.Step(token, one, options); }), 0);
}

}  // namespace
}  // namespace ttr
