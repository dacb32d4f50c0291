#include "ttr/state.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace ttr {
namespace {

State::Entry& FindOrAdd(std::vector<State::Entry>& entries, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const State::Entry& entry) { return entry.name == name; });
  if (found != entries.end()) return *found;
  return entries.emplace_back(State::Entry{std::string(name), {}, {}});
}

}  // namespace

State::State(const State& other) : entries_(other.entries_) {
  for (Entry& entry : entries_) {
    if (entry.owned.defined()) entry.view = entry.owned.view();
  }
}

State& State::operator=(const State& other) {
  if (this != &other) *this = State(other);
  return *this;
}

void State::Set(std::string_view name, Tensor tensor) {
  Entry& entry = FindOrAdd(entries_, name);
  entry.owned = std::move(tensor);
  entry.view = entry.owned.view();
}

void State::Bind(std::string_view name, const TensorView& view) {
  Entry& entry = FindOrAdd(entries_, name);
  entry.owned = Tensor();
  entry.view = view;
}

TensorView State::Get(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return entry.view;
  }
  return TensorView();
}

State State::Shared() const {
  State shared;
  for (const Entry& entry : entries_) shared.Bind(entry.name, entry.view);
  return shared;
}

void UpgradeCounts(const Requirements& requirements, State& state) {
  for (const StateSpec& spec : requirements.state) {
    const TensorView counts = state.Get(spec.name);
    if (!spec.counts() || !counts.defined() || !IsFloating(counts.dtype())) continue;
    const Tensor given = Tensor::Copy(counts, DType::kFloat64);
    const auto numbers = given.as<double>();
    constexpr double kMost = std::int64_t{1} << 53;  // doubles count no further
    const auto is_count = [&](double x) { return x >= 0 && x <= kMost && x == std::floor(x); };
    if (std::ranges::all_of(numbers, is_count)) {
      state.Set(spec.name, Tensor::Copy(given.view(), DType::kInt64));
    }
  }
}

}  // namespace ttr
