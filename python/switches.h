/// The switches of CallOptions by their names. Both front ends take them as keywords of these
/// names, so that a switch more is a row more.
#pragma once

#include <string_view>

#include "ttr/call.h"

namespace ttr {

struct CallSwitch {
  std::string_view name;
  bool CallOptions::* value;
};

inline constexpr CallSwitch kCallSwitches[] = {
    {"bfloat16_products", &CallOptions::bfloat16_products},
};

}  // namespace ttr
