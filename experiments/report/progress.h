// Progress on standard error: a bar where that is a terminal, elsewhere a line every half minute.
//
//   Progress progress("online regression", seeds, {.quiet = quiet});
//   for (...) { ...; progress.Advance(); }
//
//   online regression  ████████████▌            12/20   0:41  0:27 left
//
// The line is redrawn at most ten times a second and wiped when the object goes. Advance() may be
// called from several threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace ttr::report {

struct ProgressOptions {
  bool quiet = false;
  int file = 2;  // Descriptor that the bar goes to.
  std::chrono::milliseconds line_interval = std::chrono::seconds(30);  // where there is no bar
};

class Progress {
 public:
  // `total` 0: the length is unknown (a stream), and the count and its rate are shown.
  Progress(std::string label, std::int64_t total, ProgressOptions options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Advance(std::int64_t steps = 1);

  // Wipes the line; further steps draw it again. Call it before printing something else.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  void Draw(bool now);

  std::mutex mutex_;
  std::string label_;
  const std::int64_t total_;
  const int file_;
  const bool shown_;
  const bool terminal_;
  const Clock::duration interval_;
  bool drawn_ = false;
  std::int64_t done_ = 0;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_draw_ = start_;
};

// The bar's text for a terminal of `width` columns; never wider.
std::string ProgressLine(const std::string& label, std::int64_t done, std::int64_t total,
                         double elapsed_seconds, int width);

}  // namespace ttr::report
