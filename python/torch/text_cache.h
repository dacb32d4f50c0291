/// What is made of a text, kept: operators are given texts, with every token.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace ttr::pytorch {

/// From any thread. A program has few texts; one that draws them at random stays bounded.
template <class Made>
class TextCache {
 public:
  /// What was kept of `text`, or else what make() makes of it.
  template <class Make>
  std::shared_ptr<const Made> Find(const std::string& text, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = made_.find(text); found != made_.end()) return found->second;
    }
    std::shared_ptr<const Made> made = make();
    const std::lock_guard lock(mutex_);
    if (made_.size() >= kMost) made_.clear();
    made_.emplace(text, made);
    return made;
  }

 private:
  static constexpr std::size_t kMost = 256;

  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Made>> made_;
};

}  // namespace ttr::pytorch
