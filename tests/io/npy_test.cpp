#include <gradus/core/io/npy.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;

namespace {

std::string file_of(const std::string& header, const std::string& data, int version = 1) {
  return std::string("\x93NUMPY") + static_cast<char>(version) + '\0' +
         little_endian(header.size(), version == 1 ? 2 : 4) + header + data;
}

std::string error_of(const std::string& file) {
  try {
    io::parse_npy(bytes_of(file), "test");
  } catch (const IoError& error) { return error.what(); }
  return "(no error)";
}

std::string header_of(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': (" + shape + "), }\n";
}

}  // namespace

TEST_CASE("npy: writes NumPy's bytes", "[io][npy]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("c.npy");
  io::save_npy(path, array_of<float>({2, 3}, {0, 1, 2, 3, 4, 5}));
  // The bytes that numpy.save (1.24) writes for the same array.
  const std::string expected = std::string("\x93NUMPY\x01\0v\0", 10) +
                               "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + std::string(58, ' ') +
                               "\n" + std::string("\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@", 24);
  const io::Bytes written = io::read_file(path);
  CHECK(std::string(reinterpret_cast<const char*>(written.data()), written.size()) == expected);
  CHECK(values_of<float>(io::load_npy(path)) == std::vector<float>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("npy: every dtype, shape and stride survives", "[io][npy]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x.npy");
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (dtype == DType::bf16) continue;
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0}, Shape{2, 0, 3}, Shape{1, 2, 1, 2, 1, 2, 1, 2}}) {
      const Array array = Array::empty(shape, dtype);
      char* bytes = static_cast<char*>(array.data());
      for (size_t k = 0; k < array.nbytes(); ++k) bytes[k] = static_cast<char>(dtype == DType::boolean ? k % 2 : k + 1);
      io::save_npy(path, array);
      const Array back = io::load_npy(path);
      CHECK(back.dtype() == dtype);
      CHECK(back.shape() == shape);
      CHECK((array.nbytes() == 0 || std::memcmp(back.data(), bytes, array.nbytes()) == 0));
    }
  }
  io::save_npy(path, array_of<int32_t>({2, 2}, {1, 2, 3, 4}).transpose(0, 1));
  CHECK(values_of<int32_t>(io::load_npy(path)) == std::vector<int32_t>{1, 3, 2, 4});
  CHECK_THROWS_WITH(io::save_npy(path, Array::empty({1}, DType::bf16)), contains("npy has no bfloat16"));
}

TEST_CASE("npy: the data begin at a multiple of 64 bytes", "[io][npy]") {
  int64_t size = 1;
  for (int digits = 1; digits < 18; ++digits, size *= 10)
    for (const Shape& shape :
         {Shape{0, size}, Shape{size, 0, 7}, Shape{0, size, size}, Shape{1, 1, size, 0, 1, 1, 1, 1}}) {
      if (digits > 9 && shape[1] == size && shape[2 % shape.size()] == size) continue;  // too large for this machine
      const io::Bytes bytes = io::encode_npy(Array::empty(shape, DType::f64));
      CAPTURE(shape);
      CHECK(bytes.size() % 64 == 0);
      CHECK(bytes.size() - 10 == static_cast<size_t>(bytes[8]) + 256 * static_cast<size_t>(bytes[9]));
      CHECK(bytes.back() == std::byte{'\n'});
      CHECK(io::parse_npy(bytes, "f").shape() == shape);
    }
}

TEST_CASE("npy: Fortran order, big-endian numbers and all versions", "[io][npy]") {
  const std::string data("\0\0\0\0\0\0\0\3\0\0\0\1\0\0\0\4\0\0\0\2\0\0\0\5", 24);
  for (int version = 1; version <= 3; ++version) {
    const Array array = io::parse_npy(bytes_of(file_of(header_of(">i4", "2, 3", "True"), data, version)), "memory");
    REQUIRE(array.shape() == Shape{2, 3});
    CHECK(array.strides() == Strides{1, 2});
    for (int64_t i = 0; i < 6; ++i) CHECK(*array.select(0, i / 3).select(0, i % 3).data<int32_t>() == i);
  }
  const std::string reordered = "{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"|u1\"}";
  CHECK(values_of<uint8_t>(io::parse_npy(bytes_of(file_of(reordered, "\7")), "memory")) == std::vector<uint8_t>{7});
}

