// The machine's limits, measured between the works of `ttr bench`, and which of them binds a work.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "tools/bench_work.h"
#include "ttr/util/machine.h"

namespace ttr::tools {

/// What tables give times in.
inline constexpr const char* kNsUnit = "ns/token/head";

// The least time that the machine's limits leave a work, and the limit that sets it.
struct Bound {
  double ns = 0;      // a token and memory (StreamBound: a call)
  std::string limit;  // "FMA", "exp", "stream 12 MB", "in-place 64 MB", "read 64 MB"
};

class Limits {
 public:
  // What the bounds of these works rest on, and every level of memory if `levels`.
  Limits(const std::vector<Work>& works, bool levels);

  // So that StreamBound() or InPlaceBound() of so many bytes is measured, too.
  void AddStream(double bytes);
  void AddInPlace(double bytes);

  // Measures each limit once more.
  void Sample();

  Bound BoundOf(const Work& work) const;
  // How long its bytes alone take to come and go.
  Bound MemoryBound(const Work& work) const;

  // How long a call takes that passes over so many bytes, in all.
  Bound StreamBound(double bytes, int threads) const;
  // How long one thread takes to read and write so many bytes where they lie.
  Bound InPlaceBound(double bytes) const;

  double FmaPeak() const { return fma_.at(1).Median(); }
  // GB/s of one thread, read and written in place.
  double InPlace(std::size_t bytes) const { return in_place_.at(bytes).Median(); }

  struct Level {
    std::string name;
    std::size_t bytes;  // touched, half of what the level holds
  };
  const std::vector<Level>& levels() const { return levels_; }

  report::Table ToTable() const;

 private:
  using Sizes = std::map<std::size_t, Samples>;
  // What bytes come at: an update in place, a read, or a stream in and out.
  struct Bandwidth {
    Sizes Limits::* sizes;
    const char* name;
  };
  static Bandwidth BandwidthOf(const Demand& demand);

  std::vector<Level> levels_;
  std::map<int, Samples> fma_;  // of so many threads at once
  Samples exp_;
  Sizes in_place_, stream_, read_;
};

}  // namespace ttr::tools
