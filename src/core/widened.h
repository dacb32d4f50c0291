/// An element as a double, exactly.
#pragma once

#include "ttr/dtype.h"

namespace ttr {

inline double Widened(double x) { return x; }
inline double Widened(BFloat16 x) { return ToFloat(x); }
inline double Widened(Float16 x) { return ToFloat(x); }

}  // namespace ttr
