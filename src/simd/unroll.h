/// Loops whose iterations the compiler must write out one by one.
#pragma once

// Register tiles are arrays of vectors, which become registers only where every loop over them is
// unrolled.
#ifdef __clang__
#define TTR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TTR_UNROLL _Pragma("GCC unroll 16")
#endif
