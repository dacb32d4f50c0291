#include "src/adapters/kernel_words.h"

namespace ttr {

common::Kernel KernelOf(Kernel kernel) {
  switch (kernel) {
    case Kernel::kNone:
    case Kernel::kExponential: return common::Kernel::kExponential;
    case Kernel::kGaussian: return common::Kernel::kGaussian;
    case Kernel::kLaplace: return common::Kernel::kLaplace;
    case Kernel::kEpanechnikov: return common::Kernel::kEpanechnikov;
    case Kernel::kBiweight: return common::Kernel::kBiweight;
    case Kernel::kTriweight: return common::Kernel::kTriweight;
    case Kernel::kInverseDistance: return common::Kernel::kInverseDistance;
  }
  return common::Kernel::kExponential;
}

}  // namespace ttr
