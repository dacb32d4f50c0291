// Queries into a worker's scratch. Compiled once for every target.

#if defined(TTR_KERNEL_SMOOTHER_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_LOAD_INL_H_
#undef TTR_KERNEL_SMOOTHER_LOAD_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_LOAD_INL_H_
#endif

#include "hwy/highway.h"
#include "src/engines/common/block_offsets-inl.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/common/queries-inl.h"
#include "src/engines/kernel_smoother/task.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace cn = ttr::common::HWY_NAMESPACE;

using cn::IsFinite;
using cn::KeysOf;
using cn::LoadPairs;
using cn::LoadQueries;
using cn::LoadQuery;
using cn::SetNonfiniteAside;
using cn::ValuesOf;
using common::Place;
using common::QueryBlock;

/// What queries are multiplied with.
inline double ScaleOf(const Options& options) {
  return options.kernel == common::Kernel::kExponential ? options.scale : 1;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_LOAD_INL_H_
