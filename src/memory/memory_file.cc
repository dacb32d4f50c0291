// A memory on disk: its state and gates as tensors, all else in the header's metadata.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/memory/gates.h"
#include "ttr/error.h"
#include "ttr/memory.h"
#include "ttr/util/safetensors.h"
#include "ttr/version.h"

namespace ttr {
namespace {

constexpr std::string_view kFormat = "1";  // of what is stored, and how it is named
constexpr std::string_view kGatePrefix = "gate.";
constexpr std::string_view kCompanion =
    "companion";  // Decoder::auxiliary(), so that answers go on bit for bit
constexpr std::string_view kExtraPrefix = "extra.";

using Metadata = std::map<std::string, std::string>;

// The file as it is read: every complaint names it.
class Loader {
 public:
  Loader(const std::string& name, TensorFile& content) : name_(name), content_(content) {}

  [[noreturn]] void Fail(const std::string& what, std::string_view required,
                         std::string_view given) const {
    throw Error("Load", what + " of " + name_, required, given);
  }

  const std::string& Text(const std::string& key) const {
    const auto found = content_.metadata.find(key);
    if (found == content_.metadata.end()) {
      Fail("metadata '" + key + "'", "there, as in every saved memory", "absent");
    }
    return found->second;
  }

  std::int64_t Number(const std::string& key) const {
    const std::string& text = Text(key);
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || rest != end || number < 0) {
      Fail("metadata '" + key + "'", "a whole number, 0 or more", "'" + text.substr(0, 40) + "'");
    }
    return number;
  }

  // What a call says about a part of the file, with that and the file's name in place of the
  // operator's.
  template <class Call>
  auto Named(const std::string& what, Call&& call) const {
    try {
      return call();
    } catch (const Error& error) {
      std::string_view text = error.what();
      if (text.starts_with('[')) text.remove_prefix(std::min(text.find(']') + 1, text.size()));
      throw Error("[Load] " + what + " of " + name_ + ":" + std::string(text));
    }
  }

  Recipe ReadRecipe() const {
    const std::string& json = Text("recipe");
    const std::string& text = Text("recipe_line");
    const Recipe recipe = Named("recipe", [&] { return RecipeFromJson(json); });
    const Recipe line = Named("recipe_line", [&] { return ParseRecipe(text); });
    if (!(line == recipe)) {
      Fail("recipe_line", "the recipe '" + ToString(recipe) + "'", "'" + ToString(line) + "'");
    }
    return recipe;
  }

  const Tensor& Float64(const std::string& name, const Tensor& tensor) const {
    if (tensor.dtype() != DType::kFloat64) {
      Fail("tensor '" + name + "'", "float64", Name(tensor.dtype()));
    }
    return tensor;
  }

 private:
  std::string name_;
  TensorFile& content_;
};

void RequireFormat(const Loader& loader) {
  const std::string& format = loader.Text("ttr.memory");
  if (format == kFormat) return;
  std::string mine(kFormat);
  mine.append(", the format that ttr ").append(Version()).append(" reads");
  loader.Fail(
      "metadata 'ttr.memory'", mine,
      "'" + format.substr(0, 40) + "', written by ttr " + loader.Text("ttr.version").substr(0, 40));
}

/// A memory that has read a token has all of its state; one that has not has none.
void RequireComplete(const Loader& loader, const Requirements& requirements, const State& state,
                     std::int64_t count) {
  for (const StateSpec& spec : requirements.state) {
    const bool given = state.Get(spec.name).defined();
    if (given == (count > 0)) continue;
    loader.Fail(
        "tensor '" + spec.name + "'",
        given ? "absent after 0 tokens" : "there after " + std::to_string(count) + " tokens",
        given ? "there" : "absent");
  }
}

}  // namespace

void AssociativeMemory::Save(const std::filesystem::path& path,
                             const std::map<std::string, std::string>& extra) const {
  WriteSafetensors(path, ToTensors(extra));
}

AssociativeMemory AssociativeMemory::Load(const std::filesystem::path& path,
                                          std::map<std::string, std::string>* extra) {
  return FromTensors(ReadSafetensors(path), path.string(), extra);
}

TensorFile AssociativeMemory::ToTensors(const std::map<std::string, std::string>& extra) const {
  TensorFile file;
  for (const State::Entry& entry : state().entries()) {
    file.tensors.emplace(entry.name, Tensor::Copy(entry.view));
  }
  const TensorView auxiliary = decoder_ ? decoder_->auxiliary() : TensorView();
  if (auxiliary.defined()) {
    file.tensors.emplace(std::string(kCompanion), Tensor::Copy(auxiliary));
  }
  for (const auto& [name, gate] : gates_) {
    file.tensors.emplace(std::string(kGatePrefix) + name, gate);
  }
  file.metadata = {{"ttr.memory", std::string(kFormat)},
                   {"ttr.version", Version()},
                   {"recipe", ToJson(recipe())},
                   {"recipe_line", ToString(recipe())},
                   {"key_dim", std::to_string(sizes_.key_dim)},
                   {"value_dim", std::to_string(sizes_.value_dim)},
                   {"heads", std::to_string(sizes_.heads)},
                   {"count", std::to_string(count_)}};
  for (const auto& [key, value] : extra) {
    file.metadata.emplace(std::string(kExtraPrefix) + key, value);
  }
  return file;
}

AssociativeMemory AssociativeMemory::FromTensors(TensorFile file, const std::string& source,
                                                 std::map<std::string, std::string>* extra) {
  const Loader loader(source, file);
  RequireFormat(loader);
  const Sizes sizes{.key_dim = loader.Number("key_dim"),
                    .value_dim = loader.Number("value_dim"),
                    .heads = loader.Number("heads")};
  const Recipe recipe = loader.ReadRecipe();
  AssociativeMemory memory =
      loader.Named("sizes", [&] { return AssociativeMemory(recipe, sizes); });
  memory.count_ = loader.Number("count");

  State state;
  Tensor auxiliary;
  for (auto& [name, tensor] : file.tensors) {
    if (name.starts_with(kGatePrefix)) {
      loader.Float64(name, tensor);
      loader.Named("tensor '" + name + "'",
                   [&] { memory.SetGate(name.substr(kGatePrefix.size()), tensor.as<double>()); });
    } else if (name == kCompanion) {
      auxiliary = std::move(tensor);
    } else {
      if (tensor.dtype() != DType::kInt64) loader.Float64(name, tensor);
      state.Set(name, std::move(tensor));
    }
  }
  const Requirements& requirements = memory.layer_->requirements();
  UpgradeCounts(requirements, state);
  RequireComplete(loader, requirements, state, memory.count_);
  const auto features = memory.gates_.find("features.w");
  const Dims dims = SizesOfCalls(
      recipe, sizes, features == memory.gates_.end() ? TensorView() : features->second.view());
  loader.Named("state", [&] {
    CheckState("Load", requirements, dims, state);
    if (memory.count_ == 0) return;
    memory.decoder_.emplace(*memory.layer_, dims, DType::kFloat64);
    memory.decoder_->Start(state);
    if (auxiliary.defined()) memory.decoder_->SetAuxiliary(auxiliary.view());
  });

  if (extra != nullptr) {
    extra->clear();
    for (const auto& [key, value] : file.metadata) {
      if (key.starts_with(kExtraPrefix)) extra->emplace(key.substr(kExtraPrefix.size()), value);
    }
  }
  return memory;
}

}  // namespace ttr
