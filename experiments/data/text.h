/// Any text as a sequence of tokens, read as a stream: bytes or words, in memory that does not grow
/// with the length of the text (the vocabulary grows with the number of different tokens).
///
/// Bytes: every byte is a token.
///
/// Words: a token is a run of letters, digits and underscores, with apostrophes between letters
/// kept ("don't"); or a single mark of punctuation or symbol; or a single ideograph or kana, as
/// Chinese and Japanese write no spaces. White space and control characters only separate. Case is
/// kept ("The" is not "the") unless `fold_case`, which lowers the letters A-Z.
/// The text is UTF-8: a character is never cut, and bytes that are no UTF-8 are tokens of their
/// own, so that any file can be read. A word longer than kMaxWordBytes is cut there.
///
/// A token's number is that of its first appearance: 0, 1, 2, ... Its vector is
/// UnitVector(seed, number), embedding.h.
#pragma once

#include <cstdint>
#include <deque>
#include <istream>
#include <string>
#include <string_view>
#include <unordered_map>

#include "experiments/data/input.h"

namespace ttr::experiments {

enum class TokenKind { kBytes, kWords };

struct TextOptions {
  TokenKind kind = TokenKind::kWords;
  bool fold_case = false;
};

class TextReader {
 public:
  static constexpr std::size_t kMaxWordBytes = 256;

  /// `in` must outlive the reader; `name` is for messages.
  TextReader(std::istream& in, std::string name, TextOptions options = {});

  /// Reads the next token; false at the end of the text. Throws SystemError when reading fails.
  bool Next(std::string& token);

 private:
  enum class Kind { kSpace, kLetter, kApostrophe, kMark };
  struct Symbol {  // one character, or a sequence of bytes that is none
    std::string bytes;
    Kind kind;
  };

  static Kind Classify(char32_t code);
  Symbol ReadSymbol();
  const Symbol* Ahead(std::size_t i);  // null beyond the end
  bool NextWord(std::string& token);

  ByteReader bytes_;
  TextOptions options_;
  std::deque<Symbol> ahead_;  // at most two
};

class Vocabulary {
 public:
  static constexpr std::int64_t kAbsent = -1;

  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// The number of a token; a new one gets the next number.
  std::int64_t Add(std::string_view token);
  /// The number of a token, or kAbsent.
  std::int64_t Find(std::string_view token) const;
  /// The token of a number below size().
  const std::string& Text(std::int64_t id) const { return texts_[id]; }
  std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }

 private:
  std::deque<std::string> texts_;  // a deque moves no string, so the keys below stay valid
  std::unordered_map<std::string_view, std::int64_t> ids_;
};

/// A token as one can print it in a table: control characters and bytes that are no UTF-8 become
/// \n, \t, \r or \xNN, and a backslash is doubled.
std::string Printable(std::string_view token);

}  // namespace ttr::experiments
