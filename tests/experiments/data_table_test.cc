#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "data_stream.h"
#include "experiments/data/input.h"
#include "experiments/data/table.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

using Fields = std::vector<std::string>;
using Header = TableOptions::Header;

struct Table {
  Fields header;
  std::vector<std::int64_t> chosen;
  std::vector<TableRow> rows;
};

Table Read(const std::string& text, TableOptions options = {}) {
  std::istringstream in(text);
  TableReader reader(in, "t.csv", std::move(options));
  Table table{reader.header(), reader.chosen(), {}};
  TableRow row;
  while (reader.Next(row)) {
    table.rows.push_back(row);
  }
  EXPECT_FALSE(reader.Next(row));
  return table;
}

std::string Failure(const std::string& text, TableOptions options = {}) {
  try {
    Read(text, std::move(options));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TableOptions Columns(std::vector<std::string> columns) {
  TableOptions options;
  options.columns = std::move(columns);
  return options;
}

TEST(TableReader, ReadsChosenColumnsAndPassesTheOthersThrough) {
  const Table table = Read("date,a,b\n2020-01-01,1,2.5\nyesterday,-3e2,+4\n", Columns({"b", "2"}));
  EXPECT_EQ(table.header, (Fields{"date", "a", "b"}));
  EXPECT_EQ(table.chosen, (std::vector<std::int64_t>{2, 1}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].values, (std::vector<double>{2.5, 1}));
  EXPECT_EQ(table.rows[0].fields, (Fields{"2020-01-01", "1", "2.5"}));
  EXPECT_EQ(table.rows[1].values, (std::vector<double>{4, -300}));
  EXPECT_EQ(table.rows[1].fields[0], "yesterday");
  EXPECT_EQ(table.rows[1].number, 2);
  EXPECT_EQ(table.rows[1].line, 3);
}

TEST(TableReader, ANameComesBeforeANumber) {
  const Table table = Read("2,1\n10,20\n", [] {
    TableOptions options = Columns({"1"});
    options.header = Header::kYes;
    return options;
  }());
  EXPECT_EQ(table.rows[0].values[0], 20);
}

TEST(TableReader, MissingValues) {
  const Table table =
      Read("x,y\n,1\nNA,1\nnan,1\nNaN,1\n?,1\nn/a,1\nNULL,1\n\"\",1\n  ,1\n-nan,1\n7,1\n",
           Columns({"x", "y"}));
  ASSERT_EQ(table.rows.size(), 11u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(std::isnan(table.rows[i].values[0])) << i;
    EXPECT_EQ(table.rows[i].values[1], 1);
  }
  EXPECT_EQ(table.rows[10].values[0], 7);
}

// LF, CRLF, CR, empty lines, no line end at the end: the same table, and the lines a person counts.
TEST(TableReader, LineEndsAndEmptyLines) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    for (const bool last : {true, false}) {
      const std::string text =
          "a,b" + end + "1,2" + end + end + "  " + end + "3,4" + (last ? end : "");
      const Table table = Read(text, Columns({"a", "b"}));
      ASSERT_EQ(table.rows.size(), 2u) << text;
      EXPECT_EQ(table.rows[0].line, 2);
      EXPECT_EQ(table.rows[1].line, 5);
      EXPECT_EQ(table.rows[1].values, (std::vector<double>{3, 4}));
    }
  }
}

// Empty lines of one column are missing values, but not behind the last row.
TEST(TableReader, EmptyLinesOfOneColumn) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    for (const char* header : {"y", "0"}) {
      const std::string text =
          header + end + "1" + end + "2" + end + end + " " + end + "4" + end + end + end;
      const Table table = Read(text, Columns({"1"}));
      const std::size_t first = *header == 'y' ? 0 : 1;
      ASSERT_EQ(table.rows.size(), 5u + first) << text;
      EXPECT_EQ(table.rows[first + 1].values[0], 2);
      EXPECT_TRUE(std::isnan(table.rows[first + 2].values[0]));
      EXPECT_TRUE(std::isnan(table.rows[first + 3].values[0]));
      EXPECT_EQ(table.rows[first + 3].line, 5);
      EXPECT_EQ(table.rows[first + 4].values[0], 4);
      EXPECT_EQ(table.rows[first + 4].line, 6);
    }
  }
}

