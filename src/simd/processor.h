/// Whose processor this is, where the instructions that it has do not tell what is fast.
#pragma once

namespace ttr::simd {

bool IsAmd();

}  // namespace ttr::simd
