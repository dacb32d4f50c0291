// What `ttr bench` knows of memories that keep their pairs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "tools/bench_limits.h"
#include "tools/bench_work.h"

namespace ttr::tools {

// What the measurement pairs times, and what it holds all against: softmax attention of the same
// shape.
struct PairsLine {
  std::string name;
  std::string recipe;
  std::int64_t longer = 1;  // times the tokens of the others
  DType dtype = DType::kFloat32;
  double reach = 0;        // Setting::reach
  std::int64_t heads = 0;  // if not those of the others
};
std::vector<PairsLine> PairsLines();

// Memories whose single tokens are timed, beside as many pairs as fill main memory's 64 MB.
std::vector<PairsLine> PairsDecodeLines();

// Whole sequences, forward and backward, beside the first line.
report::Table PairsTable(const std::vector<Work>& works, const Limits& limits);

// Single tokens, with pairs in float32 and in bfloat16.
report::Table PairsDecodeTable(const std::vector<Work>& works, const Limits& limits);

}  // namespace ttr::tools