TEST(TableReader, QuotedFieldsHoldAnything) {
  const Table table =
      Read("name,\"the \"\"x\"\"\"\n\"a,b\",1\n\"two\r\nlines\", 2 \n\" padded \",\" 3 \"\n",
           Columns({"the \"x\""}));
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0].fields[0], "a,b");
  EXPECT_EQ(table.rows[1].fields[0], "two\r\nlines");
  EXPECT_EQ(table.rows[1].line, 3);
  EXPECT_EQ(table.rows[2].line, 5);
  EXPECT_EQ(table.rows[2].fields[0], " padded ");
  EXPECT_EQ(table.rows[1].values[0], 2);
  EXPECT_EQ(table.rows[2].values[0], 3);
}

TEST(TableReader, ByteOrderMarkAndCharactersThatBeginLikeIt) {
  EXPECT_EQ(Read("\xEF\xBB\xBFx\n1\n", Columns({"x"})).rows[0].values[0], 1);
  EXPECT_EQ(Read("\xEF\xBD\x84,x\na,1\n").header[0], "\xEF\xBD\x84");
  EXPECT_EQ(Read("\xEF\xBB\xBE,x\na,1\n").header[0], "\xEF\xBB\xBE");
  EXPECT_NE(Failure("\xFF\xFEx").find("UTF-16"), std::string::npos);
}

TEST(TableReader, AHeaderOfNumbersIsARow) {
  const Table table = Read("1.5,2\n3,NA\n", Columns({"2"}));
  EXPECT_EQ(table.header, (Fields{"1", "2"}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].values[0], 2);
  EXPECT_EQ(table.rows[0].line, 1);
  EXPECT_EQ(table.rows[0].number, 1);

  TableOptions options;
  options.header = Header::kNo;
  EXPECT_EQ(Read("a,b\nc,d\n", options).rows.size(), 2u);
  options.header = Header::kYes;
  EXPECT_EQ(Read("1,2\n3,4\n", options).rows.size(), 1u);
  EXPECT_EQ(Read("NA,NA\n3,4\n").header, (Fields{"NA", "NA"}));  // names, as they are no numbers
}

TEST(TableReader, OtherSeparators) {
  for (const char separator : {';', '\t', '|'}) {
    TableOptions options = Columns({"b"});
    options.separator = separator;
    const std::string s(1, separator);
    const Table table = Read("a" + s + "b\n1,5" + s + "2\n" + s + "\n", options);
    ASSERT_EQ(table.rows.size(), 2u);
    EXPECT_EQ(table.rows[0].fields[0], "1,5");
    EXPECT_EQ(table.rows[0].values[0], 2);
    EXPECT_TRUE(std::isnan(table.rows[1].values[0]));
  }
}

TEST(TableReader, DecimalCommas) {
  TableOptions options = Columns({"b"});
  options.separator = ';';
  options.decimal = ',';
  const Table table = Read("a;b\n1,5;-2,25\n;NA\nx;1,5e3\n", options);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0].values[0], -2.25);
  EXPECT_EQ(table.rows[0].fields, (Fields{"1,5", "-2.25"}));
  EXPECT_TRUE(std::isnan(table.rows[1].values[0]));
  EXPECT_EQ(table.rows[2].values[0], 1500);
  // A point parts thousands here, or the table is another one.
  for (const char* number : {"1.5", "1.500,25", "1,5,5"}) {
    EXPECT_THROW(Read("a;b\n1;" + std::string(number) + "\n", options), Error) << number;
  }
  // The first line is data.
  options.columns = {"2"};
  EXPECT_EQ(Read("1,5;2,5\n3,5;4,5\n", options).rows.size(), 2u);
}

TEST(TableReader, NumbersSmallerThanEveryDoubleAreZero) {
  const std::string zeros(400, '0');
  for (const std::string& number :
       {std::string("1e-400"), std::string("-1E-400"), std::string("0.001e-330"),
        std::string("+12345.6e-9999"), std::string("1e-99999999999999999999"), "0." + zeros + "1",
        "0." + zeros + "1e5"}) {
    double value = 1;
    EXPECT_TRUE(ParseValue(number, value)) << number;
    EXPECT_EQ(value, 0) << number;
  }
  for (const std::string& number :
       {std::string("1e400"), std::string("0.001e330"), std::string("-1e+999"),
        std::string("1e99999999999999999999"), "1" + zeros, "1e-400x" + zeros}) {
    double value = 1;
    EXPECT_FALSE(ParseValue(number, value)) << number;
  }
  double value = 0;
  EXPECT_TRUE(ParseValue("1" + zeros + "e-400", value));
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(ParseValue("5e-324", value));
  EXPECT_GT(value, 0);
}

