// What nearly every file includes of the standard library, parsed once: half of the time that a
// file without kernels takes to compile. Files include what they use all the same; the preset clang
// compiles them without this one.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
