// Mutations of valid files: each is refused with an Error, or is a valid file. With sanitizers this
// shows that nothing is read out of bounds either.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/io/temp_folder.h"
#include "ttr/error.h"
#include "ttr/util/safetensors.h"

namespace ttr {
namespace {

using test::ReadBytes;
using test::TempFolder;
using test::WriteBytes;

std::string ValidFile(const TempFolder& folder) {
  TensorFile file;
  file.tensors.emplace("state", Tensor(DType::kFloat64, {1, 2, 3, 4}));
  file.tensors.emplace("q", Tensor(DType::kFloat32, {3, 1, 5}));
  file.tensors.emplace("v", Tensor(DType::kBFloat16, {7}));
  file.tensors.emplace("cu_seqlens", Tensor(DType::kInt64, {3}));
  file.tensors.emplace("empty", Tensor(DType::kInt8, {0, 9}));
  file.metadata = {{"recipe", "uniform | linear | gradient"}, {"version", "0.1.0"}};
  WriteSafetensors(folder / "valid", file);
  return ReadBytes(folder / "valid");
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::size_t Below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }

  void Mutate(std::string& bytes) {
    // Half of all changes hit the header, whose every byte has a meaning.
    const std::size_t header = std::min<std::size_t>(bytes.size(), 480);
    const std::size_t place = bytes.empty() ? 0 : Below(Below(2) == 0 ? header : bytes.size());
    switch (Below(8)) {
      case 0:
        if (!bytes.empty()) bytes[place] = static_cast<char>(random_());
        break;
      case 1:
        if (!bytes.empty()) bytes[place] = static_cast<char>(bytes[place] ^ (1 << Below(8)));
        break;
      case 2: bytes.resize(place); break;
      case 3: bytes.append(Below(20), '\0'); break;
      case 4: bytes.insert(place, kTokens[Below(kTokens.size())]); break;
      case 5: bytes.erase(place, 1 + Below(12)); break;
      case 6: bytes.insert(Below(bytes.size() + 1), bytes.substr(place, 1 + Below(60))); break;
      default: ReplaceNumber(bytes);
    }
    // Most mutants get the length of their header right again, and so are read further.
    std::size_t end = bytes.rfind('}');
    if (bytes.size() >= 8 && end != std::string::npos && end >= 8 && Below(8) != 0) {
      while (end + 1 < bytes.size() && bytes[end + 1] == ' ') ++end;
      const std::uint64_t length = end + 1 - 8;
      std::memcpy(bytes.data(), &length, 8);
    }
  }

 private:
  void ReplaceNumber(std::string& bytes) {
    std::vector<std::size_t> digits;
    for (std::size_t i = 8; i < bytes.size(); ++i) {
      if (bytes[i] >= '0' && bytes[i] <= '9') digits.push_back(i);
    }
    if (!digits.empty())
      bytes.replace(digits[Below(digits.size())], 1, kNumbers[Below(kNumbers.size())]);
  }

  const std::vector<std::string> kTokens = {"{",
                                            "}",
                                            "[",
                                            "]",
                                            ",",
                                            ":",
                                            "\"",
                                            "null",
                                            "true",
                                            "\"x\":",
                                            "\\u0000",
                                            "-",
                                            "1e9",
                                            "0",
                                            "F16",
                                            "\xff",
                                            "{\"dtype\":\"I8\",\"shape\":[0],"
                                            "\"data_offsets\":[0,0]}"};
  const std::vector<std::string> kNumbers = {"0",
                                             "1",
                                             "-1",
                                             "2147483648",
                                             "4294967296",
                                             "4611686018427387904",
                                             "9223372036854775807",
                                             "9223372036854775808",
                                             "18446744073709551615",
                                             "18446744073709551616",
                                             "1e400",
                                             "0.5"};
  std::mt19937_64 random_;
};

TEST(SafetensorsFuzz, MutantsAreRefusedOrValid) {
  const TempFolder folder;
  const std::string valid = ValidFile(folder);
  ASSERT_LT(valid.rfind('}'), 480U);
  Mutator mutator(20251120);
  int refused = 0;
  int accepted = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::string bytes = valid;
    for (std::size_t n = 1 + mutator.Below(4); n > 0; --n) mutator.Mutate(bytes);
    WriteBytes(folder / "mutant", bytes);
    TensorFile file;
    try {
      file = ReadSafetensors(folder / "mutant");
    } catch (const Error& error) {
      ++refused;
      ASSERT_NE(std::string(error.what()).find("mutant"), std::string::npos) << error.what();
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      continue;
    }
    // Valid: what was read fits into the file it came from, and is written and read again as it is.
    ++accepted;
    std::int64_t data = 0;
    for (const auto& [name, tensor] : file.tensors) data += tensor.bytes();
    ASSERT_LE(data, static_cast<std::int64_t>(bytes.size()));
    WriteSafetensors(folder / "again", file);
    const TensorFile again = ReadSafetensors(folder / "again");
    ASSERT_EQ(again.metadata, file.metadata);
    ASSERT_EQ(again.tensors.size(), file.tensors.size());
  }
  // Both happen often, else the mutations are too harsh or too weak to show anything.
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace ttr
