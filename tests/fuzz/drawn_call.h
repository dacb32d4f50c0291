// A call of a layer as bytes choose it: a recipe of the zoo with changes, sizes, dtypes, a packing,
// a state, and numbers that nobody would send, all in memory of exactly their extents.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/source.h"
#include "tests/support/calls.h"
#include "tests/support/hostile.h"
#include "ttr/layer.h"

namespace ttr::fuzz {

Recipe DrawRecipe(Source& source);

class DrawnCall {
 public:
  DrawnCall(const Recipe& recipe, Source& source);

  const Recipe& recipe() const { return layer.recipe(); }
  std::string Text() const;
  // The whole call can be cut, or taken token by token.
  bool Splits() const;
  // Numbers of inputs moved by as little as roundings of the arithmetic move them.
  void Disturb();
  // How much that is; 0 where answers cannot be compared: bfloat16, or numbers out of all range.
  double Rounding() const;

  Layer layer;
  test::Call call;  // its inputs lie in `memory`
  std::vector<std::int64_t> bounds;
  State state;
  test::Memory memory;
  bool saves = false;    // memory for Backward
  bool carries = false;  // a gradient of the last state
  CallOptions options;

 private:
  void MoveInputs(Source& source);
  void Pack(Source& source);
  void DrawState(Source& source);
  void Spoil(Source& source);

  DType dtype_;
  bool wild_ = false;
};

}  // namespace ttr::fuzz
