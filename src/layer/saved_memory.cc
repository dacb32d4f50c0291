#include "src/layer/saved_memory.h"

#include <cstring>
#include <string>

#include "src/core/fingerprint.h"
#include "ttr/error.h"
#include "ttr/target.h"

namespace ttr {
namespace {

std::uint64_t HashOf(const Dims& dims) {
  Fingerprint hash;
  for (const std::int64_t size :
       {dims.batch, dims.tokens, dims.query_heads, dims.key_heads, dims.value_heads, dims.heads,
        dims.key_dim, dims.value_dim, dims.features, dims.hidden, dims.sequences}) {
    hash.Add(size);
  }
  return hash.value();
}

std::uint64_t PackingOf(const Inputs& inputs) {
  const TensorView& bounds = inputs.cu_seqlens;
  if (!bounds.defined()) return 0;
  Fingerprint hash;
  for (std::int64_t n = 0; n < bounds.size(0); ++n) {
    hash.Add(bounds.as<const std::int64_t>()[n * bounds.stride(0)]);
  }
  return hash.value();
}

/// Every input has its part, those that are absent, too.
std::uint64_t DTypesOf(const Inputs& inputs, DType dtype) {
  Fingerprint hash;
  hash.Add(static_cast<std::int64_t>(dtype));
  for (const InputField& field : InputFields()) {
    const TensorView& view = inputs.*field.view;
    hash.Add(view.defined() ? static_cast<std::int64_t>(view.dtype()) : std::int64_t{-1});
  }
  return hash.value();
}

}  // namespace

SavedHeader::SavedHeader(std::size_t recipe_hash, const Dims& of, const Inputs& inputs, DType dtype)
    : recipe(recipe_hash),
      dims(HashOf(of)),
      packing(PackingOf(inputs)),
      dtypes(DTypesOf(inputs, dtype)),
      target(Fingerprint().Add(ChosenTarget()).value()) {}

std::size_t SavedBytesOf(const Engine& engine, const Recipe& recipe, const Dims& dims,
                         DType dtype) {
  const std::size_t bytes = engine.SavedBytes(recipe, dims, dtype);
  return bytes > 0 ? sizeof(SavedHeader) + bytes : 0;
}

std::span<std::byte> CheckSaved(std::string_view op, const CallOptions& options,
                                std::size_t needed) {
  const std::span<std::byte> saved = options.saved;
  if (saved.empty()) return {};
  if (saved.size() < needed) {
    throw Error(op, "saved", "at least " + std::to_string(needed) + " bytes",
                std::to_string(saved.size()));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(saved.data());
  if (address % 64 != 0) {
    throw Error(op, "saved", "at a multiple of 64", std::to_string(address % 64) + " beyond one");
  }
  return needed > 0 ? saved : std::span<std::byte>();
}

std::span<std::byte> WriteHeader(const SavedHeader& header, std::span<std::byte> saved) {
  std::memcpy(saved.data(), &header, sizeof(header));
  return saved.subspan(sizeof(header));
}

std::span<std::byte> RequireHeader(std::string_view op, const SavedHeader& header,
                                   std::span<std::byte> saved) {
  if (std::memcmp(saved.data(), &header, sizeof(header)) == 0) {
    return saved.subspan(sizeof(header));
  }
  throw Error(op, "saved", "what Forward left there for the same inputs", "something else");
}

}  // namespace ttr
