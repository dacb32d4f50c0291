// Files of tensors: refused, or read, written and read again as they are.
#include "ttr/util/safetensors.h"

#include <cstring>

#include "tests/fuzz/fuzzers.h"
#include "tests/io/temp_folder.h"

namespace ttr::fuzz {
namespace {

void ExpectSame(const TensorFile& a, const TensorFile& b) {
  Expect(a.metadata == b.metadata, "metadata changed");
  Expect(a.tensors.size() == b.tensors.size(), "tensors were lost");
  for (const auto& [name, tensor] : a.tensors) {
    const auto found = b.tensors.find(name);
    Expect(found != b.tensors.end(), "a tensor was lost: " + name);
    const Tensor& other = found->second;
    Expect(tensor.dtype() == other.dtype() && tensor.shape() == other.shape(),
           "a tensor changed its dtype or shape: " + name);
    const auto size = static_cast<std::size_t>(tensor.bytes());
    Expect(size == 0 || std::memcmp(tensor.data(), other.data(), size) == 0,
           "a tensor's bytes changed: " + name);
  }
}

}  // namespace

void Safetensors(Bytes bytes) {
  static const test::TempFolder folder;
  test::WriteBytes(folder / "given", std::string(TextOf(bytes)));
  TensorFile file;
  if (!Accepts([&] { file = ReadSafetensors(folder / "given"); })) return;
  std::size_t size = 0;
  for (const auto& [name, tensor] : file.tensors) size += static_cast<std::size_t>(tensor.bytes());
  Expect(size <= bytes.size(), "more was read than the file holds");
  WriteSafetensors(folder / "written", file);
  ExpectSame(file, ReadSafetensors(folder / "written"));
}

}  // namespace ttr::fuzz
