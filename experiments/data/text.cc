#include "experiments/data/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "experiments/data/utf8.h"

namespace ttr::experiments {
namespace {

struct Range {
  char32_t first, last;
};

bool Contains(std::span<const Range> ranges, char32_t code) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [code](Range r) { return code >= r.first && code <= r.last; });
}

// Beyond ASCII: spaces and the byte order mark.
constexpr Range kSpaces[] = {{0x80, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200B},
                             {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                             {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
// Marks that stand alone: punctuation and symbols (Latin-1 without its letters and raised signs,
// general punctuation, currency, arrows, mathematics, boxes, CJK punctuation, full-width ASCII
// marks); then kana and ideographs, each of which is a token.
constexpr Range kMarks[] = {{0xA1, 0xA9},     {0xAB, 0xB1},     {0xB4, 0xB4},      {0xB6, 0xB8},
                            {0xBB, 0xBB},     {0xBF, 0xBF},     {0xD7, 0xD7},      {0xF7, 0xF7},
                            {0x2010, 0x2027}, {0x2030, 0x205E}, {0x20A0, 0x20CF},  {0x2190, 0x2BFF},
                            {0x3001, 0x3004}, {0x3008, 0x3030}, {0x3041, 0x30FF},  {0x3400, 0x4DBF},
                            {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0xFF01, 0xFF0F},  {0xFF1A, 0xFF20},
                            {0xFF3B, 0xFF40}, {0xFF5B, 0xFF65}, {0x20000, 0x3FFFF}};

bool IsAsciiLetterOrDigit(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

TextReader::TextReader(std::istream& in, std::string name, TextOptions options)
    : bytes_(in, std::move(name)), options_(options) {}

TextReader::Kind TextReader::Classify(char32_t code) {
  if (code < 0x80) {
    return code <= ' ' || code == 0x7F  ? Kind::kSpace
           : code == '\''               ? Kind::kApostrophe
           : IsAsciiLetterOrDigit(code) ? Kind::kLetter
                                        : Kind::kMark;
  }
  if (code == 0x2019) {  // the typographer's apostrophe, which is a closing quote too
    return Kind::kApostrophe;
  }
  if (code == kNotUtf8 || Contains(kMarks, code)) {
    return Kind::kMark;
  }
  return Contains(kSpaces, code) ? Kind::kSpace : Kind::kLetter;
}

TextReader::Symbol TextReader::ReadSymbol() {
  Symbol symbol;
  const char32_t code =
      ReadUtf8([this] { return bytes_.Get(); }, [this] { return bytes_.Peek(); }, symbol.bytes);
  symbol.kind = Classify(code);
  return symbol;
}

const TextReader::Symbol* TextReader::Ahead(std::size_t i) {
  while (ahead_.size() <= i) {
    if (bytes_.Peek() == ByteReader::kEnd) {
      return nullptr;
    }
    ahead_.push_back(ReadSymbol());
  }
  return &ahead_[i];
}

bool TextReader::NextWord(std::string& token) {
  token.clear();
  while (Ahead(0) != nullptr && Ahead(0)->kind == Kind::kSpace) {
    ahead_.pop_front();
  }
  const auto take = [this, &token] {
    token += ahead_.front().bytes;
    ahead_.pop_front();
  };
  const auto letter = [this](std::size_t i) {
    const Symbol* symbol = Ahead(i);
    return symbol != nullptr && symbol->kind == Kind::kLetter;
  };
  if (Ahead(0) == nullptr) {
    return false;
  }
  const bool word = letter(0);
  take();
  while (word && Ahead(0) != nullptr && token.size() + 8 <= kMaxWordBytes) {
    if (Ahead(0)->kind == Kind::kApostrophe && letter(1)) {
      take();
    }
    if (!letter(0)) {
      break;
    }
    take();
  }
  return true;
}

bool TextReader::Next(std::string& token) {
  if (options_.kind == TokenKind::kBytes) {
    const int byte = bytes_.Get();
    token.assign(byte == ByteReader::kEnd ? 0 : 1, static_cast<char>(byte));
  } else if (!NextWord(token)) {
    return false;
  }
  if (options_.fold_case) {
    for (char& c : token) {
      c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  return !token.empty();
}

std::int64_t Vocabulary::Add(std::string_view token) {
  const auto found = ids_.find(token);
  if (found != ids_.end()) {
    return found->second;
  }
  const std::int64_t id = size();
  texts_.emplace_back(token);
  ids_.emplace(texts_.back(), id);
  return id;
}

std::int64_t Vocabulary::Find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? kAbsent : found->second;
}

std::string Printable(std::string_view token) {
  std::string text;
  std::size_t next = 0;
  const auto peek = [&] {
    return next < token.size() ? static_cast<unsigned char>(token[next]) : -1;
  };
  const auto get = [&] {
    const int byte = peek();
    ++next;
    return byte;
  };
  while (next < token.size()) {
    std::string bytes;
    const char32_t code = ReadUtf8(get, peek, bytes);
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    if (code == '\n' || code == '\t' || code == '\r') {
      text += code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\r";
    } else if (code == '\\') {
      text += "\\\\";
    } else if (code == kNotUtf8 || control) {
      for (const char byte : bytes) {
        text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    } else {
      text += bytes;
    }
  }
  return text;
}

}  // namespace ttr::experiments
