#include "experiments/report/html.h"

#include "experiments/report/utf8.h"

namespace ttr::report {

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : ValidText(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string InlineHtml(std::string_view text) {
  std::string out;
  for (;;) {
    const std::size_t open = text.find('`');
    const std::size_t close =
        open == std::string_view::npos ? std::string_view::npos : text.find('`', open + 1);
    if (close == std::string_view::npos) return out + EscapeHtml(text);
    out += EscapeHtml(text.substr(0, open));
    out += "<code>" + EscapeHtml(text.substr(open + 1, close - open - 1)) + "</code>";
    text.remove_prefix(close + 1);
  }
}

std::string TableHtml(const Table& table) {
  const auto cell = [&](const char* tag, std::size_t c, const std::string& content) {
    const bool right = table.columns()[c].alignment == Alignment::kRight;
    return std::string("<") + tag + (right ? " class=\"n\">" : ">") + content + "</" + tag + ">";
  };
  std::string out = "<table>";
  if (!table.title().empty()) out += "<caption>" + InlineHtml(table.title()) + "</caption>";
  out += "<thead><tr>";
  for (std::size_t c = 0; c < table.columns().size(); ++c) {
    out += cell("th", c, EscapeHtml(table.Heading(c)));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (std::size_t r = 0; r < table.rows().size(); ++r) {
    out += "<tr>";
    for (std::size_t c = 0; c < table.columns().size(); ++c) {
      out += cell("td", c, EscapeHtml(table.Shown(r, c)));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table>";
}

}  // namespace ttr::report
