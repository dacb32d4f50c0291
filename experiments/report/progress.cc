#include "experiments/report/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "experiments/report/utf8.h"

namespace ttr::report {
namespace {

constexpr std::chrono::milliseconds kInterval{100};
constexpr int kWidestBar = 30;
constexpr int kNarrowestBar = 6;

std::string Duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, std::round(seconds)));
  const std::int64_t hours = whole / 3600;
  const std::int64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

// Blocks in eighths, so that the bar moves smoothly.
std::string Bar(double fraction, int width) {
  static constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<int>(std::floor(fraction * width * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[eighths % 8];
  const int filled = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  return bar + std::string(static_cast<std::size_t>(width - filled), ' ');
}

int TerminalWidth(int file) {
  winsize size = {};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void Put(int file, std::string_view text) {
  // Best effort: a bar that cannot be drawn is no reason to stop the work it reports on.
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

std::string ProgressLine(const std::string& label, std::int64_t done, std::int64_t total,
                         double elapsed_seconds, int width) {
  std::string numbers;
  double fraction = 0;
  if (total > 0) {
    fraction = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
    const std::string all = std::to_string(total);
    numbers = fmt::format("{:>{}}/{}  {}", done, all.size(), all, Duration(elapsed_seconds));
    if (done > 0 && done < total) {
      numbers += "  " + Duration(elapsed_seconds * (1 / fraction - 1)) + " left";
    }
  } else {
    numbers = fmt::format("{}  {}", done, Duration(elapsed_seconds));
    if (elapsed_seconds > 0 && done > 0) {
      numbers += fmt::format("  {:.0f}/s", static_cast<double>(done) / elapsed_seconds);
    }
  }
  std::string name = Printable(label);
  const int free = width - DisplayWidth(numbers) - DisplayWidth(name) - 4;
  if (total > 0 && free >= kNarrowestBar) {
    return name + "  " + Bar(fraction, std::min(free, kWidestBar)) + "  " + numbers;
  }
  const int room = width - DisplayWidth(numbers) - 2;
  if (room < 1) return Truncate(numbers, width);
  return Truncate(name, room) + "  " + numbers;
}

Progress::Progress(std::string label, std::int64_t total, ProgressOptions options)
    : label_(std::move(label)),
      total_(total),
      file_(options.file),
      shown_(!options.quiet),
      terminal_(isatty(options.file) == 1),
      interval_(terminal_ ? kInterval : options.line_interval) {
  if (shown_ && terminal_) Draw(true);
}

Progress::~Progress() { Clear(); }

void Progress::Advance(std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  done_ += steps;
  if (shown_) Draw(terminal_ && done_ == total_);
}

void Progress::Clear() {
  const std::lock_guard lock(mutex_);
  if (drawn_) Put(file_, "\r\x1b[K");
  drawn_ = false;
}

void Progress::Draw(bool now) {
  const Clock::time_point time = Clock::now();
  if (!now && time - last_draw_ < interval_) return;
  last_draw_ = time;
  const double elapsed = std::chrono::duration<double>(time - start_).count();
  if (!terminal_) {
    Put(file_, ProgressLine(label_, done_, total_, elapsed, TerminalWidth(file_)) + "\n");
    return;
  }
  drawn_ = true;
  // One column stays free: a full line would make some terminals scroll.
  const int width = TerminalWidth(file_) - 1;
  Put(file_, "\r" + ProgressLine(label_, done_, total_, elapsed, width) + "\x1b[K");
}

}  // namespace ttr::report
