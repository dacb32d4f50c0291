// Tables for people: the terminal and Markdown.
#include <algorithm>
#include <numeric>

#include "experiments/report/table.h"
#include "experiments/report/utf8.h"

namespace ttr::report {
namespace {

constexpr int kColumnGap = 2;  // Blanks between columns.
constexpr int kNarrowest = 8;  // A last column squeezed below this is of no use to anyone.

std::string Pad(const std::string& text, int width, Alignment alignment) {
  const std::string blanks(static_cast<std::size_t>(std::max(0, width - DisplayWidth(text))), ' ');
  return alignment == Alignment::kRight ? blanks + text : text + blanks;
}

// Lines of at most `width` columns, broken at spaces; a longer word gets cut.
std::vector<std::string> Wrap(const std::string& text, int width) {
  std::vector<std::string> lines(1);
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = Truncate(text.substr(begin, end - begin), width);
    begin = end + 1;
    const bool first = lines.back().empty();
    if (!first && DisplayWidth(lines.back()) + 1 + DisplayWidth(word) > width) {
      lines.push_back(word);
    } else {
      lines.back() += (first ? "" : " ") + word;
    }
  }
  return lines;
}

std::string Trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::vector<std::vector<std::string>> Table::Grid() const {
  std::vector<std::vector<std::string>> grid(rows_.size() + 1);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    grid[0].push_back(Printable(Heading(c)));
    for (std::size_t r = 0; r < rows_.size(); ++r) grid[r + 1].push_back(Printable(Shown(r, c)));
  }
  return grid;
}

std::string Table::ToText(const TextOptions& options) const {
  if (columns_.empty()) return "";
  const std::vector<std::vector<std::string>> grid = Grid();
  std::vector<int> widths(columns_.size(), 0);
  for (const auto& row : grid) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], DisplayWidth(row[c]));
    }
  }
  const std::size_t last = columns_.size() - 1;
  if (options.width > 0) {
    const int before = options.indent + kColumnGap * static_cast<int>(last) +
                       std::accumulate(widths.begin(), widths.end() - 1, 0);
    widths[last] = std::min(widths[last], std::max(kNarrowest, options.width - before));
  }

  const std::string margin(static_cast<std::size_t>(options.indent), ' ');
  std::string out;
  for (std::size_t r = 0; r < grid.size(); ++r) {
    std::vector<std::string> tail = {grid[r][last]};
    if (options.width > 0) {
      tail = options.wrap_last ? Wrap(grid[r][last], widths[last])
                               : std::vector<std::string>{Truncate(grid[r][last], widths[last])};
    }
    for (std::size_t line = 0; line < tail.size(); ++line) {
      std::string text = margin;
      for (std::size_t c = 0; c < last; ++c) {
        text += Pad(line == 0 ? grid[r][c] : "", widths[c], columns_[c].alignment);
        text += std::string(kColumnGap, ' ');
      }
      text += Pad(tail[line], widths[last], columns_[last].alignment);
      out += Trimmed(std::move(text)) + "\n";
    }
  }
  return out;
}

std::string Table::ToMarkdown() const {
  const std::vector<std::vector<std::string>> grid = Grid();
  std::string out;
  for (std::size_t r = 0; r < grid.size(); ++r) {
    out += "|";
    for (const std::string& cell : grid[r]) {
      out += ' ';
      for (const char c : cell) out += c == '|' ? "\\|" : std::string(1, c);
      out += " |";
    }
    out += "\n";
    if (r > 0) continue;
    out += "|";
    for (const Column& column : columns_) {
      out += column.alignment == Alignment::kRight ? "---:|" : "---|";
    }
    out += "\n";
  }
  return out;
}

}  // namespace ttr::report
