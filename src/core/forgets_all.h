/// When a decay is a reset.
#pragma once

namespace ttr {

/// Below it exp() is 0 in double.
inline constexpr double kLogOfNothing = -745.13321910194122;

/// Does this decay leave nothing of what is remembered? A finite logarithm that is so low does what
/// -inf does.
inline bool ForgetsAll(double log_decay) { return log_decay < kLogOfNothing; }

}  // namespace ttr
