/// One character of UTF-8 at a time, from any source of bytes.
#pragma once

#include <string>

namespace ttr::experiments {

inline constexpr char32_t kNotUtf8 = 0xFFFFFFFF;

/// Reads one character through `get` and `peek` (a byte 0 .. 255, or negative at the end), appends
/// its bytes to `bytes`, and returns its code. Bytes that are no UTF-8 (a stray continuation, a
/// sequence cut short, a needlessly long one, a surrogate, a code beyond U+10FFFF) return kNotUtf8;
/// a byte that may begin another character is never taken along. There must be a byte left.
template <typename Get, typename Peek>
char32_t ReadUtf8(Get&& get, Peek&& peek, std::string& bytes) {
  const int first = get();
  bytes.push_back(static_cast<char>(first));
  if (first < 0x80) {
    return static_cast<char32_t>(first);
  }
  const int more = first < 0xC2 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : 0;
  if (more == 0) {
    return kNotUtf8;
  }
  auto code = static_cast<char32_t>(first & (0x3F >> more));
  for (int i = 0; i < more; ++i) {
    const int next = peek();
    if (next < 0x80 || next > 0xBF) {
      return kNotUtf8;
    }
    bytes.push_back(static_cast<char>(get()));
    code = (code << 6) | static_cast<char32_t>(next & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[more] || code > 0x10FFFF || surrogate ? kNotUtf8 : code;
}

}  // namespace ttr::experiments
