// Archives as written by tar, GNU tar and pax, and damaged ones.
#include <sys/mman.h>

#include <cstdio>

#include <gradus/core/io/tar.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;

namespace {

constexpr size_t kBlock = 512;

// The header of a file of the given type. `fields` are written over it at their byte offsets; the checksum is correct.
std::string header(const std::string& name, size_t size, char type = '0',
                   const std::vector<std::pair<size_t, std::string>>& fields = {}) {
  std::string block(kBlock, '\0');
  char octal[13];
  std::snprintf(octal, sizeof(octal), "%011zo", size);
  block.replace(0, std::min<size_t>(name.size(), 100), name.substr(0, 100));
  block.replace(124, 11, octal);
  block[156] = type;
  block.replace(257, 8, std::string("ustar\00000", 8));
  for (const auto& [at, text] : fields) block.replace(at, text.size(), text);
  block.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(octal, sizeof(octal), "%06o", sum);
  block.replace(148, 7, std::string(octal, 7));
  return block;
}

std::string padded(std::string text) { return text.append((kBlock - text.size() % kBlock) % kBlock, '\0'); }
std::string entry(const std::string& name, const std::string& data, char type = '0') {
  return header(name, data.size(), type) + padded(data);
}
const std::string kEnd(2 * kBlock, '\0');

// The fields that TarWriter fills besides those of header(): permissions, user, group and time.
const std::vector<std::pair<size_t, std::string>> kWrittenFields = {
    {100, "0000644"}, {108, "0000000"}, {116, "0000000"}, {136, "00000000000"}};

io::TarReader reader_of(const std::string& archive, uint64_t offset = 0) {
  const auto read_at = [&archive](uint64_t at, void* to, size_t bytes) {
    REQUIRE((at <= archive.size() && bytes <= archive.size() - at));
    std::memcpy(to, archive.data() + at, bytes);
  };
  return io::TarReader(read_at, archive.size(), "test.tar", offset);
}

// The files of an archive as "name=data name=data …".
std::string contents(const std::string& archive, uint64_t offset = 0) {
  io::TarReader reader = reader_of(archive, offset);
  std::string all;
  while (const auto file = reader.next())
    all += file->name + "=" + std::string(reinterpret_cast<const char*>(file->data.data()), file->data.size()) + " ";
  CHECK_FALSE(reader.next());  // next() keeps returning nothing at the end
  return all;
}

std::string archive_error(const std::string& archive) {
  try {
    contents(archive);
  } catch (const IoError& error) { return error.what(); }
  return "(no error)";
}

std::string as_text(const io::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

TEST_CASE("tar: written archives are read, starting at any file", "[io][tar]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.tar"),
                    long_name = std::string(60, 'd') + "/" + std::string(95, 'n') + ".txt";
  io::TarWriter writer(path);
  writer.add("a.txt", "one");
  writer.add("empty", "");
  writer.add(long_name, std::string(kBlock, 'x'));
  writer.add("b/c.txt", std::string(kBlock + 1, 'y'));
  CHECK_THROWS_AS(writer.add("../up", "1"), ValueError);
  CHECK_FALSE(std::filesystem::exists(path));
  writer.commit();
  const std::string archive = as_text(io::read_file(path));
  CHECK(archive.size() % kBlock == 0);
  // The bytes of a header that no field uses are zeros, so the same files always make the same archive.
  for (const auto& [block, name, size] : {std::tuple(0, "a.txt", 3), {2, "empty", 0}, {5, long_name.c_str(), 512}}) {
    INFO(name);
    std::string written = archive.substr(block * kBlock, kBlock), expected = header(name, size, '0', kWrittenFields);
    CHECK(written.erase(148, 8) == expected.erase(148, 8));  // without the checksum, which has two spellings
  }
  const std::string rest =
      long_name + "=" + std::string(kBlock, 'x') + " b/c.txt=" + std::string(kBlock + 1, 'y') + " ";
  CHECK(contents(archive) == "a.txt=one empty= " + rest);
  io::TarReader reader = reader_of(archive);
  reader.next(), reader.next();
  CHECK(reader.offset() == 3 * kBlock);
  CHECK(reader.next()->offset == 3 * kBlock);  // where the extended header begins
  CHECK(contents(archive, 3 * kBlock) == rest);
  // Other programs read the archive too.
  CHECK(std::system(("tar -tf '" + path + "' > '" + directory.file("list") + "'").c_str()) == 0);
  CHECK(as_text(io::read_file(directory.file("list"))) == "a.txt\nempty\n" + long_name + "\nb/c.txt\n");
}

TEST_CASE("tar: formats and kinds of files", "[io][tar]") {
  const std::string name(150, 'n');
  CHECK(contents(kEnd).empty());
  CHECK(contents(entry("x", "1") + std::string(kBlock, '\0')) == "x=1 ");  // one block of zeros is enough
  CHECK(contents(entry("x", "1", '\0') + kEnd) == "x=1 ");
  // Without the ustar magic the prefix field is ignored.
  CHECK(contents(header("x", 0, '0', {{257, std::string(8, '\0')}, {345, "junk"}}) + kEnd) == "x= ");
  for (const char* prefix : {"d", "dir", "a/b"})
    CHECK(contents(header("x", 0, '0', {{345, prefix}}) + kEnd) == std::string(prefix) + "/x= ");
  CHECK(contents(header("x", 0, '0', {{345, std::string(155, 'p')}}) + kEnd) == std::string(155, 'p') + "/x= ");
  CHECK(contents(entry("././@LongLink", name + std::string(1, '\0'), 'L') + entry("short", "1") + kEnd) ==
        name + "=1 ");
  CHECK(contents(entry("pax", "18 mtime=12345678\n160 path=" + name + "\n", 'x') + entry("short", "1") +
                 entry("next", "2") + kEnd) == name + "=1 next=2 ");
  CHECK(contents(entry("pax", "10 size=3\n", 'x') + header("x", 0) + padded("abc") + kEnd) == "x=abc ");
  CHECK(contents(entry("pax", "13 comment=x\n", 'g') + entry("x", "1") + kEnd) == "x=1 ");
  CHECK(reader_of(header("x", 0)).next()->data.empty());  // the archive may end right after an empty file
  const std::string base256 = std::string("\x80\0\0\0\0\0\0\0\0\0\0\x03", 12);
  CHECK(contents(header("x", 0, '0', {{124, base256}}) + padded("abc") + kEnd) == "x=abc ");
  CHECK(contents(header("x", 0, '0', {{124, "         3  "}}) + padded("abc") + kEnd) == "x=abc ");
  for (const char blank : {' ', '\0'})  // a size without digits is 0
    CHECK(contents(header("x", 0, '0', {{124, std::string(12, blank)}}) + entry("y", "1") + kEnd) == "x= y=1 ");
  // Links, devices, folders and pipes have no data, whatever size they state; an unknown type has data.
  for (const char type : {'1', '2', '3', '4', '5', '6'})
    CHECK(contents(header("link", 700, type) + entry("x", "1") + kEnd) == "x=1 ");
  CHECK(contents(entry("v", "data", 'V') + entry("x", "1") + kEnd) == "x=1 ");
}

TEST_CASE("tar: names of any length are written and read", "[io][tar]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.tar");
  io::TarWriter writer(path);
  std::vector<std::string> names;
  std::string expected;
  for (size_t length = 4; length < 1100; length += length < 95 || (length > 105 && length < 980) ? 31 : 1) {
    names.push_back(std::to_string(length) + std::string(length - std::to_string(length).size(), 'n'));
    writer.add(names.back(), "1");
    expected += names.back() + "=1 ";
  }
  writer.commit();
  const std::string archive = as_text(io::read_file(path));
  CHECK(contents(archive) == expected);
  for (const std::string& name : names) {  // longer ones than 100 bytes are in a record that begins with its length
    CAPTURE(name.size());
    const size_t at = archive.find(" path=" + name + "\n");
    CHECK((at == std::string::npos) == (name.size() <= 100));
    if (at == std::string::npos) continue;
    const std::string length = archive.substr(archive.rfind('\0', at) + 1, at - archive.rfind('\0', at) - 1);
    CHECK(length == std::to_string(length.size() + name.size() + 7));
  }
}

