#include "src/layer/memory_ranges.h"

#include <string>

#include "src/core/view_checks.h"
#include "ttr/error.h"

namespace ttr {
namespace {

std::string NameOf(std::string_view prefix, std::string_view name) {
  return std::string(prefix) + std::string(name);
}

}  // namespace

void MemoryRanges::Add(std::string_view prefix, std::string_view name, const TensorView& view,
                       bool written) {
  if (!view.defined() || view.shape().elements() == 0) return;
  ranges_.push_back({prefix, name, Extent(op_, name, view), written});
}

void MemoryRanges::Write(std::string_view prefix, std::string_view name, const TensorView& view) {
  if (!view.defined()) return;
  Add(prefix, name, view, true);
  if (!IsDistinct(view)) {
    throw Error(op_, NameOf(prefix, name), "memory in which every element has a place of its own",
                "overlapping itself");
  }
}

void MemoryRanges::Add(std::string_view name, std::span<const std::byte> bytes, bool written) {
  if (bytes.empty()) return;
  Extent extent;
  extent.begin = bytes.data();
  extent.end = bytes.data() + bytes.size();
  ranges_.push_back({"", name, extent, written});
}

void MemoryRanges::Read(const Inputs& inputs) {
  for (const InputField& field : InputFields()) Read("", field.name, inputs.*field.view);
}

void MemoryRanges::Read(std::string_view prefix, const State& state) {
  for (const State::Entry& entry : state.entries()) {
    Read(prefix, entry.name, entry.view);
  }
}

void MemoryRanges::Write(std::string_view prefix, const State& state) {
  for (const State::Entry& entry : state.entries()) {
    Write(prefix, entry.name, entry.view);
  }
}

void MemoryRanges::Check() const {
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    for (std::size_t j = i + 1; j < ranges_.size(); ++j) {
      const Range& a = ranges_[i];
      const Range& b = ranges_[j];
      if (!a.written && !b.written) continue;
      if (!a.extent.Meets(b.extent)) continue;
      const Range& written = a.written ? a : b;
      const Range& other = a.written ? b : a;
      throw Error(op_, NameOf(written.prefix, written.name), "memory of its own",
                  "overlapping " + NameOf(other.prefix, other.name));
    }
  }
}

}  // namespace ttr
