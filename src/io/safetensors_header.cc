#include "src/io/safetensors_header.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ttr/error.h"

namespace ttr::io {
namespace {

struct TypeCode {
  std::string_view text;
  DType dtype;
};
constexpr TypeCode kTypes[] = {{"F32", DType::kFloat32},   {"F64", DType::kFloat64},
                               {"BF16", DType::kBFloat16}, {"F16", DType::kFloat16},
                               {"I64", DType::kInt64},     {"I8", DType::kInt8}};

std::string_view Code(DType dtype) {
  for (const TypeCode& type : kTypes) {
    if (type.dtype == dtype) return type.text;
  }
  return "";
}

using Item = std::pair<const std::string, HeaderEntry>;

std::string TensorText(const Item& item, const std::string& file) {
  return "tensor " + Quote(item.first) + " in " + file;
}

// One tensor by itself: inside of the data, as long as its shape.
void CheckEntry(const Item& item, std::uint64_t data_bytes, const std::string& file) {
  const HeaderEntry& entry = item.second;
  const auto offsets = [&] {
    return "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
  };
  if (entry.begin > entry.end || entry.end > data_bytes) {
    throw Error(kWhere, "data_offsets of " + TensorText(item, file),
                "ordered and inside of the file's " + std::to_string(data_bytes) + " bytes of data",
                offsets());
  }
  std::uint64_t elements = 0;
  try {
    elements = static_cast<std::uint64_t>(entry.shape.elements());
  } catch (const Error&) {
    throw Error(kWhere, "shape of " + TensorText(item, file), "of fewer than 2^63 elements",
                entry.shape.ToString());
  }
  // The length divides; a product could overflow.
  const std::uint64_t length = entry.end - entry.begin;
  const std::uint64_t size = SizeOf(entry.dtype);
  if (length % size != 0 || length / size != elements) {
    throw Error(kWhere, "data_offsets of " + TensorText(item, file),
                "as long as " + std::string(Name(entry.dtype)) + " " + entry.shape.ToString(),
                offsets());
  }
}

// All tensors together: every byte of the data belongs to exactly one.
void CheckCover(const Header& header, std::uint64_t data_bytes, const std::string& file) {
  std::vector<const Item*> items;
  items.reserve(header.tensors.size());
  for (const Item& item : header.tensors) items.push_back(&item);
  std::sort(items.begin(), items.end(), [](const Item* a, const Item* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t position = 0;
  for (const Item* item : items) {
    if (item->second.begin != position) {
      throw Error(kWhere, "first byte of " + TensorText(*item, file),
                  std::to_string(position) + ", where the tensor before it ends",
                  std::to_string(item->second.begin));
    }
    position = item->second.end;
  }
  if (position != data_bytes) {
    throw Error(kWhere, "data of " + file,
                "the tensors' " + std::to_string(position) + " bytes and no more",
                std::to_string(data_bytes) + " bytes");
  }
}

std::string Json(const std::string& text, const char* what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(kWhere, what, "UTF-8", Quote(text));
  }
}

}  // namespace

std::optional<DType> DTypeFromCode(std::string_view code) {
  for (const TypeCode& type : kTypes) {
    if (type.text == code) return type.dtype;
  }
  return std::nullopt;
}

Header ParseHeader(std::string_view json, std::uint64_t data_bytes, const std::string& file) {
  Header header = ParseJson(json, file);
  for (const Item& item : header.tensors) CheckEntry(item, data_bytes, file);
  CheckCover(header, data_bytes, file);
  return header;
}

std::string FormatHeader(const Header& header) {
  std::vector<std::pair<std::uint64_t, std::string>> entries;
  for (const auto& [name, entry] : header.tensors) {
    std::string shape;
    for (int axis = 0; axis < entry.shape.rank(); ++axis) {
      shape += (axis > 0 ? "," : "") + std::to_string(entry.shape[axis]);
    }
    entries.emplace_back(entry.begin, Json(name, "name of a tensor") + ":{\"dtype\":\"" +
                                          std::string(Code(entry.dtype)) + "\",\"shape\":[" +
                                          shape + "],\"data_offsets\":[" +
                                          std::to_string(entry.begin) + "," +
                                          std::to_string(entry.end) + "]}");
  }
  std::sort(entries.begin(), entries.end());

  std::string text = "{";
  if (!header.metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      if (text.back() != '{') text += ",";
      text += Json(key, "name of metadata") + ":" + Json(value, "metadata");
    }
    text += "}";
  }
  for (const auto& [begin, entry] : entries) {
    if (text.back() != '{') text += ",";
    text += entry;
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

std::string Quote(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "'";
  std::size_t length = std::min(text.size(), kLongest);
  // Never through the middle of a character: back to one that begins.
  while (length < text.size() && length > 0 && (text[length] & 0xc0) == 0x80) --length;
  for (const char c : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      quoted += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + (length < text.size() ? "...'" : "'");
}

}  // namespace ttr::io
