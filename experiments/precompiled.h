// What nearly every experiment and subcommand includes, parsed once.
#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>

#include "cmake/precompiled.h"