TEST_CASE("tar: each size has a limit", "[io][tar]") {
  // Of a file, an extended header, and a number in a header. The data are missing here.
  CHECK_THAT(archive_error(header("x", 1 << 28) + kEnd), contains("truncated: 268435456 bytes are missing"));
  CHECK_THAT(archive_error(header("x", (1 << 28) + 1) + kEnd), contains("a file of 268435457 bytes in the archive"));
  for (const char type : {'L', 'K', 'x', 'g'}) {
    CHECK_THAT(archive_error(header("pax", 1 << 20, type) + kEnd), contains("truncated: 1048576 bytes are missing"));
    CHECK_THAT(archive_error(header("pax", (1 << 20) + 1, type) + kEnd), contains("a file of 1048577 bytes"));
  }
  const auto number_error = [](std::string field) {
    field.insert(0, 12 - field.size(), '\0');
    field[0] = '\x80';
    return archive_error(header("x", 0, '0', {{124, field}}) + kEnd);
  };
  CHECK_THAT(number_error("\x7f" + std::string(7, '\xff')), contains("a file of 9223372036854775807 bytes"));
  CHECK_THAT(number_error("\x80" + std::string(7, '\0')), contains("a number of more than 63 bits"));
  CHECK_THAT(number_error("\1" + std::string(8, '\0')), contains("a number of more than 63 bits"));
  CHECK_THAT(archive_error(header("x", 0, '0', {{124, "\x81" + std::string(11, '\0')}}) + kEnd),
             contains("a negative or far too large number"));
  // An archive that begins after its end, and names that only a whole part ".." spoils.
  CHECK_THROWS_WITH(reader_of(kEnd, kEnd.size() + 1).next(), contains("the archive is truncated"));
  CHECK_THROWS_WITH(reader_of(kEnd, kEnd.size()).next(), contains("truncated: 512 bytes are missing from here on"));
  for (const char* name : {"...", "a/...", "..a/b", "a/b..", "a//b", "./a"})
    CHECK(contents(entry(name, "1") + kEnd) == std::string(name) + "=1 ");
  // GNU's magic has no prefix; type 7 is a file like any other; other types have data, which are skipped.
  CHECK(contents(header("x", 0, '0', {{257, "ustar  "}, {345, "times"}}) + kEnd) == "x= ");
  CHECK(contents(entry("x", "1", '7') + kEnd) == "x=1 ");
  for (const char type : {'8', 'D', 'M'}) CHECK(contents(entry("v", "data", type) + entry("x", "1") + kEnd) == "x=1 ");
  // Extensions are for the next file only, also if that file is skipped.
  CHECK(contents(entry("pax", "11 path=yy\n", 'x') + header("link", 0, '1') + entry("x", "1") + kEnd) == "x=1 ");
  CHECK(contents(entry("pax", "11 path=yy\n", 'g') + entry("x", "1") + kEnd) == "x=1 ");
  CHECK(contents(entry("long", std::string("yy\0", 3), 'K') + entry("x", "1") + kEnd) == "x=1 ");
}

