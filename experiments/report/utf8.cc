#include "experiments/report/utf8.h"

#include <cstddef>
#include <cstdint>

namespace ttr::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";

struct Symbol {
  char32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// The character at the head of a nonempty text; overlong forms, surrogates and codes past U+10FFFF
// are invalid and one byte long.
Symbol Decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned head = byte(0);
  if (head < 0x80) return {head, 1, true};
  const std::size_t bytes = head >= 0xF0 ? 4 : head >= 0xE0 ? 3 : 2;
  if (head < 0xC2 || head > 0xF4 || text.size() < bytes) return {};
  char32_t code = head & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return {};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, bytes, true};
}

bool IsControl(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

// U+202A.. and U+2066.. turn the direction of what follows, which would scramble a table.
bool IsInvisible(char32_t code) {
  return (code >= 0x300 && code <= 0x36F) || (code >= 0x1AB0 && code <= 0x1AFF) ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x20D0 && code <= 0x20FF) ||
         (code >= 0x202A && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) ||
         (code >= 0xFE00 && code <= 0xFE0F) || (code >= 0xFE20 && code <= 0xFE2F) || code == 0xFEFF;
}

bool IsWide(char32_t code) {
  return (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0x303E) ||
         (code >= 0x3041 && code <= 0xA4CF) || (code >= 0xAC00 && code <= 0xD7A3) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0xFE30 && code <= 0xFE6F) ||
         (code >= 0xFF00 && code <= 0xFF60) || (code >= 0xFFE0 && code <= 0xFFE6) ||
         (code >= 0x1F300 && code <= 0x1F64F) || (code >= 0x1F680 && code <= 0x1F6FF) ||
         (code >= 0x1F900 && code <= 0x1FAFF) || (code >= 0x20000 && code <= 0x3FFFD);
}

int Columns(const Symbol& symbol) {
  if (!symbol.valid) return 1;
  if (IsInvisible(symbol.code)) return 0;
  return IsWide(symbol.code) ? 2 : 1;
}

template <typename Visit>
void ForEach(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const Symbol symbol = Decode(text);
    visit(symbol, symbol.valid ? text.substr(0, symbol.bytes) : kReplacement);
    text.remove_prefix(symbol.bytes);
  }
}

std::string Escaped(char32_t code) {
  constexpr char kHex[] = "0123456789abcdef";
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code == '\r') return "\\r";
  return std::string("\\x") + kHex[(code >> 4) & 15] + kHex[code & 15];
}

}  // namespace

int DisplayWidth(std::string_view text) {
  int width = 0;
  ForEach(text, [&](const Symbol& symbol, std::string_view) { width += Columns(symbol); });
  return width;
}

std::string Printable(std::string_view text) {
  std::string out;
  ForEach(text, [&](const Symbol& symbol, std::string_view bytes) {
    if (symbol.valid && IsControl(symbol.code)) {
      out += Escaped(symbol.code);
    } else {
      out += bytes;
    }
  });
  return out;
}

std::string ValidText(std::string_view text) {
  std::string out;
  ForEach(text, [&](const Symbol& symbol, std::string_view bytes) {
    const bool dropped =
        symbol.valid && IsControl(symbol.code) && symbol.code != '\n' && symbol.code != '\t';
    // XML has no place for these two non-characters.
    if (!dropped && symbol.code != 0xFFFE && symbol.code != 0xFFFF) out += bytes;
  });
  return out;
}

std::string Truncate(std::string_view text, int columns) {
  if (DisplayWidth(text) <= columns) return std::string(text);
  std::string out;
  int width = 0;
  bool full = columns < 1;
  ForEach(text, [&](const Symbol& symbol, std::string_view bytes) {
    full = full || width + Columns(symbol) > columns - 1;
    if (full) return;
    width += Columns(symbol);
    out += bytes;
  });
  return columns < 1 ? out : out.append(kEllipsis);
}

}  // namespace ttr::report
