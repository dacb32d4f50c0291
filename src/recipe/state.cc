#include <algorithm>

#include "ttr/error.h"
#include "ttr/inputs.h"

namespace ttr {
namespace {

State::Entry& FindOrAdd(std::vector<State::Entry>& entries, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const State::Entry& entry) { return entry.name == name; });
  if (found != entries.end()) return *found;
  return entries.emplace_back(State::Entry{std::string(name), {}, {}});
}

}  // namespace

State::State(const State& other)
    : entries_(other.entries_), companion_(other.companion_), settler_(other.settler_) {
  for (Entry& entry : entries_) {
    if (entry.owned.defined()) entry.view = entry.owned.view();
  }
}

State& State::operator=(const State& other) {
  if (this != &other) *this = State(other);
  return *this;
}

void State::RequireSettled() const {
  if (!behind()) return;
  throw Error(
      "[State] its tensors are behind the tokens of Step with Run::defers; call "
      "Layer::Settle before they are read, written or replaced");
}

const std::vector<State::Entry>& State::entries() const {
  RequireSettled();
  return entries_;
}

void State::Set(std::string_view name, Tensor tensor) {
  RequireSettled();
  Entry& entry = FindOrAdd(entries_, name);
  entry.owned = std::move(tensor);
  entry.view = entry.owned.view();
}

void State::Bind(std::string_view name, const TensorView& view) {
  RequireSettled();
  Entry& entry = FindOrAdd(entries_, name);
  entry.owned = Tensor();
  entry.view = view;
}

TensorView State::Companion(DType dtype, const Shape& shape) {
  if (!companion_.defined() || companion_.dtype() != dtype || !(companion_.shape() == shape)) {
    companion_ = Tensor(dtype, shape);
  }
  return companion_.view();
}

TensorView State::Get(std::string_view name) const {
  RequireSettled();
  for (const Entry& entry : entries_) {
    if (entry.name == name) return entry.view;
  }
  return TensorView();
}

}  // namespace ttr
