/// Room for the weights of a block of pairs, as queries count them.
#pragma once

#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/linalg/block.h"

namespace ttr::common {

template <class T>
struct OffsetRoom {
  double* offsets = nullptr;  ///< [pair]
  T* main = nullptr;          ///< [pair]
  T* rest = nullptr;          ///< [pair of a unit]
  T* biased = nullptr;        ///< [pair]: with the bias of one query

  OffsetRoom() = default;
  OffsetRoom(std::int64_t pairs, ScratchLayout& layout)
      : offsets(layout.Take<double>(linalg::RoundUp(pairs, linalg::kUnit))),
        main(layout.Take<T>(linalg::RoundUp(pairs, linalg::kUnit))),
        rest(layout.Take<T>(linalg::kUnit)),
        biased(layout.Take<T>(linalg::RoundUp(pairs, linalg::kUnit))) {}
};

}  // namespace ttr::common
