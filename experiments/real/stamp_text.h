/// Time stamps as text (time_steps.h says which).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "experiments/real/time_steps.h"

namespace ttr::experiments {

/// The stamp, read in this order; none where the text is no such stamp, or no date that exists.
std::optional<Stamp> ParseStamp(std::string_view text, Stamp::Order order);

std::string WriteStamp(const Stamp& stamp);

}  // namespace ttr::experiments
