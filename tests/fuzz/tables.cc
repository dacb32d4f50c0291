// Tables and texts, as `ttr forecast` and `ttr recall` read them: in whichever pieces they arrive,
// they are refused, or say the same rows and tokens, which are written and read again as they are.
#include <cmath>
#include <sstream>
#include <streambuf>
#include <vector>

#include "experiments/data/table.h"
#include "experiments/data/text.h"
#include "tests/fuzz/source.h"

namespace ttr::fuzz {
namespace {

using experiments::QuoteField;
using experiments::TableOptions;
using experiments::TableReader;
using experiments::TableRow;
using experiments::TextReader;
using Fields = std::vector<std::string>;

// Text that arrives in pieces, as from a pipe.
class Pieces : public std::streambuf {
 public:
  Pieces(std::string_view text, std::size_t piece) : text_(text), piece_(piece) {}

 private:
  int_type underflow() override {
    if (next_ == text_.size()) return traits_type::eof();
    const std::size_t end = next_ + std::min(piece_, text_.size() - next_);
    setg(text_.data() + next_, text_.data() + next_, text_.data() + end);
    next_ = end;
    return traits_type::to_int_type(*gptr());
  }

  std::string text_;
  std::size_t piece_, next_ = 0;
};

struct Table {
  Fields header;
  std::vector<TableRow> rows;
  std::string error;  // what ended it

  bool operator==(const Table& other) const {
    const auto same = [](const TableRow& a, const TableRow& b) {
      return a.line == b.line && a.fields == b.fields;
    };
    return header == other.header && error == other.error &&
           std::ranges::equal(rows, other.rows, same);
  }
};

void Check(const TableReader& reader, const TableRow& row, const Table& before) {
  Expect(row.fields.size() == reader.header().size(), "a row has fields without a column");
  Expect(row.values.size() == reader.chosen().size(), "a row lacks a number");
  for (const double value : row.values) Expect(!std::isinf(value), "a value is infinite");
  Expect(row.number == static_cast<std::int64_t>(before.rows.size()) + 1, "rows are not counted");
  Expect(row.line > (before.rows.empty() ? 0 : before.rows.back().line), "lines do not rise");
}

Table Read(std::string_view text, std::size_t piece, const TableOptions& options) {
  Pieces pieces(text, piece);
  std::istream in(&pieces);
  Table table;
  table.error = Refusal([&] {
    TableReader reader(in, "table", options);
    table.header = reader.header();
    TableRow row;
    while (reader.Next(row)) {
      Check(reader, row, table);
      table.rows.push_back(row);
    }
  });
  return table;
}

std::string Written(const Fields& fields, char separator) {
  std::string line;
  for (const std::string& field : fields) {
    line += (line.empty() && &field == fields.data() ? "" : std::string(1, separator)) +
            QuoteField(field, separator);
  }
  // A line of one empty field would be skipped.
  return (line.empty() ? "\"\"" : line) + "\n";
}

void ReadTable(Source source) {
  TableOptions options;
  options.separator = source.Any({',', ';', '\t', ' '});
  options.header = source.Any(
      {TableOptions::Header::kAuto, TableOptions::Header::kYes, TableOptions::Header::kNo});
  const std::size_t piece = 1 + static_cast<std::size_t>(source.Below(7));
  for (std::int64_t i = source.Below(3); i > 0; --i) options.columns.push_back(std::to_string(i));
  const std::string_view text = TextOf(source.rest());
  const Table table = Read(text, text.size() + 1, options);
  Expect(table == Read(text, piece, options), "in pieces it says something else");
  if (!table.error.empty()) return;

  // Behind a byte order mark any bytes may begin.
  std::string again = "\xEF\xBB\xBF" + Written(table.header, options.separator);
  for (const TableRow& row : table.rows) again += Written(row.fields, options.separator);
  options.columns.clear();
  options.header = TableOptions::Header::kYes;
  const Table written = Read(again, again.size() + 1, options);
  Expect(written.error.empty(), "written and read: " + written.error);
  Expect(written.header == table.header && written.rows.size() == table.rows.size(),
         "rows changed as they were written");
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Expect(written.rows[i].fields == table.rows[i].fields, "a field changed as it was written");
  }
}

Fields Tokens(std::string_view text, std::size_t piece, experiments::TextOptions options) {
  Pieces pieces(text, piece);
  std::istream in(&pieces);
  TextReader reader(in, "text", options);
  Fields tokens;
  for (std::string token; reader.Next(token);) {
    Expect(!token.empty() && token.size() <= TextReader::kMaxWordBytes, "a token of no length");
    for (const char c : experiments::Printable(token)) {
      Expect((c < 0 || c >= ' ') && c != 0x7f, "a token does not print as one line");
    }
    tokens.push_back(token);
  }
  return tokens;
}

void ReadText(Source source) {
  experiments::TextOptions options;
  if (source.Flag()) options.kind = experiments::TokenKind::kBytes;
  options.fold_case = source.Flag();
  const std::size_t piece = 1 + static_cast<std::size_t>(source.Below(7));
  const std::string_view text = TextOf(source.rest());
  const Fields tokens = Tokens(text, text.size() + 1, options);
  Expect(tokens == Tokens(text, piece, options), "in pieces it is other tokens");
  const bool whole = options.kind == experiments::TokenKind::kBytes;
  Expect(!whole || tokens.size() == text.size(), "bytes were lost");
  experiments::Vocabulary vocabulary;
  for (const std::string& token : tokens) {
    const std::int64_t id = vocabulary.Add(token);
    Expect(vocabulary.Text(id) == token && vocabulary.Find(token) == id, "a token's number");
  }
}

}  // namespace

void Tables(Bytes bytes) {
  Source source(bytes);
  source.Below(4) == 3 ? ReadText(source) : ReadTable(source);
}

}  // namespace ttr::fuzz
