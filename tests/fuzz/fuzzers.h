// What reads bytes from strangers, or is called with whatever they choose: each fuzzer takes any
// bytes, does with them what a program does, and throws Broken where a promise is not kept. The
// same functions run under libFuzzer (main.cc) and over the kept corpora in an ordinary test
// (replay_test.cc).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "ttr/error.h"

namespace ttr::fuzz {

using Bytes = std::span<const std::uint8_t>;

void Safetensors(Bytes bytes);
void RecipeText(Bytes bytes);
void RecipeJson(Bytes bytes);
void Tables(Bytes bytes);
void Calls(Bytes bytes);

// A promise that was not kept. No Error: those are what a fuzzer expects.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void Expect(bool holds, const std::string& what) {
  if (!holds) throw Broken(what);
}

inline std::string_view TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Runs `act`: the line with which it is refused, free of control characters, or nothing.
template <class Act>
std::string Refusal(Act&& act) {
  try {
    std::forward<Act>(act)();
    return "";
  } catch (const Error& error) {
    const std::string text = error.what();
    const auto controls = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
    Expect(!text.empty() && std::ranges::none_of(text, controls),
           "an error must be one line but is: " + text);
    return text;
  }
}

template <class Act>
bool Accepts(Act&& act) {
  return Refusal(std::forward<Act>(act)).empty();
}

}  // namespace ttr::fuzz
