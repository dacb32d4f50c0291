#include "src/recipe/check_sizes.h"

#include <algorithm>
#include <string>

#include "src/core/sizes.h"
#include "src/recipe/family.h"
#include "ttr/error.h"

namespace ttr {
namespace {

constexpr std::int64_t kPad = 64;           // of a row or a block, at the most
constexpr std::int64_t kWorkers = 1 << 10;  // each has scratch of its own

/// The most rows and columns of what an engine holds, with their padding.
struct Widths {
  std::int64_t rows, columns;

  Widths(const Recipe& recipe, const Dims& dims, Family family) {
    const std::int64_t budget = HasBudget(recipe) ? recipe.optimizer.budget : 0;
    rows = std::max({PhiDim(recipe, dims), dims.key_dim, Product({2, dims.hidden}), budget});
    rows += 4 * kPad;  // systems of a local polynomial have up to 256 unknowns
    const bool square = family == Family::kNetwork || family == Family::kLocalPolynomial;
    const std::int64_t layers = family == Family::kNetwork ? recipe.function.depth : 1;
    columns = std::max(dims.value_dim + kPad, square ? Product({rows, layers}) : 0);
  }
};

/// A bound on the bytes of anything that is formed at these sizes.
std::int64_t MostBytes(const Recipe& recipe, const Dims& dims) {
  const Family family = FamilyOf(recipe);
  const auto [height, width] = Widths(recipe, dims, family);
  const std::int64_t square = Product({height, std::max(height, width)});
  const std::int64_t states = std::max<std::int64_t>(dims.states(), 1);
  const std::int64_t queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  const std::int64_t readers = Product({dims.heads, queries});
  const std::int64_t rows = Product({RowsPerToken(recipe), dims.tokens}) + kPad;
  // All sequences together have so many.
  const std::int64_t all =
      dims.sequences > 0 ? rows + Product({states, kPad}) : Product({states, rows});
  const std::int64_t records = KeepsPairs(recipe) ? Product({states, rows}) : all;
  const std::int64_t row = family == Family::kLocalPolynomial ? square : height + width;
  const bool factors =
      family == Family::kKernelRegression && !HasBudget(recipe) && recipe.weights.window == 0;
  return std::max(
      {Product({readers, all, height, width, 512}),                   // states between tokens
       Product({readers, records, row, 32}),                          // a record a query
       Product({readers, states + kWorkers, square, 64}),             // memories
       Product({factors ? kWorkers : 0, readers, rows, rows, 16})});  // a matrix of all pairs
}

}  // namespace

void CheckSizes(std::string_view op, const Recipe& recipe, const Dims& dims) {
  CheckDims(op, dims);
  if (MostBytes(recipe, dims) < kMostBytes) return;
  throw Error(op, "sizes", "such that nothing has 2^62 bytes",
              "B = " + std::to_string(dims.batch) + ", T = " + std::to_string(dims.tokens) +
                  ", H = " + std::to_string(dims.heads) + ", Dk = " + std::to_string(dims.key_dim) +
                  ", Dv = " + std::to_string(dims.value_dim));
}

}  // namespace ttr
