/// A number that stands for several: different ones have different numbers, but for a chance of
/// 2^-64.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ttr {

class Fingerprint {
 public:
  Fingerprint& Add(std::uint64_t number) {
    hash_ = (hash_ ^ number) * 0x100000001b3;
    hash_ ^= hash_ >> 32;  // so that low bits know of high ones
    return *this;
  }
  Fingerprint& Add(std::int64_t number) { return Add(static_cast<std::uint64_t>(number)); }
  Fingerprint& Add(std::string_view text) {
    return Add(std::uint64_t{std::hash<std::string_view>()(text)});
  }

  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace ttr