TEST(TableReader, ErrorsNameFileLineColumnAndWhatWasGiven) {
  EXPECT_EQ(Failure("date,a\n2020,1\n2021,1,2\n"),
            "[table] t.csv line 3 must have 2 fields ('date', 'a') but has 3");
  EXPECT_EQ(Failure("date,a\n2020\n"),
            "[table] t.csv line 2 must have 2 fields ('date', 'a') but has 1");
  EXPECT_EQ(Failure("date,a\n2020,1\n2021,one\n", Columns({"a"})),
            "[table] t.csv line 3 column 'a' must be a finite number, or empty, NA, NaN, null or ? "
            "where it is missing, but is 'one'");
  EXPECT_EQ(Failure("date,a\n", Columns({"c"})),
            "[table] t.csv: column must be one of 'date', 'a', or a number in 1..2, but is 'c'");
  EXPECT_NE(Failure("a,a\n1,2\n", Columns({"a"})).find("more than once"), std::string::npos);
  for (const char* column : {"0", "3", "-1", "", "1x", "99999999999999999999"}) {
    EXPECT_NE(Failure("a,b\n1,2\n", Columns({column})).find("number in 1..2"), std::string::npos);
  }
  for (const char* empty : {"", "\n\n", "\xEF\xBB\xBF", " \t \n"}) {
    EXPECT_EQ(Failure(empty), "[table] t.csv must hold a header line but is empty");
  }
  for (const char* bad :
       {"1 2", "1e999", "inf", "-Infinity", "0x10", "1,5", "+-1", "--1", "1.2.3"}) {
    const std::string quoted = "x,y\n\"" + std::string(bad) + "\",1\n";
    EXPECT_NE(Failure(quoted, Columns({"x"})).find("line 2 column 'x'"), std::string::npos) << bad;
  }
}

TEST(TableReader, MisplacedAndOpenQuotes) {
  EXPECT_NE(Failure("a,b\n1,x\"y\n").find("t.csv line 2: field 2"), std::string::npos);
  EXPECT_NE(Failure("a,b\n\"x\"y,1\n").find("t.csv line 2: field 1"), std::string::npos);
  EXPECT_NE(Failure("a,b\n1,2\n3,\"open\n5,6\n").find("t.csv line 3: field 2"), std::string::npos);
  const std::string endless = "a\n1\n\"" + std::string(TableReader::kMaxRowBytes, 'x');
  EXPECT_NE(Failure(endless).find("t.csv line 3: a row must be at most"), std::string::npos);
}

TEST(TableReader, ControlCharactersDoNotReachTheTerminal) {
  const std::string text = Failure("a\n\x1B[31m\n", Columns({"a"}));
  EXPECT_EQ(text.find('\x1B'), std::string::npos);
  EXPECT_NE(text.find("\\x1b[31m"), std::string::npos);
}

// A row is handed over when its line has ended, before the next piece is asked for.
TEST(TableReader, ARowArrivesWithItsLine) {
  Pieces pieces({"t,x\n", "a,1\nb,", "2\r\n", "c,3"});
  std::istream in(&pieces);
  TableReader reader(in, "pipe", Columns({"x"}));
  EXPECT_EQ(pieces.asked(), 1u);
  TableRow row;
  const std::size_t asked[] = {2, 3, 5};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(reader.Next(row));
    EXPECT_EQ(row.values[0], i + 1);
    EXPECT_EQ(pieces.asked(), asked[i]);
  }
  EXPECT_FALSE(reader.Next(row));
}

TEST(TableReader, WrittenFieldsReadBack) {
  const Fields fields = {"plain", "a,b", "say \"hi\"", "two\nlines", " padded", "", "caf\xC3\xA9"};
  std::string line;
  for (const std::string& field : fields) {
    line += (line.empty() ? "" : ",") + QuoteField(field);
  }
  EXPECT_EQ(line, "plain,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\" padded\",,caf\xC3\xA9");
  EXPECT_EQ(Read(line + "\n").header, fields);
}

TEST(TableReader, TheSeriesThatComesWithTtr) {
  Input input(std::string(TTR_SOURCE_DIR) + "/data/co2_weekly.csv");
  TableReader reader(input.stream(), input.name(), Columns({"co2"}));
  TableRow row;
  int missing = 0;
  double least = 1e9, most = 0;
  std::string last;
  while (reader.Next(row)) {
    if (std::isnan(row.values[0])) {
      ++missing;
    } else {
      least = std::min(least, row.values[0]);
      most = std::max(most, row.values[0]);
    }
    EXPECT_LT(last, row.fields[0]);
    last = row.fields[0];
  }
  EXPECT_EQ(row.number, 2284);
  EXPECT_EQ(missing, 59);
  EXPECT_EQ(least, 313.0);
  EXPECT_EQ(most, 373.9);
}

}  // namespace
}  // namespace ttr::experiments
