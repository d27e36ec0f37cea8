// What is written of tensors: archives and text.
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
