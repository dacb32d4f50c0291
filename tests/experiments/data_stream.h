/// A stream that hands out its text piece by piece and knows how much has been asked for, as a pipe
/// whose writer is slow would.
#pragma once

#include <streambuf>
#include <string>
#include <utility>
#include <vector>

namespace ttr::experiments {

class Pieces : public std::streambuf {
 public:
  explicit Pieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  /// How many pieces have been asked for; one more than there are once the end was seen.
  std::size_t asked() const { return asked_; }

 protected:
  int_type underflow() override {
    ++asked_;
    if (asked_ > pieces_.size()) {
      return traits_type::eof();
    }
    std::string& piece = pieces_[asked_ - 1];
    setg(piece.data(), piece.data(), piece.data() + piece.size());
    return traits_type::to_int_type(piece[0]);
  }

 private:
  std::vector<std::string> pieces_;
  std::size_t asked_ = 0;
};

}  // namespace ttr::experiments
