#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <vector>

#include "data_stream.h"
#include "experiments/data/input.h"
#include "experiments/data/text.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

using Tokens = std::vector<std::string>;

Tokens Read(const std::string& text, TextOptions options = {}) {
  std::istringstream in(text);
  TextReader reader(in, "text", options);
  Tokens tokens;
  std::string token;
  while (reader.Next(token)) {
    tokens.push_back(token);
  }
  EXPECT_FALSE(reader.Next(token));
  return tokens;
}

TEST(Text, HakunaMatata) {
  EXPECT_EQ(Read("Hakuna Matata, it means no worries for the rest of your days. Hakuna"),
            (Tokens{"Hakuna", "Matata", ",", "it", "means", "no", "worries", "for", "the", "rest",
                    "of", "your", "days", ".", "Hakuna"}));
}

TEST(Text, WordsNumbersMarksAndApostrophes) {
  EXPECT_EQ(Read("  don't 'quote' it\xE2\x80\x99s k_0=3.14!\n\n--\tend'"),
            (Tokens{"don't", "'", "quote", "'", "it\xE2\x80\x99s", "k_0", "=", "3", ".", "14", "!",
                    "-", "-", "end", "'"}));
  EXPECT_EQ(Read("a''b"), (Tokens{"a", "'", "'", "b"}));
  EXPECT_TRUE(Read("").empty());
  EXPECT_TRUE(Read(" \r\n\t\x01").empty());
}

TEST(Text, CaseIsKeptUnlessFolded) {
  EXPECT_EQ(Read("The THE \xC3\x89t\xC3\xA9"), (Tokens{"The", "THE", "\xC3\x89t\xC3\xA9"}));
  EXPECT_EQ(Read("The THE \xC3\x89t", {TokenKind::kWords, true}),
            (Tokens{"the", "the", "\xC3\x89t"}));
}

TEST(Text, BeyondAscii) {
  // na\u00EFve \u2014 \u201Cok\u201D\u3000\u4F60\u597D\u3002 \U0001F600, with a byte order mark.
  EXPECT_EQ(Read("\xEF\xBB\xBFna\xC3\xAFve \xE2\x80\x94 \xE2\x80\x9Cok\xE2\x80\x9D\xE3\x80\x80"
                 "\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82 \xF0\x9F\x98\x80"),
            (Tokens{"na\xC3\xAFve", "\xE2\x80\x94", "\xE2\x80\x9C", "ok", "\xE2\x80\x9D",
                    "\xE4\xBD\xA0", "\xE5\xA5\xBD", "\xE3\x80\x82", "\xF0\x9F\x98\x80"}));
}

// Stray continuation, cut sequence, overlong, surrogate, beyond U+10FFFF, bytes that never occur.
TEST(Text, BytesThatAreNoUtf8AreTokensAndEatNothing) {
  EXPECT_EQ(Read("a\x80z"), (Tokens{"a", "\x80", "z"}));
  EXPECT_EQ(Read("\xE2\x82z"), (Tokens{"\xE2\x82", "z"}));
  EXPECT_EQ(Read("\xE2"), (Tokens{"\xE2"}));
  EXPECT_EQ(Read("\xC0\xAFz"), (Tokens{"\xC0", "\xAF", "z"}));
  EXPECT_EQ(Read("\xE0\x80\xAF"), (Tokens{"\xE0\x80\xAF"}));
  EXPECT_EQ(Read("\xED\xA0\x80"), (Tokens{"\xED\xA0\x80"}));
  EXPECT_EQ(Read("\xF4\x90\x80\x80"), (Tokens{"\xF4\x90\x80\x80"}));
  EXPECT_EQ(Read("\xFF\xFE"), (Tokens{"\xFF", "\xFE"}));
}

TEST(Text, EveryByteIsATokenOfBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i) {
    all.push_back(static_cast<char>(i));
  }
  const Tokens tokens = Read(all, {TokenKind::kBytes, false});
  ASSERT_EQ(tokens.size(), 256u);
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(tokens[i], std::string(1, static_cast<char>(i)));
  }
}

TEST(Text, AnEndlessWordIsCutAndNothingIsLost) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += "x\xC3\xA9";
  }
  const Tokens tokens = Read(text);
  EXPECT_GT(tokens.size(), 10u);
  std::string joined;
  for (const std::string& token : tokens) {
    EXPECT_LE(token.size(), TextReader::kMaxWordBytes);
    joined += token;
  }
  EXPECT_EQ(joined, text);
}

TEST(Text, ReadsAsTheTextArrives) {
  Pieces pieces({"one t", "wo three", " four"});
  std::istream in(&pieces);
  TextReader reader(in, "pipe");
  std::string token;
  ASSERT_TRUE(reader.Next(token));
  EXPECT_EQ(token, "one");
  EXPECT_EQ(pieces.asked(), 1u);
  ASSERT_TRUE(reader.Next(token));
  EXPECT_EQ(token, "two");
  EXPECT_EQ(pieces.asked(), 2u);
}

TEST(Vocabulary, NumbersTokensInOrderOfAppearance) {
  Vocabulary vocabulary;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 5000; ++i) {
      EXPECT_EQ(vocabulary.Add("token" + std::to_string(i)), i);
    }
  }
  EXPECT_EQ(vocabulary.size(), 5000);
  EXPECT_EQ(vocabulary.Text(4321), "token4321");
  EXPECT_EQ(vocabulary.Find("token17"), 17);
  EXPECT_EQ(vocabulary.Find("other"), Vocabulary::kAbsent);
  EXPECT_EQ(vocabulary.Add(std::string_view("\0a", 2)), 5000);
  EXPECT_EQ(vocabulary.Add(std::string_view("\0b", 2)), 5001);
}

TEST(Printable, ShowsWhatATerminalWouldNot) {
  EXPECT_EQ(Printable("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(Printable("\n\t\r\\"), "\\n\\t\\r\\\\");
  EXPECT_EQ(Printable(std::string("\0\x1B\x7F", 3)), "\\x00\\x1b\\x7f");
  EXPECT_EQ(Printable("\xC2\x9B\xE2\x82z"), "\\xc2\\x9b\\xe2\\x82z");  // U+009B begins an escape
}

TEST(Input, NamesWhatItCannotOpen) {
  for (const std::string path : {"/nowhere/at/all.txt", "/tmp"}) {
    try {
      Input input(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
    }
  }
  EXPECT_EQ(Input("-").name(), "standard input");
}

TEST(ByteReader, ReadsAFileLongerThanItsBuffer) {
  const std::string path = testing::TempDir() + "ttr_byte_reader_test";
  std::string text;
  for (int i = 0; i < 100000; ++i) {
    text += std::to_string(i);
  }
  std::ofstream(path, std::ios::binary) << text;
  Input input(path);
  ByteReader reader(input.stream(), input.name());
  std::string read;
  while (reader.Peek() != ByteReader::kEnd) {
    read.push_back(static_cast<char>(reader.Get()));
  }
  EXPECT_EQ(read, text);
  EXPECT_EQ(reader.Get(), ByteReader::kEnd);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace ttr::experiments