TEST_CASE("npy: hostile files are errors", "[io][npy]") {
  const std::string good = file_of(header_of("<f4", "2,"), std::string(8, '\1'));
  REQUIRE(error_of(good) == "(no error)");
  for (size_t length = 0; length < good.size(); ++length) CHECK(error_of(good.substr(0, length)) != "(no error)");
  CHECK_THAT(error_of(good + "x"), contains("needs 8 bytes of data, the file has 9"));
  CHECK_THAT(error_of("\x93NUMPZ" + good.substr(6)), contains("not an npy file"));
  for (const int version : {0, 4})
    CHECK_THAT(error_of(file_of(header_of("<f4", "2,"), std::string(8, '\1'), version)),
               contains("has npy version " + std::to_string(version)));
  CHECK_THAT(error_of(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12)), contains("truncated"));

  auto header = [](const std::string& text) { return error_of(file_of(text, std::string(8, '\1'))); };
  CHECK_THAT(header(""), contains("lacks a '{'"));
  for (const char* some : {"{}", "{'descr': '<f4', 'shape': (2,)}", "{'descr': '<f4', 'fortran_order': False}",
                           "{'fortran_order': False, 'shape': (2,)}"})
    CHECK_THAT(header(some), contains("needs descr, fortran_order and shape"));
  CHECK_THAT(error_of(std::string("\x93NUMPY\1\0\0\0", 10)), contains("the header lacks a '{'"));
  CHECK_THAT(error_of(std::string("\x93NUMPY\1\0\0", 9)), contains("not an npy file"));
  CHECK_THAT(error_of(std::string("\x93NUMPY\2\0\0\0\0", 11)), contains("truncated in its header"));
  CHECK_THAT(error_of(std::string("\x93NUMPY\2\0\0\0\0\0", 12)), contains("the header lacks a '{'"));
  CHECK_THAT(header("{'colour': 1}"), contains("unknown header field"));
  CHECK(header("{'" + std::string(60'000, 'x') + "': 1}").size() < 1000);  // long names are shortened
  CHECK_THAT(header("{'descr': '<f4', 'descr': '<f4'}"), contains("twice"));
  CHECK_THAT(header("{'descr': '<f4"), contains("string without an end"));
  CHECK_THAT(header("{'descr': ''}"), contains("not supported"));
  CHECK_THAT(header("{'descr': '<c8'}"), contains("'<c8' is not supported"));
  CHECK_THAT(header("{'descr': '|O'}"), contains("not supported"));
  CHECK_THAT(header("{'descr': '|f4'}"), contains("not supported"));
  CHECK_THAT(header("{'descr': 'xu1'}"), contains("not supported"));
  CHECK_THAT(header("{'descr': [('a', '<f4')]}"), contains("lacks a '''"));
  CHECK_THAT(header("{'fortran_order': 1}"), contains("neither True nor False"));
  CHECK_THAT(header("{'shape': (-2,)}"), contains("invalid size"));
  CHECK_THAT(header("{'shape': (-0,)}"), contains("invalid size"));
  CHECK_THAT(header("{'shape': (99999999999999999999,)}"), contains("invalid size"));
  CHECK_THAT(header("{'shape': 2}"), contains("lacks a '('"));
  CHECK_THAT(header("{'shape': (1,1,1,1,1,1,1,1,1)}"), contains("more than 8 dimensions"));
  CHECK_THAT(header(header_of("<f4", "2,") + "}"), contains("continues after its dictionary"));
  CHECK_THAT(header(header_of("<f4", "4611686018427387904,")), contains("too large"));
  CHECK_THAT(header(header_of("<f4", "4294967296, 4294967296")), contains("too large"));
  CHECK_THAT(header(header_of("<f4", "0, 4611686018427387904, 4611686018427387904")), contains("too large"));
  CHECK_THAT(header(header_of("<f4", "1000000000000,")), contains("needs 4000000000000 bytes"));
  CHECK(header(header_of("|b1", "8,")) == "(no error)");
  CHECK_THAT(error_of(file_of(header_of("|b1", "1,"), "\3")), contains("boolean"));
}

TEST_CASE("npy: sizes that Python 2 wrote end in L", "[io][npy]") {
  const std::string bytes(24, '\0');
  CHECK(io::parse_npy(bytes_of(file_of(header_of("<f4", "3L, 2L"), bytes)), "f").shape() == Shape{3, 2});
  CHECK(io::parse_npy(bytes_of(file_of(header_of("<f4", "6L,"), bytes)), "f").shape() == Shape{6});
  CHECK(io::parse_npy(bytes_of(file_of(header_of("<f4", "2 , 3L"), bytes)), "f").shape() == Shape{2, 3});
  for (const char* shape : {"L,", "6l,", "6LL,", "6 L,", "-6L,", "6L3,"}) {
    CAPTURE(shape);
    CHECK(error_of(file_of(header_of("<f4", shape), bytes)) != "(no error)");
  }
}

TEST_CASE("npy: commas and blanks in a header", "[io][npy]") {
  const auto error = [](const std::string& header) { return error_of(file_of(header, std::string(24, '\1'))); };
  for (const char* shape : {"2,3", "2,3,", " 2 , 3 , ", "2, 3\n", "6", "6,"}) {
    CAPTURE(shape);
    CHECK(error(header_of("<f4", shape)) == "(no error)");
  }
  for (const char* shape : {"2 3", ",", "2,,3", "2,3,,", ",2,3", "2;3"}) {
    CAPTURE(shape);
    CHECK(error(header_of("<f4", shape)) != "(no error)");
  }
  const std::string descr = "'descr': '<f4'", order = "'fortran_order': False", shape = "'shape': (6,)";
  CHECK(error("{" + descr + "," + order + "," + shape + "}") == "(no error)");
  CHECK(error(" \n{ " + shape + " , " + descr + " , " + order + " , } \n \n") == "(no error)");
  CHECK(error("{ \"descr\" :\n \"<f4\" , \"fortran_order\" : False , \"shape\" : ( 6 , ) }") == "(no error)");
  CHECK_THAT(error("{" + descr + order + "," + shape + "}"), contains("lacks a '}'"));
  CHECK_THAT(error("{" + descr + "," + order + "," + shape), contains("lacks a '}'"));
  CHECK_THAT(error("{," + descr + "," + order + "," + shape + "}"), contains("lacks a '''"));
  CHECK_THAT(error("{'descr' '<f4'}"), contains("lacks a ':'"));
  CHECK_THAT(error("{\"descr': '<f4'}"), contains("a string without an end"));
  CHECK(io::parse_npy(bytes_of(file_of(header_of("<f4", ""), std::string(4, '\0'))), "f").shape() == Shape{});
}
