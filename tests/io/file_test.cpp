#include <sys/stat.h>

#include <csignal>

#include <gradus/core/array/array.h>
#include <gradus/core/io/gzip.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;
using namespace std::string_literals;

namespace {

/// The contents of a gzip file, read in pieces of the given size.
std::string gunzip(const std::string& packed, size_t piece = 1000) {
  io::GzipReader reader(bytes_of(packed), "name");
  std::string text, next(piece, '\0');
  do {
    next.resize(reader.read(next.data(), piece));
    text += next;
  } while (next.size() == piece);
  return text;
}

std::string text_of(const io::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

TEST_CASE("files are written whole and read back", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("letters");
  io::write_file(path, "first");
  io::write_file(path, "second");
  CHECK(text_of(io::read_file(path)) == "second");
  CHECK(directory.count() == 1);  // no temporary file is left
  io::write_file(path, "");
  CHECK(io::read_file(path).empty());
}

TEST_CASE("without commit() the old file stays and no temporary file is left", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("weights");
  io::write_file(path, "old");
  {
    io::AtomicFile file(path);
    file.write("new", 3);
    CHECK(directory.count() == 2);
    CHECK(text_of(io::read_file(path)) == "old");
  }
  CHECK(directory.count() == 1);
  CHECK(text_of(io::read_file(path)) == "old");
}

TEST_CASE("file errors name the path and the cause", "[io]") {
  const TemporaryDirectory directory;
  const std::string missing = directory.file("missing");
  CHECK_THROWS_AS(io::read_file(missing), IoError);
  CHECK_THROWS_WITH(io::read_file(missing), contains(missing) && contains("No such file"));
  CHECK_THROWS_WITH(io::read_file(directory.path().string()), contains("not a regular file"));
  try {
    io::read_file("/" + std::string(100'000, 'x'));
  } catch (const IoError& error) { CHECK(std::strlen(error.what()) < 1000); }  // long names are shortened
  CHECK_THROWS_WITH(io::write_file(directory.file("no/such/folder"), "x"), contains("No such file"));
  CHECK_THROWS_WITH(io::write_file(directory.path().string(), "x"), contains(directory.path().string()));

  const std::string pipe = directory.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(io::read_file(pipe), contains("not a regular file"));

  const std::string path = directory.file("ten");
  io::write_file(path, "0123456789");
  CHECK(io::read_file(path, 10).size() == 10);
  CHECK_THROWS_WITH(io::read_file(path, 9), contains("has 10 bytes; at most 9"));
  const io::InputFile file(path);
  char two[2];
  file.read_at(8, two, 2);
  CHECK(std::string(two, 2) == "89");
  CHECK_THROWS_WITH(file.read_at(9, two, 2), contains("ends at byte 10, 1 bytes too early"));
  CHECK_THROWS_WITH(file.read_at(11, two, 2), contains("ends at byte 11, 2 bytes too early"));
  CHECK_NOTHROW(file.read_at(10, two, 0));
  CHECK((file.size() == 10 && file.path() == path));
  CHECK(text_of(file.start(3)) == "012");
  CHECK(text_of(file.start(11)) == "0123456789");
}

TEST_CASE("a file grows by what is appended, and the text keeps what was not", "[io]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("log");
  {
    io::AppendFile file, second;
    REQUIRE(file.create(path));
    CHECK_FALSE(second.create(path));
    CHECK_THROWS_WITH(second.create(directory.file("no/log")), contains("cannot write '") && contains("No such file"));
    for (std::string text : {"one", ", two", ""}) {
      file.append(text);
      CHECK(text.empty());
    }
    CHECK(text_of(io::read_file(path)) == "one, two");
  }
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit = {10, 10};  // bytes of a file
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    io::AppendFile file;
    if (!file.create(path + "2")) _exit(2);
    std::string text = "0123456789rest";
    try {
      file.append(text);
    } catch (const IoError& error) {
      _exit(text == "rest" && std::string(error.what()).find("log2': File too large") != std::string::npos ? 0 : 3);
    }
    _exit(4);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("gzip files are decompressed", "[io]") {
  std::string text;
  for (int64_t i = 0; i < 100000; ++i) text += static_cast<char>('a' + i * i % 23);
  const std::string packed = gzip(text);
  for (const size_t piece : {size_t{1} << 20, size_t{4096}, size_t{7}}) {
    CHECK(gunzip(packed, piece) == text);
    CHECK(gunzip(packed + gzip("") + gzip("tail"), piece) == text + "tail");  // three members
    CHECK(gunzip(gzip(""), piece).empty());
  }
  for (const char* other : {"plain", "\x1f", "\x1f\x8c", "\x1e\x8b", ""})
    CHECK_THROWS_WITH(gunzip(other), contains("'name' is not a gzip file"));
  CHECK_THROWS_WITH(gunzip(packed + "garbage"), contains("7 bytes after"));
  for (size_t length = 2; length < packed.size(); length += length < 40 ? 1 : 97)
    CHECK_THROWS_AS(gunzip(packed.substr(0, length)), IoError);
  std::string broken = packed;
  broken[packed.size() - 6] ^= 1;  // one bit of the checksum
  CHECK_THROWS_WITH(gunzip(broken), contains("bad gzip data"));
}

TEST_CASE("gzip data without their end are an error when more is read", "[io]") {
  const std::string text(1000, 'x'), packed = gzip(text);
  for (size_t missing = 1; missing <= 8; ++missing) {  // the trailer
    const std::string cut = packed.substr(0, packed.size() - missing);
    io::GzipReader reader(bytes_of(cut), "name");
    std::string read(1000, '?');
    CHECK(reader.read(read.data(), 1000) == 1000);
    CHECK(read == text);
    CHECK_THROWS_WITH(reader.read(read.data(), 1), contains("'name' is truncated: its gzip data does not end"));
  }
  io::GzipReader reader(bytes_of(packed), "name");
  std::string read(2000, '?');
  CHECK(reader.read(read.data(), 0) == 0);
  CHECK(reader.read(read.data(), 2000) == 1000);
  CHECK(reader.read(read.data(), 2000) == 0);
}

TEST_CASE("the size in a gzip trailer is known only if there is one member", "[io]") {
  const auto size_of = [](const std::string& bytes) { return io::GzipReader(bytes_of(bytes), "n").size_in_trailer(); };
  for (const size_t size : {0, 1, 300, 70000}) CHECK(size_of(gzip(std::string(size, 'x'))) == size);
  const std::string packed = gzip("some text");
  CHECK_FALSE(size_of(packed + packed).has_value());
  // A header of 10 bytes and a trailer of 8.
  const std::string header("\x1f\x8b\x08\0\0\0\0\0\0\3", 10), trailer("....\4\3\2\1", 8);
  CHECK(size_of(header + trailer) == 0x01020304u);
  for (size_t length = 2; length < 18; ++length) CHECK_FALSE(size_of((header + trailer).substr(0, length)).has_value());
  // Another member may begin anywhere after the header. The highest three bits of its flags are 0.
  const std::string member("\x1f\x8b\x08\x1f", 4);
  for (size_t at = 0; at <= 20; ++at)
    CHECK_FALSE(size_of(header + std::string(at, '.') + member + std::string(20 - at, '.')).has_value());
  for (const std::string& other : {"\x1f\x8b\x08\x20"s, "\x1f\x8b\x08\x80"s, "\x1f\x8b\x07\0"s, "\x1f\x8a\x08\0"s})
    CHECK(size_of(header + "........" + other + "..\4\3\2\1") == 0x01020304u);
}
