#include "ttr/util/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "tests/io/temp_folder.h"
#include "ttr/error.h"

namespace ttr {
namespace {

namespace fs = std::filesystem;
using test::FullDisk;
using test::ReadBytes;
using test::TempFolder;
using test::WriteBytes;

Tensor Counting(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    StoreElement(tensor.data(), dtype, i, static_cast<double>(i) - 3);
  }
  return tensor;
}

TensorFile Example() {
  TensorFile file;
  file.tensors.emplace("k", Counting(DType::kFloat32, {2, 3, 1, 4}));
  file.tensors.emplace("state.n", Counting(DType::kFloat64, {5}));
  file.tensors.emplace("b", Counting(DType::kBFloat16, {7}));
  file.tensors.emplace("half", Counting(DType::kFloat16, {2, 5}));
  file.tensors.emplace("cu_seqlens", Counting(DType::kInt64, {3}));
  file.tensors.emplace("status", Counting(DType::kInt8, {1, 5}));
  file.tensors.emplace("nothing", Counting(DType::kFloat32, {4, 0}));
  file.tensors.emplace("number", Counting(DType::kFloat64, {}));
  file.metadata = {{"recipe", "uniform | linear | gradient"}, {"q\"uote\n", "\xc3\xa4 \\ \x01"}};
  return file;
}

void ExpectSame(const TensorFile& a, const TensorFile& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name)) << name;
    const Tensor& other = b.tensors.at(name);
    ASSERT_EQ(tensor.dtype(), other.dtype()) << name;
    ASSERT_EQ(tensor.shape(), other.shape()) << name;
    EXPECT_EQ(std::memcmp(tensor.data(), other.data(), static_cast<std::size_t>(tensor.bytes())), 0)
        << name;
  }
}

TEST(Safetensors, RoundTrip) {
  const TempFolder folder;
  WriteSafetensors(folder / "a", Example());
  ExpectSame(Example(), ReadSafetensors(folder / "a"));
  EXPECT_EQ(folder.files(), 1);
}

TEST(Safetensors, RoundTripOfNothing) {
  const TempFolder folder;
  WriteSafetensors(folder / "a", {});
  ExpectSame({}, ReadSafetensors(folder / "a"));
}

TEST(Safetensors, EveryBitSurvives) {
  const TempFolder folder;
  TensorFile file;
  Tensor x(DType::kFloat64, {2});
  const std::uint64_t bits[] = {0x7ff4000000001234U, 0x8000000000000000U};  // sNaN, -0
  std::memcpy(x.data(), bits, sizeof bits);
  file.tensors.emplace("x", x);
  WriteSafetensors(folder / "a", file);
  const TensorFile back = ReadSafetensors(folder / "a");
  EXPECT_EQ(std::memcmp(back.tensors.at("x").data(), bits, sizeof bits), 0);
}

TEST(Safetensors, BytesAreThoseOfTheFormat) {
  const TempFolder folder;
  TensorFile file;
  file.tensors.emplace("b", Counting(DType::kInt8, {3}));
  file.tensors.emplace("a", Counting(DType::kInt8, {2}));
  file.tensors.emplace("z", Counting(DType::kFloat32, {1}));
  file.metadata = {{"m", "1"}};
  WriteSafetensors(folder / "a", file);
  const std::string bytes = ReadBytes(folder / "a");

  std::string json =
      "{\"__metadata__\":{\"m\":\"1\"},"
      "\"z\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
      "\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[4,6]},"
      "\"b\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[6,9]}}";
  while (json.size() % 8 != 0) json += ' ';
  std::string expected(8, '\0');
  expected[0] = static_cast<char>(json.size());
  expected += json;
  expected += std::string("\x00\x00\x40\xc0", 4);  // -3 as a float
  expected += "\xfd\xfe\xfd\xfe\xff";
  EXPECT_EQ(bytes, expected);
}

TEST(Safetensors, SameContentGivesSameBytes) {
  const TempFolder folder;
  WriteSafetensors(folder / "a", Example());
  WriteSafetensors(folder / "b", ReadSafetensors(folder / "a"));
  EXPECT_EQ(ReadBytes(folder / "a"), ReadBytes(folder / "b"));
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  // As the Python package writes it: spaces, another order of keys, metadata last.
  const TempFolder folder;
  const std::string json = R"( {"x": {"data_offsets": [4, 12], "shape": [1, 2], "dtype": "F32"},)"
                           R"( "y": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},)"
                           R"( "__metadata__": {"format": "pt"}}    )";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(json.size());
  bytes += json;
  bytes += std::string("\x80\x3f\x00\x40", 4);                  // 1, 2 as bfloat16
  bytes += std::string("\x00\x00\x40\x40\x00\x00\x80\x40", 8);  // 3, 4 as floats
  WriteBytes(folder / "a", bytes);
  const TensorFile file = ReadSafetensors(folder / "a");
  EXPECT_EQ(file.metadata.at("format"), "pt");
  EXPECT_EQ(file.tensors.at("x").view().At({0, 1}), 4);
  EXPECT_EQ(file.tensors.at("y").view().At({0}), 1);
  EXPECT_EQ(file.tensors.at("y").view().At({1}), 2);
}

TEST(Safetensors, RefusesToWriteWhatHasNoMeaning) {
  const TempFolder folder;
  TensorFile absent;
  absent.tensors.emplace("x", Tensor());
  EXPECT_THROW(WriteSafetensors(folder / "a", absent), Error);
  TensorFile reserved;
  reserved.tensors.emplace("__metadata__", Tensor(DType::kFloat32, {1}));
  EXPECT_THROW(WriteSafetensors(folder / "a", reserved), Error);
  TensorFile latin;
  latin.metadata = {{"name", "na\xefve"}};
  EXPECT_THROW(WriteSafetensors(folder / "a", latin), Error);
  EXPECT_EQ(folder.files(), 0);
}

TEST(Safetensors, AFailedWriteLeavesTheOldFile) {
  const TempFolder folder;
  WriteSafetensors(folder / "a", Example());
  TensorFile large;
  large.tensors.emplace("x", Tensor(DType::kFloat64, {100'000}));
  {
    const FullDisk full(4096);
    EXPECT_THROW(WriteSafetensors(folder / "a", large), SystemError);
    EXPECT_THROW(WriteSafetensors(folder / "b", large), SystemError);
  }
  ExpectSame(Example(), ReadSafetensors(folder / "a"));
  EXPECT_EQ(folder.files(), 1);
}

TEST(Safetensors, UnreadableFilesAreTheSystems) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TempFolder folder;
  WriteSafetensors(folder / "a", Example());
  fs::permissions(folder / "a", fs::perms::none);
  EXPECT_THROW(ReadSafetensors(folder / "a"), SystemError);
}

}  // namespace
}  // namespace ttr
