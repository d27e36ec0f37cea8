// What is written of tensors: archives and text.
#include <cinttypes>
#include <cstdio>
#include <sstream>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;

namespace {

std::string text_of(const Tensor& x) {
  std::ostringstream stream;
  stream << x;
  return stream.str();
}

std::vector<std::string> lines_of(const Tensor& x) {
  std::istringstream text(text_of(x));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("a nested archive has the names below its own") {
  serialize::OutputArchive out, layer, part;
  part.write("weight", full({2}, 3.0));
  layer.write("bias", full({2}, 2.0));
  layer.write("part", part);
  out.write("first", full({2}, 1.0));
  out.write("layer", layer);
  out.write("layers", full({2}, 4.0));  // not below "layer."
  std::stringstream stream;
  out.save_to(stream);

  serialize::InputArchive in, of_layer, of_part, none;
  in.load_from(stream);
  CHECK(in.keys() == std::vector<std::string>{"first", "layer", "layers"});
  in.read("layer", of_layer);
  CHECK(of_layer.keys() == std::vector<std::string>{"bias", "part"});
  of_layer.read("part", of_part);
  CHECK(of_part.keys() == std::vector<std::string>{"weight"});
  CHECK(of_part.prefix() == "layer.part.");
  Tensor weight;
  of_part.read("weight", weight);
  CHECK(weight.equal(full({2}, 3.0)));
  CHECK_FALSE(of_part.try_read("bias", weight));
  CHECK_FALSE(in.try_read("fir", none));
  CHECK_THROWS_WITH(of_layer.read("other", none), contains("no name below 'layer.other'"));
}

TEST_CASE("numbers are printed with one scale, which is a power of ten") {
  CHECK_THAT(text_of(tensor({100000.5, 123456.5})), contains("100000 *\n") && contains("1.0000") && contains("1.2346"));
  CHECK_THAT(text_of(tensor({0.0012, 0.0025})), contains("0.001 *\n") && contains("1.2000") && contains("2.5000"));
  for (const Tensor& x : {tensor({0.5, 0.25}), tensor({99999.5, 12345.5})})
    CHECK(text_of(x).find('*') == std::string::npos);
  CHECK_THAT(text_of(tensor({1e-3, 1e3})), contains("1.0000e-03") && contains("1.0000e+03"));
  CHECK_THAT(text_of(tensor({1.0, 2000.0})), contains("    1\n 2000\n"));
}

TEST_CASE("integers of ten or more digits are printed with exponents, and each matrix has its own format") {
  CHECK(lines_of(tensor({1.0, 999999999.0}, kDouble))[0] == "         1");
  CHECK(lines_of(tensor({1.0, 1e9}, kDouble))[0] == " 1.0000e+00");
  const Tensor planes = tensor({1, 200, 3, 4, 0.5, 0.25, 1.5, 2.75, 1e7, 2, 3, 4}).reshape({3, 2, 2});
  CHECK(lines_of(planes) == std::vector<std::string>{"(1,.,.) = ", "   1  200", "   3    4", "",
                                                     "(2,.,.) = ", " 0.5000  0.2500", " 1.5000  2.7500", "",
                                                     "(3,.,.) = ", " 10000000         2", "        3         4",
                                                     "[ CPUFloatType{3,2,2} ]"});
}

TEST_CASE("a matrix wider than a line is printed in groups of columns, row by row") {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{2, 30}, {40, 30}, {1, 17}, {3, 21}}) {
    INFO(rows << " x " << columns);
    const std::vector<std::string> lines = lines_of(arange(100, 100 + rows * columns, kLong).reshape({rows, columns}));
    size_t line = 0;
    int64_t next = 0;  // column
    while (next < columns) {
      int64_t first = 0, last = 0;
      REQUIRE(std::sscanf(lines.at(line++).c_str(), "Columns %" SCNd64 " to %" SCNd64, &first, &last) == 2);
      CHECK(first == next + 1);
      REQUIRE(last >= first);
      for (int64_t row = 0; row < rows; ++row) {
        CHECK(lines.at(line).size() <= 80);
        std::istringstream numbers(lines.at(line++));
        for (int64_t column = next; column < last; ++column) {
          int64_t number = 0;
          CHECK(numbers >> number);
          CHECK(number == 100 + row * columns + column);
        }
        CHECK_FALSE(numbers >> first);
      }
      next = last;
      if (next < columns) CHECK(lines.at(line++).empty());
    }
    CHECK(next == columns);
    CHECK_THAT(lines.at(line),
               contains("Long") && contains("{" + std::to_string(rows) + "," + std::to_string(columns) + "}"));
  }
  for (const Shape& shape : {Shape{30, 2}, Shape{2, 16}, Shape{40}}) {
    const std::string text = text_of(arange(100, 100 + numel_of(shape), kLong).reshape(shape));
    CHECK(text.find("Columns") == std::string::npos);
  }
}
