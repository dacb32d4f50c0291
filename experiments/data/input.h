/// Where real input comes from: a file by its path, or standard input by "-".
#pragma once

#include <array>
#include <fstream>
#include <istream>
#include <string>

namespace ttr::experiments {

class Input {
 public:
  /// Throws Error if there is no such file or it is a directory, SystemError if the system will not
  /// open it.
  explicit Input(const std::string& path);

  std::istream& stream() { return *stream_; }
  /// The path, or "standard input".
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::ifstream file_;
  std::istream* stream_;
};

/// The bytes of a stream, one after the other, as soon as they are there: a read waits for one byte
/// and takes along what else has already arrived, so a live pipe is never waited for longer than
/// needed, and a file is read in blocks.
class ByteReader {
 public:
  static constexpr int kEnd = -1;

  /// `in` must outlive the reader. `name` is for messages.
  ByteReader(std::istream& in, std::string name) : in_(in), name_(std::move(name)) {}
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// The next byte, 0 .. 255, or kEnd. Get moves on, Peek does not. Throws SystemError when reading
  /// fails.
  int Get() { return next_ < filled_ || Fill() ? buffer_[next_++] : kEnd; }
  int Peek() { return next_ < filled_ || Fill() ? buffer_[next_] : kEnd; }

  const std::string& name() const { return name_; }

 private:
  bool Fill();

  std::istream& in_;
  std::string name_;
  std::array<unsigned char, 1 << 16> buffer_;
  std::size_t next_ = 0;
  std::size_t filled_ = 0;
  bool ended_ = false;
};

}  // namespace ttr::experiments
