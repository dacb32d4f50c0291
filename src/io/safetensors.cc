#include "ttr/util/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "src/io/safetensors_header.h"
#include "ttr/error.h"
#include "ttr/util/atomic_file.h"

namespace ttr {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the format's data is little-endian");

constexpr std::string_view kWhere = "safetensors";
constexpr std::size_t kLengthBytes = 8;

// A file to read from: its size as it was when opened, bytes at any place.
class InputFile {
 public:
  explicit InputFile(const fs::path& path) : name_(path.string()) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) {
      // A name that leads nowhere is the caller's; all other refusals are the system's.
      if (errno == ENOENT || errno == ENOTDIR) throw Error(kWhere, name_, "a file", "not there");
      Fail(errno);
    }
    // Asked before opening: opening a pipe without a writer would wait for ever.
    if (S_ISDIR(info.st_mode)) throw Error(kWhere, name_, "a file", "a directory");
    if (!S_ISREG(info.st_mode)) throw Error(kWhere, name_, "a regular file", "a device or a pipe");
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0 || fstat(file_, &info) != 0) {
      const int error = errno;
      Close();
      Fail(error);
    }
    size_ = static_cast<std::uint64_t>(info.st_size);
  }
  ~InputFile() { Close(); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }

  void Read(std::uint64_t offset, void* data, std::size_t bytes) const {
    char* to = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got = pread(file_, to, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) Fail(errno);
      if (got == 0) throw Error(kWhere, name_, "left alone while it is read", "shorter now");
      to += got;
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::size_t>(got);
    }
  }

 private:
  [[noreturn]] void Fail(int error) const {
    throw SystemError("cannot read " + name_ + ": " + std::generic_category().message(error));
  }
  void Close() {
    if (file_ >= 0) close(file_);
  }

  std::string name_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

// No header is so long that all bytes of its length are those of a text.
bool BeginsLikeText(std::string_view bytes) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\t' || c == '\n' || c == '\r';
  });
}

std::string ReadHeaderText(const InputFile& file) {
  if (file.size() < kLengthBytes) {
    throw Error(kWhere, file.name(), "a safetensors file, 8 bytes or more",
                std::to_string(file.size()) + " bytes");
  }
  std::array<unsigned char, kLengthBytes> length_bytes;
  file.Read(0, length_bytes.data(), kLengthBytes);
  const auto length = std::bit_cast<std::uint64_t>(length_bytes);
  const std::string begin(length_bytes.begin(), length_bytes.end());
  if (BeginsLikeText(begin)) {
    throw Error(kWhere, file.name(), "a safetensors file, its first 8 bytes the length of a header",
                "text that begins with " + io::Quote(begin) + ", as a table or JSON would");
  }
  const std::uint64_t longest = std::min(file.size() - kLengthBytes, io::kMaxHeaderBytes);
  if (length > longest) {
    throw Error(kWhere, "length of the header of " + file.name(),
                "at most " + std::to_string(longest) + " bytes", std::to_string(length));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file.Read(kLengthBytes, text.data(), text.size());
  return text;
}

}  // namespace

TensorFile ReadSafetensors(const fs::path& path) {
  const InputFile file(path);
  const std::string text = ReadHeaderText(file);
  const std::uint64_t data_begin = kLengthBytes + text.size();
  io::Header header = io::ParseHeader(text, file.size() - data_begin, file.name());

  TensorFile content;
  content.metadata = std::move(header.metadata);
  for (const auto& [name, entry] : header.tensors) {
    Tensor tensor(entry.dtype, entry.shape);
    file.Read(data_begin + entry.begin, tensor.data(), static_cast<std::size_t>(tensor.bytes()));
    content.tensors.emplace(name, std::move(tensor));
  }
  return content;
}

void WriteSafetensors(const fs::path& path, const TensorFile& content) {
  using Item = std::pair<const std::string, Tensor>;
  std::vector<const Item*> items;
  for (const Item& item : content.tensors) {
    if (!item.second.defined()) {
      throw Error(kWhere, "tensor " + io::Quote(item.first), "defined", "absent");
    }
    if (item.first == "__metadata__") {
      throw Error(kWhere, "name of a tensor", "other than __metadata__", "__metadata__");
    }
    items.push_back(&item);
  }
  // Wide elements first, then by name: every tensor lies aligned in the file, as readers that map
  // it into memory want.
  std::sort(items.begin(), items.end(), [](const Item* a, const Item* b) {
    const std::size_t size_a = SizeOf(a->second.dtype());
    const std::size_t size_b = SizeOf(b->second.dtype());
    return size_a != size_b ? size_a > size_b : a->first < b->first;
  });
  io::Header header;
  header.metadata = content.metadata;
  std::uint64_t position = 0;
  for (const Item* item : items) {
    const auto& [name, tensor] = *item;
    const auto bytes = static_cast<std::uint64_t>(tensor.bytes());
    header.tensors.emplace(
        name, io::HeaderEntry{tensor.dtype(), tensor.shape(), position, position + bytes});
    position += bytes;
  }
  const std::string text = io::FormatHeader(header);
  if (text.size() > io::kMaxHeaderBytes) {
    throw Error(kWhere, "header of " + path.string(),
                "at most " + std::to_string(io::kMaxHeaderBytes) + " bytes",
                std::to_string(text.size()));
  }
  const std::uint64_t length = text.size();

  AtomicFile file(path);
  file.Write(&length, kLengthBytes);
  file.Write(text);
  for (const Item* item : items) {
    file.Write(item->second.data(), static_cast<std::size_t>(item->second.bytes()));
  }
  file.Commit();
}

}  // namespace ttr
