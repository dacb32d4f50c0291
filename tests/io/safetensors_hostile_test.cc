// Files that lie. Each is refused with a line that names the file and, where there is one, the
// tensor.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/io/temp_folder.h"
#include "ttr/error.h"
#include "ttr/util/safetensors.h"

namespace ttr {
namespace {

using test::TempFolder;
using test::WriteBytes;

std::string WithLength(std::uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

std::string FileOf(const std::string& json, std::size_t data_bytes = 0) {
  return WithLength(json.size(), json + std::string(data_bytes, '\x01'));
}

// The error of a file of these bytes, the file called FILE.
std::string ErrorOf(const std::string& bytes) {
  const TempFolder folder;
  const std::string path = folder / "hostile";
  WriteBytes(path, bytes);
  try {
    ReadSafetensors(path);
  } catch (const Error& error) {
    std::string text = error.what();
    const std::size_t place = text.find(path);
    if (place == std::string::npos) return "does not name the file: " + text;
    return text.replace(place, path.size(), "FILE");
  }
  return "accepted";
}

std::string ErrorOfTensor(const std::string& tensor, std::size_t data_bytes) {
  return ErrorOf(FileOf("{\"x\":" + tensor + "}", data_bytes));
}

TEST(HostileFile, NoFileAtAll) {
  const TempFolder folder;
  EXPECT_THROW(ReadSafetensors(folder / "none"), Error);
  EXPECT_THROW(ReadSafetensors(folder.path()), Error);
  EXPECT_THROW(ReadSafetensors("/dev/zero"), Error);
  WriteBytes(folder / "file", "");
  EXPECT_THROW(ReadSafetensors(folder / "file" / "below"), Error);
  try {
    ReadSafetensors(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              "[safetensors] " + folder.path().string() + " must be a file but is a directory");
  }
}

TEST(HostileFile, TooShort) {
  EXPECT_EQ(ErrorOf(""),
            "[safetensors] FILE must be a safetensors file, 8 bytes or more but is 0 bytes");
  EXPECT_EQ(ErrorOf("1234567"),
            "[safetensors] FILE must be a safetensors file, 8 bytes or more but is 7 bytes");
  EXPECT_EQ(ErrorOf(std::string(8, '\0')),
            "[safetensors] header of FILE must be JSON but is no JSON at byte 1, near ''");
}

TEST(HostileFile, AbsurdHeaderLengths) {
  EXPECT_EQ(ErrorOf(WithLength(3, "{}")),
            "[safetensors] length of the header of FILE must be at most 2 bytes but is 3");
  EXPECT_EQ(ErrorOf(WithLength(~std::uint64_t{0}, "{}")),
            "[safetensors] length of the header of FILE must be at most 2 bytes but is "
            "18446744073709551615");
  EXPECT_EQ(ErrorOf(WithLength(std::uint64_t{1} << 63, "{}")),
            "[safetensors] length of the header of FILE must be at most 2 bytes but is "
            "9223372036854775808");
}

TEST(HostileFile, ATextIsSaidToBeOne) {
  EXPECT_EQ(ErrorOf("date,co2\n1958-03-29,316.1\n"),
            "[safetensors] FILE must be a safetensors file, its first 8 bytes the length of a "
            "header but is text that begins with 'date,co2', as a table or JSON would");
  for (const char* text : {"{\"weights\": 1}", "x\r\n1\r\n2\r\n3", "\xEF\xBB\xBFx,y\n1,2\n"}) {
    EXPECT_NE(ErrorOf(text).find("is text that begins with"), std::string::npos) << ErrorOf(text);
  }
}

TEST(HostileFile, AHeaderIsNotReadBeyondItsLimit) {
  // A sparse file that is long enough for its header: nothing of this size is allocated.
  const TempFolder folder;
  WriteBytes(folder / "a", WithLength(std::uint64_t{1} << 40, "{}"));
  std::filesystem::resize_file(folder / "a", (std::uint64_t{1} << 40) + 8);
  EXPECT_THROW(ReadSafetensors(folder / "a"), Error);
}

TEST(HostileFile, Truncated) {
  const std::string whole = FileOf(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  ASSERT_EQ(ErrorOf(whole), "accepted");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    ASSERT_EQ(ErrorOf(whole.substr(0, length)).substr(0, 14), "[safetensors] ") << length;
  }
  EXPECT_EQ(ErrorOf(whole.substr(0, whole.size() - 1)),
            "[safetensors] data_offsets of tensor 'x' in FILE must be ordered and inside of the "
            "file's 7 bytes of data but is [0, 8]");
}

TEST(HostileFile, TrailingBytes) {
  EXPECT_EQ(ErrorOfTensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 9),
            "[safetensors] data of FILE must be the tensors' 8 bytes and no more but is 9 bytes");
  EXPECT_EQ(ErrorOf(FileOf("{}", 1)),
            "[safetensors] data of FILE must be the tensors' 0 bytes and no more but is 1 bytes");
  EXPECT_EQ(ErrorOf(FileOf("{}{}")),
            "[safetensors] header of FILE must be JSON but is no JSON at byte 3, near '{}{'");
}

TEST(HostileFile, Offsets) {
  const auto with = [](const std::string& offsets) {
    return ErrorOfTensor(R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}", 16);
  };
  const std::string inside =
      "[safetensors] data_offsets of tensor 'x' in FILE must be ordered and inside of the file's "
      "16 bytes of data but is ";
  EXPECT_EQ(with("[8,0]"), inside + "[8, 0]");
  EXPECT_EQ(with("[16,24]"), inside + "[16, 24]");
  EXPECT_EQ(with("[18446744073709551608,18446744073709551615]"),
            inside + "[18446744073709551608, 18446744073709551615]");
  EXPECT_EQ(with("[18446744073709551608,0]"), inside + "[18446744073709551608, 0]");
  EXPECT_EQ(with("[0,4]"),
            "[safetensors] data_offsets of tensor 'x' in FILE must be as long as float32 [2] but "
            "is [0, 4]");
  EXPECT_EQ(with("[0,9]"),
            "[safetensors] data_offsets of tensor 'x' in FILE must be as long as float32 [2] but "
            "is [0, 9]");
  EXPECT_EQ(with("[8,16]"),
            "[safetensors] first byte of tensor 'x' in FILE must be 0, where the tensor before it "
            "ends but is 8");
  EXPECT_EQ(with("[0]"),
            "[safetensors] data_offsets of tensor 'x' in FILE must be two numbers but is 1");
  const std::string whole =
      "[safetensors] data_offsets of tensor 'x' in FILE must be whole numbers, 0 or more but is ";
  EXPECT_EQ(with("[-8,0]"), whole + "-8");
  EXPECT_EQ(with("[0,8.0]"), whole + "'8.0'");
  EXPECT_EQ(with("[0,1e1]"), whole + "'1e1'");
  EXPECT_EQ(with("[0,18446744073709551616]"), whole + "'18446744073709551616'");
  EXPECT_EQ(with("[0,\"8\"]"), whole + "a string");
  EXPECT_EQ(with("[0,null]"), whole + "null");
  EXPECT_EQ(with("[0,[8]]"), whole + "an array");
  EXPECT_EQ(with("8"),
            "[safetensors] data_offsets of tensor 'x' in FILE must be an array but is a number");
  EXPECT_EQ(ErrorOfTensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,9,10,11]})", 8),
            "[safetensors] data_offsets of tensor 'x' in FILE must be two numbers but is longer");
}

