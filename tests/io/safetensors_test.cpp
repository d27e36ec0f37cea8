#include <gradus/core/io/safetensors.h>
#include <gradus/tests/io/io_test.h>

#include <numeric>

using namespace gradus;
using namespace gradus::test;

namespace {

// A file with the given header and data.
std::string safetensors_file(const std::string& json, const std::string& data) {
  return little_endian(json.size(), 8) + json + data;
}

std::string safetensors_error(const std::string& file) {
  try {
    io::parse_safetensors(bytes_of(file), "test");
  } catch (const IoError& error) { return error.what(); }
  return "(no error)";
}

// The file that the reference implementation (0.6) writes for the tensors of reference_tensors().
const std::string kReferenceFile =
    std::string("\x88\x01\0\0\0\0\0\0", 8) +
    R"({"__metadata__":{"format":"pt"},"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
    R"("e":{"dtype":"F64","shape":[0,4],"data_offsets":[8,8]},"fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
    R"("fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]},)"
    R"("half":{"dtype":"F16","shape":[2],"data_offsets":[40,44]},"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[44,47]}})"
    "       " +
    std::string(
        "\x07\0\0\0\0\0\0\0"
        "\0\0\xc0?\0\0\0\xc0"
        "\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@"
        "\0<\0@"
        "\x01\0\x01",
        47);

std::vector<std::pair<std::string, Array>> reference_tensors() {
  const Array mask = Array::empty({3}, DType::boolean);
  std::memcpy(mask.data(), "\1\0\1", 3);
  return {{"half", array_of<Half>({2}, {1.f, 2.f})},       {"mask", mask},
          {"e", Array::empty({0, 4}, DType::f64)},         {"fc.weight", array_of<float>({2, 3}, {0, 1, 2, 3, 4, 5})},
          {"fc.bias", array_of<float>({2}, {1.5f, -2.f})}, {"steps", array_of<int64_t>({}, {7})}};
}

}  // namespace

TEST_CASE("safetensors: reads and writes the reference implementation's bytes", "[io][safetensors]") {
  const io::Safetensors file = io::parse_safetensors(bytes_of(kReferenceFile), "reference");
  CHECK(file.metadata == io::Metadata{{"format", "pt"}});
  REQUIRE(file.tensors.size() == 6);
  CHECK(file.tensors.at("fc.weight").shape() == Shape{2, 3});
  CHECK(values_of<float>(file.tensors.at("fc.weight")) == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(values_of<float>(file.tensors.at("fc.bias")) == std::vector<float>{1.5f, -2.f});
  CHECK(file.tensors.at("steps").shape() == Shape{});
  CHECK(*file.tensors.at("steps").data<int64_t>() == 7);
  CHECK(static_cast<float>(file.tensors.at("half").data<Half>()[1]) == 2.f);
  CHECK(file.tensors.at("mask").data<bool>()[2]);
  CHECK(file.tensors.at("e").shape() == Shape{0, 4});

  const TemporaryDirectory directory;
  const std::string path = directory.file("model.safetensors");
  io::save_safetensors(path, reference_tensors(), {{"format", "pt"}});
  const io::Bytes written = io::read_file(path);
  CHECK(std::string(reinterpret_cast<const char*>(written.data()), written.size()) == kReferenceFile);
  CHECK(io::format_safetensors(reference_tensors(), {{"format", "pt"}}) == written);  // in memory
  CHECK(io::load_safetensors_metadata(path) == file.metadata);
  CHECK(io::load_safetensors(path).size() == 6);
}

TEST_CASE("safetensors: every dtype and any strides survive", "[io][safetensors]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("all.safetensors");
  std::vector<std::pair<std::string, Array>> tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    const Array array = Array::empty({2, 3, 5}, dtype);
    char* bytes = static_cast<char*>(array.data());
    for (size_t k = 0; k < array.nbytes(); ++k)
      bytes[k] = static_cast<char>(dtype == DType::boolean ? k % 2 : k * 7 + i);
    tensors.emplace_back(std::string("t").append(std::to_string(i)), array);
  }
  std::vector<int64_t> counting(24);
  std::iota(counting.begin(), counting.end(), 0);
  const Array base = array_of<int64_t>({4, 6}, counting);
  tensors.emplace_back("transposed", base.transpose(0, 1));
  tensors.emplace_back("sliced", base.slice(0, 1, 4, 2).slice(1, 2, 6, 3));
  tensors.emplace_back("expanded", base.slice(1, 0, 1).expand({4, 3}));
  tensors.emplace_back("naïve \"quoted\"", array_of<uint8_t>({1}, {9}));
  io::save_safetensors(path, tensors);

  const auto loaded = io::load_safetensors(path);
  REQUIRE(loaded.size() == tensors.size());
  for (int i = 0; i < kDTypeCount; ++i) {
    const Array& saved = tensors[static_cast<size_t>(i)].second;
    const Array& back = loaded.at(std::string("t").append(std::to_string(i)));
    CHECK(back.dtype() == saved.dtype());
    CHECK(back.shape() == saved.shape());
    CHECK(std::memcmp(back.data(), saved.data(), saved.nbytes()) == 0);
  }
  CHECK(loaded.at("transposed").shape() == Shape{6, 4});
  CHECK(loaded.at("transposed").data<int64_t>()[1] == 6);
  CHECK(values_of<int64_t>(loaded.at("sliced")) == std::vector<int64_t>{8, 11, 20, 23});
  CHECK(values_of<int64_t>(loaded.at("expanded")) == std::vector<int64_t>{0, 0, 0, 6, 6, 6, 12, 12, 12, 18, 18, 18});
  CHECK(loaded.count("naïve \"quoted\"") == 1);
}

