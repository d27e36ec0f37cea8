#include <sys/stat.h>

#include <csignal>

#include <gradus/core/array/array.h>
#include <gradus/core/io/gzip.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;

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
  CHECK_THROWS_WITH(gunzip("plain"), contains("'name' is not a gzip file"));
  CHECK_THROWS_WITH(gunzip(packed + "garbage"), contains("7 bytes after"));
  for (size_t length = 2; length < packed.size(); length += length < 40 ? 1 : 97)
    CHECK_THROWS_AS(gunzip(packed.substr(0, length)), IoError);
  std::string broken = packed;
  broken[packed.size() - 6] ^= 1;  // one bit of the checksum
  CHECK_THROWS_WITH(gunzip(broken), contains("bad gzip data"));
}