TEST(HostileFile, OverlapsAndGaps) {
  const auto two = [](const std::string& first, const std::string& second) {
    return ErrorOf(FileOf(R"({"x":{"dtype":"I8","shape":[4],"data_offsets":)" + first +
                              R"(},"y":{"dtype":"I8","shape":[4],"data_offsets":)" + second + "}}",
                          8));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]"), "accepted");
  EXPECT_EQ(two("[4,8]", "[0,4]"), "accepted");
  EXPECT_EQ(two("[0,4]", "[3,7]"),
            "[safetensors] first byte of tensor 'y' in FILE must be 4, where the tensor before it "
            "ends but is 3");
  EXPECT_EQ(two("[0,4]", "[0,4]"),
            "[safetensors] first byte of tensor 'y' in FILE must be 4, where the tensor before it "
            "ends but is 0");
}

TEST(HostileFile, Shapes) {
  const auto with = [](const std::string& shape, const std::string& offsets = "[0,8]") {
    return ErrorOfTensor(
        R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}", 8);
  };
  const std::string whole =
      "[safetensors] shape of tensor 'x' in FILE must be whole numbers, 0 or more but is ";
  EXPECT_EQ(with("[-2]"), whole + "-2");
  EXPECT_EQ(with("[2.5]"), whole + "'2.5'");
  EXPECT_EQ(with("[1,1,1,1,2]"),
            "[safetensors] shape of tensor 'x' in FILE must be of rank 4 at most but is longer");
  // Products that wrap around to 2, or to 0, in 64 bits.
  EXPECT_EQ(with("[9223372036854775807,9223372036854775807,2]"),
            "[safetensors] shape of tensor 'x' in FILE must be of fewer than 2^63 elements but is "
            "[9223372036854775807, 9223372036854775807, 2]");
  EXPECT_EQ(with("[4294967296,4294967296]", "[0,0]"),
            "[safetensors] shape of tensor 'x' in FILE must be of fewer than 2^63 elements but is "
            "[4294967296, 4294967296]");
  EXPECT_EQ(with("[18446744073709551615]"),
            "[safetensors] shape of tensor 'x' in FILE must be sizes below 2^63 but is "
            "18446744073709551615");
  // 2^62 elements of 4 bytes: the bytes wrap around to 0.
  EXPECT_EQ(with("[4611686018427387904]", "[0,0]"),
            "[safetensors] data_offsets of tensor 'x' in FILE must be as long as float32 "
            "[4611686018427387904] but is [0, 0]");
  EXPECT_EQ(with("{}"),
            "[safetensors] shape of tensor 'x' in FILE must be an array but is an "
            "object");
}

