/// Which memory a call reads and which it writes, and that these do not meet.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "src/core/view_checks.h"
#include "ttr/inputs.h"
#include "ttr/state.h"
#include "ttr/tensor.h"

namespace ttr {

class MemoryRanges {
 public:
  explicit MemoryRanges(std::string_view op) : op_(op) { ranges_.reserve(kMost); }
  MemoryRanges(const MemoryRanges&) = delete;
  MemoryRanges& operator=(const MemoryRanges&) = delete;

  /// In errors a view is called by prefix and name, which must outlive this object.
  void Read(std::string_view prefix, std::string_view name, const TensorView& view) {
    Add(prefix, name, view, false);
  }
  /// An Error where elements of the view overlap one another, too.
  void Write(std::string_view prefix, std::string_view name, const TensorView& view);
  void Read(std::string_view name, std::span<const std::byte> bytes) { Add(name, bytes, false); }
  void Write(std::string_view name, std::span<const std::byte> bytes) { Add(name, bytes, true); }
  /// All inputs; all entries of a state.
  void Read(const Inputs& inputs);
  void Read(std::string_view prefix, const State& state);
  void Write(std::string_view prefix, const State& state);

  /// Throws where something that is written overlaps anything else.
  void Check() const;

 private:
  struct Range {
    std::string_view prefix, name;
    Extent extent;
    bool written;
  };
  void Add(std::string_view prefix, std::string_view name, const TensorView& view, bool written);
  void Add(std::string_view name, std::span<const std::byte> bytes, bool written);

  // So many need no memory but this.
  static constexpr std::size_t kMost = 128;

  std::string_view op_;
  alignas(Range) std::byte room_[kMost * sizeof(Range)];
  std::pmr::monotonic_buffer_resource memory_{room_, sizeof(room_)};
  std::pmr::vector<Range> ranges_{&memory_};
};

}  // namespace ttr
