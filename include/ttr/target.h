/// SIMD targets: which were compiled in, which this machine can run, which one is used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ttr {

/// Names of the compiled targets that this machine supports, best first ("AVX3_ZEN4", "AVX3",
/// "AVX2", "SSE4", "EMU128", ...). The names are Highway's.
std::vector<std::string> SupportedTargets();

/// The target that kernels run on. The best one, unless the environment variable TTR_TARGET names
/// another; an unknown or unsupported name is an Error when the first kernel is asked for.
std::string_view ChosenTarget();

/// Forces a target from now on (for tests and benchmarks); empty goes back to the default. Not to
/// be called while kernels run.
void ForceTarget(std::string_view name);

}  // namespace ttr