TEST_CASE("safetensors: invalid tensors are rejected before anything is written", "[io][safetensors]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x.safetensors");
  const Array one = array_of<float>({1}, {1});
  CHECK_THROWS_WITH(io::save_safetensors(path, {{"a", one}, {"a", one}}), contains("two tensors are named 'a'"));
  CHECK_THROWS_AS(io::save_safetensors(path, {{"__metadata__", one}}), ValueError);
  CHECK_THROWS_AS(io::save_safetensors(path, {{"a", Array()}}), ValueError);
  CHECK_THROWS_WITH(io::save_safetensors(path, {{"\xff", one}}), contains("is not UTF-8"));
  CHECK_THROWS_WITH(io::save_safetensors(path, {{"a", one}}, {{"note", "\xff"}}), contains("is not UTF-8"));
  CHECK(directory.count() == 0);
  io::save_safetensors(path, {});
  CHECK(io::load_safetensors(path).empty());
}

TEST_CASE("safetensors: the data begin at a multiple of 8 bytes", "[io][safetensors]") {
  for (size_t length = 1; length < 20; ++length) {
    const std::string name(length, 'n');
    const io::Bytes file = io::format_safetensors({{name, array_of<float>({2}, {1, 2})}}, {});
    CHECK(file.size() % 8 == 0);
    CHECK(values_of<float>(io::parse_safetensors(file, "f").tensors.at(name)) == std::vector<float>{1, 2});
    const std::string text(reinterpret_cast<const char*>(file.data()) + 8, file.size() - 16);
    CHECK(text.find_last_not_of(' ') >= text.size() - 8);  // at most 7 spaces
    CHECK(text.find("__metadata__") == std::string::npos);
  }
}

TEST_CASE("safetensors: unaligned offsets are read", "[io][safetensors]") {
  const auto tensors =
      io::parse_safetensors(
          bytes_of(safetensors_file(
              R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I32","shape":[1],"data_offsets":[1,5]}})",
              std::string("\5\1\2\0\0", 5))),
          "odd")
          .tensors;
  CHECK(tensors.at("a").data<int32_t>()[0] == 0x201);
  CHECK(tensors.at("b").data<uint8_t>()[0] == 5);
}

