// Memory that ends before a page which nobody may touch: a byte too many stops the program.
#pragma once

#include <cstddef>
#include <span>

namespace ttr::test {

class Guarded {
 public:
  // The bytes begin at a multiple of `alignment`. Where they cannot end at the page for that, what
  // lies between is looked at by Whole().
  explicit Guarded(std::size_t bytes, std::size_t alignment = 1);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::span<std::byte> bytes() const { return {begin_, size_}; }
  // Has nothing been written before the bytes, nor between them and the page?
  bool Whole() const;

 private:
  static constexpr std::byte kUntouched{0xa5};

  std::byte* memory_;
  std::size_t mapped_, size_;
  std::byte* begin_;
  std::byte* page_;
};

}  // namespace ttr::test
