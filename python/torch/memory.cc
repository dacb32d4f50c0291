#include "memory.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "../sizes.h"
#include "text_cache.h"
#include "ttr/error.h"

namespace ttr::pytorch {
namespace {

using Json = nlohmann::ordered_json;

/// A record as it is written: the recipe has no part in it.
struct Written {
  GivenSizes sizes;
  DecoderOptions options;
};

[[noreturn]] void Refuse(std::string_view op, const std::string& given) {
  throw Error(op, "memory", "a record of sizes in JSON, as ttr::dims gives one", given);
}

std::int64_t NumberIn(std::string_view op, const std::string& name, const Json& value) {
  const bool fits = !value.is_number_unsigned() || value.get<std::uint64_t>() >> 63 == 0;
  if (!value.is_number_integer() || !fits) Refuse(op, "of " + name + " = " + value.dump());
  return value.get<std::int64_t>();
}

DType TypeIn(std::string_view op, const Json& value) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    if (value == Name(dtype)) return dtype;
  }
  Refuse(op, "of state = " + value.dump());
}

void Read(std::string_view op, const std::string& name, const Json& value, Written& written) {
  if (name == "state") {
    written.options.state = TypeIn(op, value);
  } else if (name == "draft") {
    written.options.draft = NumberIn(op, name, value);
  } else if (name == "window") {
    written.options.window = NumberIn(op, name, value);
  } else {
    const auto* const field = std::ranges::find(kSizeFields, name, &SizeField::name);
    if (field == std::end(kSizeFields)) Refuse(op, "of a size '" + name + "'");
    written.sizes.*field->given = NumberIn(op, name, value);
  }
}

Written ReadRecord(std::string_view op, const std::string& record) {
  const Json json = Json::parse(record, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) Refuse(op, "'" + record + "'");
  Written written;
  for (const auto& [name, value] : json.items()) Read(op, name, value, written);
  return written;
}

}  // namespace

std::string RecordOf(const Dims& dims) {
  Json json;
  for (const SizeField& field : kSizeFields) json[field.name] = dims.*field.used;
  return json.dump();
}

Memory MemoryFrom(std::string_view op, const Recipe& recipe, const std::string& record) {
  static auto& cache = *new TextCache<Written>;  // outlives every thread that may still call
  const auto written =
      cache.Find(record, [&] { return std::make_shared<Written>(ReadRecord(op, record)); });
  Memory memory{.dims = DimsFrom(recipe, written->sizes), .options = written->options};
  CheckDims(op, memory.dims);
  return memory;
}

}  // namespace ttr::pytorch
