/// SIMD targets: which were compiled in, which this machine can run, which one is used; and how it
/// multiplies bfloat16.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ttr {

/// Names of the targets that kernels were compiled for, best first ("AVX3", "AVX2", "SCALAR";
/// "NEON"). The names are Highway's.
std::vector<std::string> CompiledTargets();

/// The compiled targets that this machine supports, best first. Throws ttr::SystemError where it
/// supports none, as kernels do: this program was compiled for another processor.
std::vector<std::string> SupportedTargets();

/// The target that kernels run on. The best one, unless the environment variable TTR_TARGET names
/// another; an unknown or unsupported name is an Error when the first kernel is asked for.
std::string_view ChosenTarget();

/// Forces a target from now on (for tests and benchmarks); empty goes back to the default. Not to
/// be called while kernels run.
void ForceTarget(std::string_view name);

/// How products of bfloat16 (CallOptions::bfloat16_products) are made where a target has them:
/// "tiles" (AMX: matrix tiles of 16 by 16), "pairs" (AVX512-BF16, or BFDOT of 64-bit Arm) or
/// "float32", which is none. The quickest by what the processor is, unless the environment variable
/// TTR_BFLOAT16_PRODUCTS names another; of one that it has not, and of anything else, an Error.
std::string_view BFloat16Products();

/// Has the processor matrix tiles that the system refuses this process?
bool MatrixTilesRefused();

}  // namespace ttr