TEST_CASE("safetensors: hostile files are errors", "[io][safetensors]") {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data(8, '\1');
  REQUIRE(safetensors_error(safetensors_file(good, data)) == "(no error)");
  REQUIRE(safetensors_error(safetensors_file(good + "   ", data)) == "(no error)");

  SECTION("truncated anywhere") {
    const std::string file = safetensors_file(good, data);
    for (size_t length = 0; length < file.size(); ++length)
      CHECK(safetensors_error(file.substr(0, length)) != "(no error)");
    for (size_t length = 0; length < kReferenceFile.size(); ++length)
      CHECK(safetensors_error(kReferenceFile.substr(0, length)) != "(no error)");
    CHECK_THAT(safetensors_error(file + "x"), contains("1 bytes that belong to no tensor"));
  }
  SECTION("lengths of the header") {
    CHECK_THAT(safetensors_error(little_endian(~uint64_t{0}, 8) + good + data), contains("announces a header"));
    CHECK_THAT(safetensors_error(little_endian(100'000'000, 8) + good + data), contains("truncated"));
    CHECK_THAT(safetensors_error(little_endian(100'000'001, 8) + good + data),
               contains("announces a header of 100000001"));
    CHECK_THAT(safetensors_error(little_endian(good.size() + 9, 8) + good + data), contains("is truncated"));
    CHECK_THAT(safetensors_error(little_endian(0, 8)), contains("no '{' at byte 8"));
    CHECK_THAT(safetensors_error(std::string(7, '\0')), contains("has 7 bytes, fewer than the 8"));
    CHECK_THAT(safetensors_error(""), contains("has 0 bytes"));
  }
  SECTION("invalid headers") {
    auto header = [&](const std::string& json) { return safetensors_error(safetensors_file(json, data)); };
    auto tensor = [&](const std::string& fields) {
      return header(std::string("{\"a\":{").append(fields).append("}}"));
    };
    CHECK_THAT(header("[]"), contains("not a safetensors file"));
    CHECK_THAT(header("{\"a\""), contains("not JSON"));
    CHECK_THAT(header(good + "{}"), contains("not JSON"));
    CHECK_THAT(header("{\"a\xff\":1}"), contains("not JSON"));
    for (const char* hidden : {"", "{}", "not even JSON"})  // the header is read to its full length, not to a NUL
      CHECK_THAT(header(good + '\0' + hidden), contains("NUL at its byte " + std::to_string(good.size())));
    CHECK_THAT(header(std::string("{\"a\0\":1}", 8)), contains("NUL at its byte 3"));
    CHECK_THAT(header("{\"a\":1}"), contains("a number"));
    CHECK_THAT(header("{\"a\":[1]}"), contains("a list"));
    CHECK_THAT(header("{\"a\":null}"), contains("null"));
    CHECK_THAT(header("{\"a\":\"x\"}"), contains("a string"));
    CHECK_THAT(header(good.substr(0, good.size() - 1) + "," + good.substr(1)), contains("'a' appears twice"));
    CHECK_THAT(header(R"({"__metadata__":{"a":1}})"), contains("a number"));
    CHECK_THAT(header(R"({"__metadata__":{"a":["1"]}})"), contains("a list under '__metadata__'"));
    CHECK_THAT(header(R"({"__metadata__":{"a":true}})"), contains("a boolean"));
    CHECK_THAT(tensor(R"("dtype":["F32"])"), contains("a list under 'a'"));
    CHECK_THAT(tensor(R"("shape":[[2]])"), contains("a list under 'a'"));
    CHECK_THAT(tensor(R"("shape":{})"), contains("an object under 'a'"));
    CHECK_THAT(tensor(R"("shape":"2")"), contains("a string under 'a'"));
    CHECK_THAT(tensor(R"("shape":2)"), contains("a number under 'a'"));
    CHECK_THAT(tensor(R"("dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8])"),
               contains("is too large for this machine"));
    CHECK_THAT(tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"),
               contains("has the size 9223372036854775808"));
    CHECK_THAT(header(R"({"__metadata__":{"a":"1","a":"2"}})"), contains("twice"));
    CHECK_THAT(header(R"({"__metadata__":{"a":{}}})"), contains("an object"));
    CHECK_THAT(header(std::string(1000, '{')), contains("not JSON"));
    CHECK_THAT(header("{\"a\":{\"shape\":" + std::string(100000, '[')), contains("a list"));
    CHECK_THAT(tensor(""), contains("exactly dtype, shape and data_offsets"));
    CHECK_THAT(tensor(R"("dtype":"F32","shape":[2])"), contains("exactly"));
    CHECK_THAT(tensor(R"("dtype":"F32","dtype":"F32")"), contains("'dtype' twice"));
    CHECK_THAT(tensor(R"("dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8])"),
               contains("tensor 'a' has dtype 'F8_E4M3'; known are F32"));
    CHECK_THAT(tensor(R"("dtype":3)"), contains("a number"));
    const std::string long_name(100'000, 'x');
    CHECK(header("{\"" + long_name + "\":{}}").size() < 1000);  // long names are shortened
    CHECK(tensor("\"dtype\":\"" + long_name + "\"").size() < 1000);
    CHECK(tensor("\"" + long_name + "\":1").size() < 1000);
    CHECK_THAT(tensor(R"("colour":3)"), contains("unknown field 'colour'"));
    CHECK_THAT(tensor(R"("shape":["2"])"), contains("a string"));
    CHECK_THAT(tensor(R"("shape":[-2])"), contains("negative"));
    CHECK_THAT(tensor(R"("shape":[2.0])"), contains("not a 64-bit integer"));
    CHECK_THAT(tensor(R"("shape":[18446744073709551616])"), contains("not a 64-bit integer"));
    CHECK_THAT(tensor(R"("shape":[18446744073709551615])"), contains("has the size"));
    CHECK_THAT(tensor(R"("shape":[1,1,1,1,1,1,1,1,1])"), contains("more than 8 dimensions"));
    CHECK_THAT(tensor(R"("data_offsets":[0])"), contains("1 data_offsets"));
    CHECK_THAT(tensor(R"("data_offsets":[0,1,2])"), contains("3 data_offsets"));
  }
  SECTION("offsets") {
    auto entry = [](const std::string& name, const std::string& shape, const std::string& offsets) {
      return std::string("\"").append(name) + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" +
             offsets + "]}";
    };
    auto file = [&](const std::string& entries) {
      return safetensors_error(safetensors_file(std::string("{").append(entries).append("}"), data));
    };
    CHECK_THAT(file(entry("a", "2", "8,0")), contains("[8, 0] in 8 bytes"));
    CHECK_THAT(file(entry("a", "2", "0,9")), contains("[0, 9] in 8 bytes"));
    CHECK_THAT(file(entry("a", "2", "18446744073709551608,18446744073709551615")), contains("in 8 bytes"));
    CHECK_THAT(file(entry("a", "3", "0,8")), contains("has 12 bytes, but its data_offsets span 8"));
    CHECK_THAT(file(entry("a", "4611686018427387904", "0,8")), contains("too large"));
    CHECK_THAT(file(entry("a", "4294967296,4294967296", "0,8")), contains("too large"));
    CHECK_THAT(file(entry("a", "0,4611686018427387904,4611686018427387904", "0,0")), contains("too large"));
    CHECK_THAT(file(entry("a", "2", "0,8") + "," + entry("b", "1", "4,8")), contains("the tensors before it end at 8"));
    // Of two tensors that begin at the same byte, the longer one is named, in any order of the header.
    for (const std::string& entries :
         {entry("a", "1", "0,4") + "," + entry("b", "2", "0,8"), entry("b", "2", "0,8") + "," + entry("a", "1", "0,4")})
      CHECK_THAT(file(entries), contains("tensor 'b' begins at byte 0, but the tensors before it end at 4"));
    CHECK_THAT(file(entry("a", "1", "4,8")), contains("begins at byte 4"));
    CHECK_THAT(file(entry("a", "1", "0,4")), contains("4 bytes that belong to no tensor"));
    CHECK(file(entry("b", "2", "0,8") + "," + entry("z", "0", "0,0") + "," + entry("y", "0", "8,8")) == "(no error)");
  }
  SECTION("booleans") {
    CHECK_THAT(safetensors_error(
                   safetensors_file(R"({"a":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})", "\1\1\1\1\1\1\1\2")),
               contains("element 7 of a boolean array is 2"));
  }
}
