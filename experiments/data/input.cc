#include "experiments/data/input.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "ttr/error.h"

namespace ttr::experiments {

Input::Input(const std::string& path) : name_(path), stream_(&file_) {
  if (path == "-") {
    name_ = "standard input";
    stream_ = &std::cin;
    return;
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(fmt::format("[input] {} must be a file but is a directory", path));
  }
  errno = 0;
  file_.open(path, std::ios::binary);
  if (!file_) {
    const int reason = errno;
    if (reason == ENOENT || reason == ENOTDIR) {
      throw Error(fmt::format("[input] {} must be a file but does not exist", path));
    }
    throw SystemError(fmt::format("[input] {} cannot be opened: {}", path, std::strerror(reason)));
  }
}

bool ByteReader::Fill() {
  if (ended_) {
    return false;  // a terminal would go on asking after the end was typed once
  }
  try {
    std::streambuf& source = *in_.rdbuf();
    const int first = source.sbumpc();
    if (first == std::streambuf::traits_type::eof()) {
      ended_ = true;
      return false;
    }
    buffer_[0] = static_cast<unsigned char>(first);
    const std::streamsize waiting = std::max<std::streamsize>(source.in_avail(), 0);
    const auto room = static_cast<std::streamsize>(buffer_.size() - 1);
    const std::streamsize more =
        source.sgetn(reinterpret_cast<char*>(&buffer_[1]), std::min(waiting, room));
    next_ = 0;
    filled_ = static_cast<std::size_t>(1 + more);
    return true;
  } catch (const std::ios_base::failure& failure) {
    throw SystemError(fmt::format("[input] {} cannot be read: {}", name_, failure.what()));
  }
}

}  // namespace ttr::experiments
