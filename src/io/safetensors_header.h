// The JSON header of a safetensors file, to and from values. Knows no files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ttr/dtype.h"
#include "ttr/tensor.h"

namespace ttr::io {

/// The operator that errors name.
inline constexpr std::string_view kWhere = "safetensors";

/// One tensor as the header gives it: bytes [begin, end) behind the header.
struct HeaderEntry {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::map<std::string, HeaderEntry> tensors;
  std::map<std::string, std::string> metadata;
};

/// The longest header that is read, as in the reference implementation of the format.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// The names of dtypes in the format: "F32", ...
std::optional<DType> DTypeFromCode(std::string_view code);

/// The text alone: its form, and that no key repeats. `file` names the file in errors.
Header ParseJson(std::string_view json, const std::string& file);

/// Parses a header in front of `data_bytes` bytes of data and checks that the tensors are exactly
/// these bytes: no gap, no overlap, every length that of its shape. Memory and time are
/// proportional to the text.
Header ParseHeader(std::string_view json, std::uint64_t data_bytes, const std::string& file);

/// The header's text, padded with spaces so that the data starts at a multiple of 8 bytes in the
/// file. Entries in the order of their bytes.
std::string FormatHeader(const Header& header);

/// Text from a file, fit for one line of an error: in quotes, control characters written out, cut
/// where it is long.
std::string Quote(std::string_view text);

}  // namespace ttr::io
