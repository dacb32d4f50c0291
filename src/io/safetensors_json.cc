#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/io/safetensors_header.h"
#include "ttr/error.h"

namespace ttr::io {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

// Reads the header as a stream of events, so that nothing is built that is not part of a header:
// any nesting deeper than a header's ends the parse where it starts, and a repeated key is seen.
class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Header Take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && key_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      place_ = Place::kTensor;
      entry_ = {};
      fields_.clear();
    } else {
      Unexpected("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    if (place_ == Place::kTensor) {
      field_ = text;
      if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
        throw Error(kWhere, "fields of " + TensorText(), "dtype, shape and data_offsets",
                    Quote(field_));
      }
      if (!fields_.insert(field_).second) Repeated(field_ + " of " + TensorText());
    } else if (place_ == Place::kMetadata) {
      field_ = text;
      if (header_.metadata.contains(text)) Repeated("metadata " + Quote(text) + " in " + file_);
    } else {
      key_ = text;
      if (!keys_.insert(key_).second) {
        Repeated(key_ == kMetadataKey ? "__metadata__ in " + file_ : TensorText());
      }
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) {
          throw Error(kWhere, TensorText(), std::string("given with its ") + field, "without");
        }
      }
      header_.tensors.emplace(key_, entry_);
      place_ = Place::kTop;
    } else {
      place_ = place_ == Place::kMetadata ? Place::kTop : Place::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == "dtype") Unexpected("an array");
    place_ = Place::kArray;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    if (field_ == "shape") {
      std::vector<std::int64_t> sizes;
      for (const std::uint64_t number : numbers_) {
        if (number > std::numeric_limits<std::int64_t>::max()) {
          throw Error(kWhere, "shape of " + TensorText(), "sizes below 2^63",
                      std::to_string(number));
        }
        sizes.push_back(static_cast<std::int64_t>(number));
      }
      entry_.shape = Shape(sizes);
      return true;
    }
    if (numbers_.size() != 2) {
      throw Error(kWhere, "data_offsets of " + TensorText(), "two numbers",
                  std::to_string(numbers_.size()));
    }
    entry_.begin = numbers_[0];
    entry_.end = numbers_[1];
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (place_ != Place::kArray) Unexpected("a number");
    if (numbers_.size() == kMaxRank) {
      throw Error(kWhere, field_ + " of " + TensorText(),
                  field_ == "shape" ? "of rank 4 at most" : "two numbers", "longer");
    }
    numbers_.push_back(number);
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(field_, text);
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") Unexpected("a string");
    const std::optional<DType> dtype = DTypeFromCode(text);
    if (!dtype) {
      throw Error(kWhere, "dtype of " + TensorText(), "F32, F64, BF16, F16, I64 or I8",
                  Quote(text));
    }
    entry_.dtype = *dtype;
    return true;
  }

  bool number_integer(number_integer_t number) override {
    return Unexpected(std::to_string(number));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(Quote(text));
  }
  bool null() override { return Unexpected("null"); }
  bool boolean(bool value) override { return Unexpected(value ? "true" : "false"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    throw Error(kWhere, "header of " + file_, "JSON",
                "no JSON at byte " + std::to_string(position) + ", near " + Quote(token));
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor, kArray, kEnd };

  std::string TensorText() const { return "tensor " + Quote(key_) + " in " + file_; }

  [[noreturn]] static void Repeated(const std::string& what) {
    throw Error(kWhere, what, "given once", "repeated");
  }

  [[noreturn]] bool Unexpected(const std::string& given) const {
    switch (place_) {
      case Place::kOutside:
      case Place::kEnd: throw Error(kWhere, "header of " + file_, "an object", given);
      case Place::kTop:
        throw Error(kWhere, key_ == kMetadataKey ? "__metadata__ in " + file_ : TensorText(),
                    "an object", given);
      case Place::kMetadata:
        throw Error(kWhere, "metadata " + Quote(field_) + " in " + file_, "a string", given);
      case Place::kTensor:
        throw Error(kWhere, field_ + " of " + TensorText(),
                    field_ == "dtype" ? "a string" : "an array", given);
      case Place::kArray: break;
    }
    throw Error(kWhere, field_ + " of " + TensorText(), "whole numbers, 0 or more", given);
  }

  const std::string& file_;
  Header header_;
  Place place_ = Place::kOutside;
  std::string key_;               // of the top object: the tensor's name
  std::string field_;             // of a tensor or of the metadata
  std::set<std::string> keys_;    // seen in the top object
  std::set<std::string> fields_;  // seen in the tensor
  std::vector<std::uint64_t> numbers_;
  HeaderEntry entry_;
};

}  // namespace

Header ParseJson(std::string_view json, const std::string& file) {
  Reader reader(file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.Take();
}

}  // namespace ttr::io
