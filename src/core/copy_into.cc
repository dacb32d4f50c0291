#include "ttr/error.h"
#include "ttr/tensor.h"

namespace ttr {

void CopyInto(const TensorView& from, const TensorView& to) {
  if (!(from.shape() == to.shape())) {
    throw Error("CopyInto", "to", from.shape().ToString(), to.shape().ToString());
  }
  if (from.shape().elements() == 0) return;
  // Every view as one of full rank: the axes that are missing come first and have one row.
  std::int64_t sizes[kMaxRank];
  std::int64_t strides_from[kMaxRank];
  std::int64_t strides_to[kMaxRank];
  const int missing = kMaxRank - from.rank();
  for (int i = 0; i < kMaxRank; ++i) {
    const bool real = i >= missing;
    sizes[i] = real ? from.size(i - missing) : 1;
    strides_from[i] = real ? from.stride(i - missing) : 0;
    strides_to[i] = real ? to.stride(i - missing) : 0;
  }
  for (std::int64_t a = 0; a < sizes[0]; ++a) {
    for (std::int64_t b = 0; b < sizes[1]; ++b) {
      for (std::int64_t c = 0; c < sizes[2]; ++c) {
        const std::int64_t f = a * strides_from[0] + b * strides_from[1] + c * strides_from[2];
        const std::int64_t t = a * strides_to[0] + b * strides_to[1] + c * strides_to[2];
        for (std::int64_t d = 0; d < sizes[3]; ++d) {
          StoreElement(to.data(), to.dtype(), t + d * strides_to[3],
                       LoadElement(from.data(), from.dtype(), f + d * strides_from[3]));
        }
      }
    }
  }
}

}  // namespace ttr
