/// The choices that a memory makes while it reads.
#pragma once

#include <cstddef>
#include <vector>

namespace ttr::definition {

/// What a memory decides token by token (does a key join its dictionary?). The first run notes the
/// decisions, and later ones follow them: differences are then taken where all decisions stay.
class Choices {
 public:
  bool Made(bool choice) {
    if (next_ == made_.size()) made_.push_back(choice);
    return made_[next_++];
  }
  void Restart() { next_ = 0; }

 private:
  std::vector<bool> made_;
  std::size_t next_ = 0;
};

}  // namespace ttr::definition