TEST(HostileFile, DTypes) {
  const auto with = [](const std::string& dtype) {
    return ErrorOfTensor(R"({"dtype":)" + dtype + R"(,"shape":[4],"data_offsets":[0,8]})", 8);
  };
  for (const char* name : {"f16", "f32", "I32", "U8", "BOOL", "F8_E4M3", ""}) {
    EXPECT_EQ(
        with("\"" + std::string(name) + "\""),
        "[safetensors] dtype of tensor 'x' in FILE must be F32, F64, BF16, F16, I64 or I8 but "
        "is '" +
            std::string(name) + "'");
  }
  EXPECT_EQ(with("4"),
            "[safetensors] dtype of tensor 'x' in FILE must be a string but is a "
            "number");
  EXPECT_EQ(with("[\"F32\"]"),
            "[safetensors] dtype of tensor 'x' in FILE must be a string but is "
            "an array");
}

TEST(HostileFile, Fields) {
  EXPECT_EQ(ErrorOfTensor(R"({"dtype":"F32","shape":[2]})", 8),
            "[safetensors] tensor 'x' in FILE must be given with its data_offsets but is without");
  EXPECT_EQ(ErrorOfTensor("{}", 0),
            "[safetensors] tensor 'x' in FILE must be given with its dtype but is without");
  EXPECT_EQ(ErrorOfTensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"code":"x"})", 8),
            "[safetensors] fields of tensor 'x' in FILE must be dtype, shape and data_offsets but "
            "is 'code'");
  EXPECT_EQ(ErrorOfTensor("7", 0),
            "[safetensors] tensor 'x' in FILE must be an object but is a number");
  EXPECT_EQ(ErrorOfTensor("[]", 0),
            "[safetensors] tensor 'x' in FILE must be an object but is an array");
}

TEST(HostileFile, RepeatedKeys) {
  const std::string tensor = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(ErrorOf(FileOf("{\"x\":" + tensor + ",\"x\":" + tensor + "}", 8)),
            "[safetensors] tensor 'x' in FILE must be given once but is repeated");
  // A name that is written in another way is still the name.
  EXPECT_EQ(ErrorOf(FileOf("{\"x\":" + tensor + ",\"\\u0078\":" + tensor + "}", 8)),
            "[safetensors] tensor 'x' in FILE must be given once but is repeated");
  EXPECT_EQ(ErrorOfTensor(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8),
            "[safetensors] dtype of tensor 'x' in FILE must be given once but is repeated");
  EXPECT_EQ(ErrorOf(FileOf(R"({"__metadata__":{"a":"1","a":"1"}})")),
            "[safetensors] metadata 'a' in FILE must be given once but is repeated");
  EXPECT_EQ(ErrorOf(FileOf(R"({"__metadata__":{},"__metadata__":{}})")),
            "[safetensors] __metadata__ in FILE must be given once but is repeated");
}

TEST(HostileFile, Metadata) {
  EXPECT_EQ(ErrorOf(FileOf(R"({"__metadata__":{"a":1}})")),
            "[safetensors] metadata 'a' in FILE must be a string but is a number");
  EXPECT_EQ(ErrorOf(FileOf(R"({"__metadata__":{"a":{"b":"c"}}})")),
            "[safetensors] metadata 'a' in FILE must be a string but is an object");
  EXPECT_EQ(ErrorOf(FileOf(R"({"__metadata__":"a"})")),
            "[safetensors] __metadata__ in FILE must be an object but is a string");
}

TEST(HostileFile, NoJson) {
  EXPECT_EQ(ErrorOf(FileOf("[]")),
            "[safetensors] header of FILE must be an object but is an array");
  EXPECT_EQ(ErrorOf(FileOf("7")), "[safetensors] header of FILE must be an object but is a number");
  for (const char* json : {"{", "{\"x\"", "{\"x\":", "nul", "{\"a\":NaN}", "{'a':1}",
                           "{\"\xff\":{}}", "{\"__metadata__\":{\"a\":\"\\ud800\"}}"}) {
    EXPECT_EQ(ErrorOf(FileOf(json)).substr(0, 45), "[safetensors] header of FILE must be JSON but")
        << json;
  }
}

TEST(HostileFile, DeepNesting) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 1'000'000; ++i) deep += open;
    EXPECT_EQ(ErrorOf(FileOf(deep)).substr(0, 14), "[safetensors] ");
    EXPECT_EQ(ErrorOf(FileOf("{\"x\":{\"shape\":[" + deep)).substr(0, 14), "[safetensors] ");
  }
}

TEST(HostileFile, NamesInErrorsStayOnOneShortLine) {
  const std::string error = ErrorOf(FileOf("{\"a\\n\\u001b" + std::string(100'000, 'n') + "\":7}"));
  EXPECT_EQ(error, "[safetensors] tensor 'a\\x0a\\x1b" + std::string(77, 'n') +
                       "...' in FILE must be an object but is a number");
}

}  // namespace
}  // namespace ttr
