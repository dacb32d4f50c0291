/// The sizes of a call or of a memory as Python gives them, by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr {

struct GivenSizes {
  using Size = std::optional<std::int64_t>;
  Size batch{}, tokens{}, query_heads{}, key_heads{}, value_heads{}, heads{};
  Size key_dim{}, value_dim{}, features{}, hidden{}, sequences{};
};

/// A size by the name of its axis, and where it is given and used.
struct SizeField {
  std::string_view name;
  GivenSizes::Size GivenSizes::* given;
  std::int64_t Dims::* used;
};

inline constexpr SizeField kSizeFields[] = {
    {"B", &GivenSizes::batch, &Dims::batch},
    {"T", &GivenSizes::tokens, &Dims::tokens},
    {"Hq", &GivenSizes::query_heads, &Dims::query_heads},
    {"Hk", &GivenSizes::key_heads, &Dims::key_heads},
    {"Hv", &GivenSizes::value_heads, &Dims::value_heads},
    {"H", &GivenSizes::heads, &Dims::heads},
    {"Dk", &GivenSizes::key_dim, &Dims::key_dim},
    {"Dv", &GivenSizes::value_dim, &Dims::value_dim},
    {"F", &GivenSizes::features, &Dims::features},
    {"hidden", &GivenSizes::hidden, &Dims::hidden},
    {"N", &GivenSizes::sequences, &Dims::sequences},
};

/// The sizes of a token or of more. What is not given: one row, one token, as many heads of
/// queries, keys and values as memories, the hidden width that the recipe says.
inline Dims DimsFrom(const Recipe& recipe, const GivenSizes& given) {
  Dims dims;
  dims.tokens = 1;
  dims.query_heads = dims.key_heads = dims.value_heads = given.heads.value_or(dims.heads);
  for (const SizeField& field : kSizeFields) {
    dims.*field.used = (given.*field.given).value_or(dims.*field.used);
  }
  if (!given.hidden && recipe.function.kind == FunctionClass::kNetwork &&
      recipe.function.depth > 1) {
    dims.hidden = recipe.function.expansion * dims.key_dim;
  }
  return dims;
}

}  // namespace ttr
