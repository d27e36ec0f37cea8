#include <gradus/data/datasets/csv.h>

#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using namespace gradus::test;
using data::parse_csv;

TEST_CASE("a table of comma-separated values", "[data][csv]") {
  const data::Csv table =
      parse_csv("area,town,price\r\n120.5,Bergen,1e3\n\n80,\"Oslo, west\",-2.5\n99,Bergen,0", "t.csv");
  CHECK(table.names == std::vector<std::string>{"area", "town", "price"});
  REQUIRE(table.rows.size() == 3);
  CHECK(table.numbers("area").equal(tensor({120.5F, 80.0F, 99.0F})));
  CHECK(table.numbers("price").equal(tensor({1000.0F, -2.5F, 0.0F})));
  const auto [codes, words] = table.categories("town");
  CHECK(codes.equal(tensor({0, 1, 0}).to(kLong)));
  CHECK(words == std::vector<std::string>{"Bergen", "Oslo, west"});

  const data::Csv quoted = parse_csv("\xEF\xBB\xBF\"a \"\"b\"\"\";c\n\"two\nlines\";\r\n;\"\"\n", "t.csv", ';');
  CHECK(quoted.names == std::vector<std::string>{"a \"b\"", "c"});
  CHECK(quoted.rows == std::vector<std::vector<std::string>>{{"two\nlines", ""}, {"", ""}});
  // A carriage return that no line feed follows is part of a field.
  const std::vector<std::vector<std::string>> returns = {{"1\r2", "\r3"}, {"4", "5\r"}};
  CHECK(parse_csv("a,b\n1\r2,\r3\n4,5\r", "t.csv").rows == returns);
  CHECK(parse_csv("a\n\"1\"", "t.csv").rows == std::vector<std::vector<std::string>>{{"1"}});
  CHECK(parse_csv("a\n\"1\"\"\"", "t.csv").rows == std::vector<std::vector<std::string>>{{"1\""}});
  CHECK(parse_csv("a,b\n", "t.csv").rows.empty());
  CHECK(parse_csv("a\n1", "t.csv").numbers("a").sizes() == Shape({1}));
  CHECK(parse_csv("a\n", "t.csv").numbers("a").sizes() == Shape({0}));

  const TemporaryDirectory directory;
  io::write_file(directory.file("t.csv"), std::string_view("x,y\n1,2\n"));
  CHECK(data::read_csv(directory.file("t.csv")).numbers("y").equal(tensor({2.0F})));
}

TEST_CASE("numbers of a table, as Python's float() reads them", "[data][csv]") {
  const auto number = [](const std::string& text) {
    return parse_csv("a\n" + text + "\n", "t.csv").numbers("a").item<float>();
  };
  for (const char* text : {"1", " 1", "1 ", "+1", "\t+1.0 ", " 1e0", "1.", "10E-1", "\"1\"", "\" +1 \"", "0.1e+1"}) {
    CAPTURE(text);
    CHECK(number(text) == 1.0F);
  }
  CHECK(number("-.5") == -0.5F);
  CHECK(number("1e-60") == 0.0F);
  CHECK(number("-1e-400") == 0.0F);
  for (const char* text : {"nan", "inf", "+inf", "-Infinity", "1e39", "1e400", "1_000", "1,5", "0x1", "+-1", "--1",
                           "++1", "+", "- 1", "1 2", "1e", "one", "\" \"", "1\xc2\xa0"}) {
    CAPTURE(text);
    CHECK_THROWS(number(text));
  }
}

TEST_CASE("a header with many columns is read in linear time", "[data][csv]") {
  std::string header;
  for (int i = 0; i < 200'000; ++i) header += std::to_string(i) + ",";
  CHECK(parse_csv(header + "last\n", "t.csv").names.size() == 200'001);
  CHECK_THROWS_WITH(parse_csv(header + "0\n", "t.csv"), contains("two columns have the name '0'"));
}

TEST_CASE("malformed tables are errors", "[data][csv]") {
  const auto says = [](const char* text, const char* message) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_csv(text, "t.csv"), contains(message));
  };
  says("", "'t.csv' is empty");
  says("\n\r\n", "'t.csv' is empty");
  says("a,b\n1,2\n3\n", "'t.csv', line 3: 1 fields, but the header has 2");
  says("a\n\"1\n\n2\"\n1,2\n", "line 5: 2 fields");
  says("a,b,a\n", "two columns have the name 'a'");
  says("a\n\"1", "line 2: an unterminated quote");
  says("a\n\"1\"2\n", "text after a closing quote");
  says("a\n1\"2\n", "a quote within the field '1\"2'");
  const data::Csv table = parse_csv("a,b\n1,x\n2,\n3,inf\n", "t.csv");
  CHECK_THROWS_WITH(table.numbers("c"), contains("there is no column 'c'; there are 'a', 'b'"));
  CHECK_THROWS_WITH(table.numbers("b"), contains("column 'b', row 1: 'x' is not a number"));
  CHECK_THROWS_WITH(parse_csv("b\n\"\"\n", "t.csv").numbers("b"), contains("row 1: '' is not a number"));
  CHECK_THROWS_WITH(parse_csv("b\ninf\n", "t.csv").numbers("b"), contains("'inf' is not a number"));
  CHECK_THROWS_AS(data::read_csv("/nowhere/t.csv"), IoError);
}
