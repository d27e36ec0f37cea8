#include <gradus/data/datasets/mnist.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// Returns an IDX file with this element type, these sizes and data.
std::string idx_file(int type, const std::vector<uint32_t>& sizes, const std::string& data) {
  std::string file = {0, 0, static_cast<char>(type), static_cast<char>(sizes.size())};
  for (uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) file.push_back(static_cast<char>(size >> shift & 0xff));
  return file + data;
}

std::string error_of(const std::string& file) {
  try {
    data::parse_idx(bytes_of(file), "test");
  } catch (const IoError& error) { return error.what(); }
  return "(no error)";
}

}  // namespace

TEST_CASE("idx: reads every element type, big-endian", "[data][idx]") {
  const Array bytes = data::parse_idx(bytes_of(idx_file(8, {2, 3}, "abcdef")), "memory");
  CHECK(bytes.shape() == Shape{2, 3});
  CHECK(values_of<uint8_t>(bytes) == std::vector<uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'});
  const Array ints =
      data::parse_idx(bytes_of(idx_file(0x0C, {2}, std::string("\0\0\1\2\xff\xff\xff\xfe", 8))), "memory");
  CHECK(values_of<int32_t>(ints) == std::vector<int32_t>{258, -2});
  const Array floats = data::parse_idx(bytes_of(idx_file(0x0D, {1}, std::string("\x3f\xc0\0\0", 4))), "memory");
  CHECK(values_of<float>(floats) == std::vector<float>{1.5f});
  const Array doubles =
      data::parse_idx(bytes_of(idx_file(0x0E, {1, 1}, std::string("\xc0\0\0\0\0\0\0\0", 8))), "memory");
  CHECK(values_of<double>(doubles) == std::vector<double>{-2});
  CHECK(data::parse_idx(bytes_of(idx_file(8, {}, "x")), "memory").shape() == Shape{});
  CHECK(data::parse_idx(bytes_of(idx_file(8, {0, 28, 28}, "")), "memory").numel() == 0);
}

TEST_CASE("idx: malformed files are errors", "[data][idx]") {
  const std::string good = idx_file(8, {2, 3}, "abcdef");
  REQUIRE(error_of(good) == "(no error)");
  for (size_t length = 0; length < good.size(); ++length) CHECK(error_of(good.substr(0, length)) != "(no error)");
  CHECK_THAT(error_of(good + "x"), contains("needs 6 bytes of data, the file has more"));
  for (const char* start : {"PK\3\4zip", "\1\0\x08\1", "\0\1\x08\1"})
    CHECK_THAT(error_of(std::string(start, 4) + good.substr(4)), contains("not an IDX file"));
  CHECK_THAT(error_of(idx_file(9, {1}, "x")), contains("element type 9"));
  CHECK_THAT(error_of(idx_file(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "x")), contains("9 dimensions"));
  CHECK_THAT(error_of(idx_file(8, {0xffffffff}, "x")), contains("needs 4294967295 bytes"));
  CHECK_THAT(error_of(idx_file(0x0E, {0xffffffff, 0xffffffff, 0xffffffff}, "x")), contains("too large"));
  CHECK_THAT(error_of(idx_file(8, {0, 0xffffffff, 0xffffffff, 0xffffffff}, "")), contains("too large"));
  CHECK_THROWS_WITH(data::read_idx("/nowhere/file"), contains("/nowhere/file"));
}

TEST_CASE("idx: a gzipped file is decompressed only up to the size in its header", "[data][idx][processes]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.gz");
  const auto write = [&](const std::string& idx) { io::write_file(path, gzip(idx)); };
  write(idx_file(8, {2, 3}, "abcdef"));
  CHECK(values_of<uint8_t>(data::read_idx(path)) == std::vector<uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'});
  write(idx_file(8, {2, 3}, "abcde"));
  CHECK_THROWS_WITH(data::read_idx(path), contains(path) && contains("needs 6 bytes of data, the file has 5"));
  write(idx_file(8, {2, 3}, std::string(size_t{128} << 20, '\0')));  // 130 KB of gzip
  CHECK_THROWS_WITH(data::read_idx(path), contains(path) && contains("needs 6 bytes of data, the file has more"));
  CHECK(peak_memory_of([&] { data::read_idx(path); }) < 16);
  write(idx_file(8, {1 << 30}, "abc"));  // no gzip file of this size can contain so much data
  CHECK_THROWS_WITH(data::read_idx(path), contains("needs 1073741824 bytes of data, the file has at most"));
}

TEST_CASE("idx: wrong sizes in a gzipped file cost neither memory nor time", "[data][idx][processes]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.gz");
  constexpr uint32_t kClaimed = 0x7fffffff;
  std::string noise(size_t{3} << 20, '\0');
  uint32_t state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  const auto refused = [&](const std::string& bytes, const char* message) {
    io::write_file(path, bytes);
    CHECK_THROWS_WITH(data::read_idx(path), contains(path) && contains(message));
    CHECK(peak_memory_of([&] { data::read_idx(path); }) < 48);
  };
  // These files have too little data. In the first, the gzip trailer shows it; in the second, another gzip member could
  // follow; the third has a wrong trailer.
  const std::string small = gzip(idx_file(8, {kClaimed}, noise));
  refused(small, "its gzip trailer says 3145736");
  refused(gzip(idx_file(8, {kClaimed}, noise)) + gzip(noise), "the file has 6291456");
  std::string lies = small;
  lies.replace(lies.size() - 4, 4, little_endian(kClaimed + uint64_t{8}, 4));
  refused(lies, "gzip");
  // This file has far too much data: 512 MiB, compressed to half a megabyte.
  const std::string zeros = gzip(idx_file(8, {400'000'000}, std::string(size_t{512} << 20, '\0')));
  refused(zeros, "its gzip trailer says 536870920");
  // Files with the correct amount of data are read, in one gzip member and in two.
  io::write_file(path, gzip(idx_file(8, {15 << 20}, noise + noise + noise + noise)) + gzip(noise));
  CHECK(data::read_idx(path).numel() == 15 << 20);
  const std::string many(17 << 20, 'z');  // more than memory is allocated for without a known size
  for (const std::string& bytes :
       {gzip(idx_file(8, {17 << 20}, many)), gzip(idx_file(8, {17 << 20}, many.substr(5))) + gzip(many.substr(0, 5))}) {
    io::write_file(path, bytes);
    const Array read = data::read_idx(path);
    CHECK(read.numel() == 17 << 20);
    CHECK(std::memcmp(read.data<uint8_t>(), many.data(), many.size()) == 0);
  }
  io::write_file(path, gzip(idx_file(8, {15 << 20}, noise + noise + noise + noise + noise)));
  const Array whole = data::read_idx(path);
  CHECK(std::memcmp(whole.data<uint8_t>() + (12 << 20), noise.data(), noise.size()) == 0);
}