TEST_CASE("tar: a file that is too large for readers is not written", "[io][tar]") {
  const TemporaryDirectory directory;
  io::TarWriter writer(directory.file("a.tar"));
  // Nothing can be read from this memory, so the largest file that is accepted is an error of the system.
  const size_t most = size_t{1} << 28;
  void* const memory = mmap(nullptr, most + 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  const auto* const bytes = static_cast<const std::byte*>(memory);
  CHECK_THROWS_WITH(writer.add("x", {bytes, most + 1}), contains("'x' has 268435457 bytes; at most 268435456 fit"));
  CHECK_THROWS_WITH(writer.add("x", {bytes, most}), contains("Bad address"));
  munmap(memory, most + 1);
}

TEST_CASE("tar: damaged and hostile archives are errors", "[io][tar]") {
  const std::string archive = entry("first", "1") + entry("second", std::string(600, 'x')) + kEnd;
  // Truncated at any point. Only one of the two blocks at the end may be missing.
  for (size_t size = 0; size < archive.size() - kBlock; size += 64) {
    INFO("cut to " << size);
    CHECK_THAT(archive_error(archive.substr(0, size)), contains("'test.tar', byte ") && contains("truncated"));
  }
  for (size_t i = 0; i < kBlock; ++i) {
    if (i == 155) continue;  // this byte is after the end of the checksum
    std::string damaged = archive;
    damaged[2 * kBlock + i] ^= 1;
    INFO("byte " << i);
    CHECK_THAT(archive_error(damaged), contains("'test.tar', byte 1024: "));
  }
  const auto size_error = [](const std::string& size) {
    return archive_error(entry("a", "1") + header("x", 0, '0', {{124, size}}) + padded("abc") + kEnd);
  };
  CHECK_THAT(size_error("77777777777"), contains("8589934591 bytes") && contains("at most 268435456"));
  CHECK_THAT(size_error("00000010000"), contains("truncated: 4096 bytes are missing"));
  CHECK_THAT(size_error("-0000000001"), contains("no octal number"));
  CHECK_THAT(size_error("00000000008"), contains("no octal number"));
  CHECK_THAT(size_error(std::string(12, '\xff')), contains("negative"));
  CHECK_THAT(size_error("\x80" + std::string(11, '\xff')), contains("more than 63 bits"));
  CHECK_THAT(size_error(std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12)), contains("at most 268435456"));
  CHECK(peak_memory_of([&] { contents(header("x", (1 << 28) - 1) + kEnd); }) < 100);
  for (const char* name : {"/etc/passwd", "../x", "a/../x", "..", "a/.."})
    CHECK_THAT(archive_error(entry(name, "1") + kEnd), contains("cannot be called"));
  CHECK_THAT(archive_error(entry("", "1") + kEnd), contains("cannot be called"));
  CHECK(contents(entry("a..b/..c", "1") + kEnd) == "a..b/..c=1 ");
  for (const std::string record :
       {"", "x", "5", "99 path=x\n", "9 path=ab\n", "0 path=\n", "11 path=abcd", "-1 path=x\n",
        "99999999999999999999999 path=x\n", "7 path\n", "9 size=-1\n", "10 size=1x\n"}) {
    INFO(record);
    CHECK((record.empty() || archive_error(entry("pax", record, 'x') + entry("x", "1") + kEnd) != "(no error)"));
  }
  CHECK_THAT(archive_error(entry("pax", std::string("12 path=a\0b\n", 12), 'x') + entry("x", "1") + kEnd),
             contains("cannot be called"));
  CHECK_THAT(archive_error(header("pax", 1 << 21, 'x') + kEnd), contains("at most 1048576"));
  CHECK_THAT(archive_error(header("x", 0, 'S') + kEnd), contains("sparse"));
  CHECK_THAT(archive_error(entry("pax", "22 GNU.sparse.major=1\n", 'x') + entry("x", "1") + kEnd), contains("sparse"));
}
