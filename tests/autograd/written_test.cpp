// What is written of tensors: archives and text.
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <gradus/autograd/archive.h>
#include <gradus/autograd/autograd.h>
#include <gradus/graph/recorder.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

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

TEST_CASE("an archive comes back from a file, a stream, bytes and callbacks, with its tied tensors") {
  serialize::OutputArchive out, part;
  part.write("weight", tensor({1, 2, 3}));
  part.metadata["decoder"] = "weight";  // another name of the same tensor
  out.write("net", part);
  out.write("epoch", tensor(7));
  CHECK(out.metadata == io::Metadata{{"format", "pt"}, {"net.decoder", "net.weight"}});
  const auto check = [](const serialize::InputArchive& in) {
    CHECK(in.prefix().empty());
    CHECK(in.keys() == std::vector<std::string>{"epoch", "net"});
    CHECK(in.file().metadata.at("format") == "pt");
    serialize::InputArchive net;
    in.read("net", net);
    CHECK(&net.file() == &in.file());
    const Tensor weight = zeros({3}, kLong), handle = weight;
    Tensor target = weight, fresh;
    net.read("weight", target);
    CHECK(handle.equal(tensor({1, 2, 3})));
    CHECK(net.try_read("decoder", fresh));
    CHECK(fresh.equal(handle));
    CHECK_FALSE(net.try_read("epoch", fresh));
    CHECK_THROWS_WITH(net.read("bias", fresh), contains("contains no tensor 'net.bias'"));
    in.read("epoch", fresh);
    CHECK(fresh.item<int64_t>() == 7);
  };
  // An archive that was a part of another one becomes the whole of what it loads.
  serialize::InputArchive in, nested;
  const test::TemporaryDirectory directory;
  std::stringstream stream;
  std::string bytes;
  out.save_to(directory.file("net.safetensors"));
  out.save_to(stream);
  out.save_to([&](const void* begin, size_t count) {
    CHECK(bytes.empty());
    bytes.assign(static_cast<const char*>(begin), count);
    return count;
  });
  CHECK(stream.str() == bytes);
  const auto read = [&](uint64_t position, void* to, size_t count) {
    return bytes.copy(static_cast<char*>(to), count, position);
  };
  const std::vector<std::function<void(serialize::InputArchive&)>> loads = {
      [&](serialize::InputArchive& archive) { archive.load_from(directory.file("net.safetensors")); },
      [&](serialize::InputArchive& archive) { archive.load_from(stream); },
      [&](serialize::InputArchive& archive) { archive.load_from(bytes.data(), bytes.size()); },
      [&](serialize::InputArchive& archive) { archive.load_from(read, [&] { return bytes.size(); }); }};
  for (const auto& load : loads) {
    load(in);
    check(in);
    in.read("net", nested);
    REQUIRE(nested.prefix() == "net.");
    in = nested;
  }

  CHECK_THROWS_WITH(out.save_to([](const void*, size_t count) { return count - 1; }),
                    contains("only " + std::to_string(bytes.size() - 1) + " were written"));
  CHECK_THROWS_WITH(in.load_from(read, [&] { return bytes.size() + 1; }),
                    contains("has " + std::to_string(bytes.size() + 1) + " bytes, but only " +
                             std::to_string(bytes.size()) + " were read"));
  std::ostream closed(nullptr);
  CHECK_THROWS_WITH(out.save_to(closed), contains("could not write an archive of " + std::to_string(bytes.size())));
  CHECK_THROWS_WITH(out.write("nothing", Tensor()), contains("an undefined tensor for 'nothing'"));
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
  CHECK(lines_of(arange(12).reshape({2, 2, 3})) == std::vector<std::string>{"(1,.,.) = ", " 0  1  2", " 3  4  5", "",
                                                                            "(2,.,.) = ", "  6   7   8", "  9  10  11",
                                                                            "[ CPULongType{2,2,3} ]"});
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

TEST_CASE("magnitudes decide about width, scale and notation; infinities and NaN do not") {
  struct Printed {
    std::vector<double> numbers;
    std::vector<std::string> lines;
  };
  const double inf = INFINITY, nan = std::nan("");
  const std::vector<Printed> table = {
      {{0}, {" 0"}},
      {{-7, 42}, {" -7", " 42"}},
      {{999999999}, {" 999999999"}},
      {{1e9, 1}, {" 1.0000e+09", " 1.0000e+00"}},
      {{1e100}, {"1.0000e+100"}},
      {{0.5, -0.25}, {" 0.5000", "-0.2500"}},
      {{0, 0.5}, {" 0.0000", " 0.5000"}},
      {{10.5, -3}, {" 10.5000", " -3.0000"}},
      {{10000.5, 1.5}, {" 10000.5000", "     1.5000"}},
      {{100000.5, 1.5}, {" 1.0000e+05", " 1.5000e+00"}},
      {{99999.5}, {" 99999.5000"}},
      {{100000.5}, {"100000 *", " 1.0000"}},
      {{0.1}, {" 0.1000"}},
      {{0.05, 0.02}, {"0.01 *", " 5.0000", " 2.0000"}},
      {{0.011, 0.0099}, {"0.01 *", " 1.1000", " 0.9900"}},
      {{1e-4, 1.5}, {" 0.0001", " 1.5000"}},
      {{1e-5, 1.5}, {" 1.0000e-05", " 1.5000e+00"}},
      {{0, 1e-7}, {"1e-07 *", " 0.0000", " 1.0000"}},
      {{1e-99, 1.5e-3}, {" 1.0000e-99", " 1.5000e-03"}},
      {{1e-100, 1.5}, {"1.0000e-100", " 1.5000e+00"}},
      {{1e-101, 1.5}, {" 1.0000e-101", "  1.5000e+00"}},
      {{1e98, 1.5}, {" 1.0000e+98", " 1.5000e+00"}},
      {{1e99, 1.5}, {"  1.0000e+99", "  1.5000e+00"}},
      {{1.5e150, 1e150}, {"1.5000e+150", "1.0000e+150"}},
      {{nan, 1, inf, 25, -inf}, {"nan", "  1", "inf", " 25", "-inf"}},
      {{inf, 0.5, nan}, {"    inf", " 0.5000", "    nan"}},
      {{nan, -inf}, {"nan", "-inf"}},
      {{inf, 1e-3, 1e3, nan}, {"        inf", " 1.0000e-03", " 1.0000e+03", "        nan"}},
  };
  for (const Printed& wanted : table) {
    std::vector<std::string> lines = lines_of(tensor(wanted.numbers, kDouble));
    CHECK(lines.back() == "[ CPUDoubleType{" + std::to_string(wanted.numbers.size()) + "} ]");
    lines.pop_back();
    CHECK(lines == wanted.lines);
    // The signs of all numbers change only their signs in print.
    const auto without_signs = [](std::vector<std::string> printed) {
      for (std::string& line : printed) std::erase_if(line, [](char c) { return c == ' ' || c == '-'; });
      return printed;
    };
    std::vector<std::string> negated = lines_of(-tensor(wanted.numbers, kDouble));
    negated.pop_back();
    CHECK(without_signs(negated) == without_signs(wanted.lines));
  }
  CHECK(lines_of(tensor({{0.05, 0.02}, {0.01, 0.03}}, kDouble)) ==
        std::vector<std::string>{"0.01 *", "  5.0000  2.0000", "  1.0000  3.0000", "[ CPUDoubleType{2,2} ]"});
}

TEST_CASE("a tensor is not printed while its device records a step, because it has no numbers yet") {
  const Tensor x = ones({2});
  const graph::Recorder recorder;
  CHECK_THROWS_WITH(text_of(x), contains("printing a tensor"));
}

TEST_CASE("scalars, tensors without elements and undefined tensors are printed, too") {
  CHECK(text_of(full({}, 2.5, kDouble)) == "2.5\n[ CPUDoubleType{} ]");
  CHECK(text_of(full({}, INFINITY)) == "inf\n[ CPUFloatType{} ]");
  CHECK(text_of(full({}, 7, kInt)) == "7\n[ CPUIntType{} ]");
  CHECK(text_of(zeros({0})) == "[ CPUFloatType{0} ]");
  CHECK(text_of(zeros({2, 0})) == "[ CPUFloatType{2,0} ]");
  CHECK(text_of(zeros({1, 1, 1})) == "(1,.,.) = \n 0\n[ CPUFloatType{1,1,1} ]");
  CHECK(text_of(Tensor()) == "[ Tensor (undefined) ]");
  const std::vector<std::string> lines = lines_of(arange(16).reshape({2, 2, 2, 2}));
  for (size_t plane = 0; plane < 4; ++plane) {
    const size_t first = 4 * plane, number = 4 * plane;  // three lines and an empty one
    CHECK(lines.at(first) == "(" + std::to_string(plane / 2 + 1) + "," + std::to_string(plane % 2 + 1) + ",.,.) = ");
    std::istringstream row(lines.at(first + 1));
    size_t left = 0, right = 0;
    row >> left >> right;
    CHECK((left == number && right == number + 1));
    CHECK(lines.at(first + 3) == (plane < 3 ? "" : "[ CPULongType{2,2,2,2} ]"));
  }
}
