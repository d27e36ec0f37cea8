#include <fstream>
#include <sstream>

#include <gradus/core/io/file_kind.h>
#include <gradus/core/io/npy.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/core/io/tar.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;
using namespace std::string_literals;

namespace {

/// The first local header of a zip archive, as written by torch.save and numpy.savez.
std::string zip_start(const std::string& name) {
  return "PK\3\4\0\0\x08\x08"s + std::string(18, '\0') + little_endian(name.size(), 2) + little_endian(0, 2) + name +
         std::string(100, '\0');
}

}  // namespace

TEST_CASE("a file of torch.save is recognised, and the message says how to convert it", "[io][safetensors]") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x.pt");
  const std::string now = zip_start("archive/data.pkl"),
                    then = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  const auto check = [&](const std::string& file, const char* what) {
    io::write_file(path, file);
    const auto says = [&](const auto& load) {
      CHECK_THROWS_WITH(load(), contains("'" + path + "' is not a safetensors file; ") && contains(what) &&
                                    contains("safetensors.torch.save_file("));
    };
    says([&] { return io::load_safetensors(path); });
    says([&] { return io::load_safetensors_metadata(path); });
    says([&] { return io::parse_safetensors(bytes_of(file), path); });
  };
  check(now, "it is a file of torch.save");
  for (const char* member :
       {"x/version", "x/byteorder", "x/.format_version", "x/data/0", "x/code/net.py", "x/constants.pkl"})
    check(zip_start(member), "it is a file of torch.save");
  check(then, "it is a pickle of Python, as torch.save wrote before PyTorch 1.6");
}

TEST_CASE("every reader recognises files of other formats", "[io][safetensors][npy]") {
  const auto says = [](const std::string& file, const std::string& what) {
    CAPTURE(what);
    CHECK_THROWS_WITH(io::parse_safetensors(bytes_of(file), "f"),
                      contains("'f' is not a safetensors file; it is " + what));
    CHECK_THROWS_WITH(io::parse_npy(bytes_of(file), "f"),
                      contains("'f' is not an npy file") && contains("; it is " + what));
  };
  says("\x89HDF\r\n\x1a\n\0\0\0\0"s, "an HDF5 file");
  says(zip_start("arr_0.npy"), "an archive of NumPy (npz)");
  says(zip_start("word/document.xml"), "a zip archive");
  says("PK\5\6" + std::string(18, '\0'), "an empty zip archive");
  says("\x1f\x8b\x08\0\0\0\0\0\0\3 some bytes that follow"s, "compressed by gzip");
  says(
      "\x08\x07\x12\x07pytorch\x1a\x05"
      "1.13.1:"s,
      "an ONNX model");
  says("version https://git-lfs.github.com/spec/v1\noid sha256:00", "the pointer that Git LFS leaves");
  says("<!DOCTYPE html>\n<html>", "a web page");
  CHECK_THROWS_WITH(io::parse_safetensors(bytes_of("\x93NUMPY\1\0v\0{'descr"s), "f"),
                    contains("it is an array of NumPy"));
  CHECK_THROWS_WITH(io::parse_npy(bytes_of(little_endian(64, 8) + "{\"w\":{"), "f"),
                    contains("it is a safetensors file"));
  // Damaged safetensors files and unknown files give the same messages as before.
  CHECK_THROWS_WITH(io::parse_safetensors(bytes_of(little_endian(64, 8) + "{\"w\":{"), "f"), contains("is truncated"));
  CHECK_THROWS_WITH(io::parse_safetensors(bytes_of("some text, no more"), "f"), contains("announces a header of"));
  CHECK(io::described({}).empty());
  CHECK(io::described(bytes_of("PK")).empty());
  CHECK(io::described(bytes_of("some text, no more")).empty());

  const std::string packed = gzip(std::string(4096, 'x')) + std::string(1024, '\0');
  io::TarReader tar([&](uint64_t at, void* to, size_t bytes) { std::memcpy(to, packed.data() + at, bytes); },
                    packed.size(), "a.tar");
  CHECK_THROWS_WITH(tar.next(), contains("'a.tar', byte 0: this is not a tar archive; it is compressed by gzip"));
}

TEST_CASE("files are recognised by their first bytes, and no others are taken for them", "[io]") {
  const auto kind = [](const std::string& start) { return io::described(bytes_of(start)); };
  const std::pair<std::string, std::string> starts[] = {
      {"\x93NUMPY", "an array of NumPy (npy)"},
      {"\x89PNG\r\n", "a PNG image"},
      {"\xff\xd8\xff", "a JPEG image"},
      {"GIF8", "a GIF image"},
      {"II*\0"s, "a TIFF image"},
      {"MM\0*"s, "a TIFF image"},
      {"8BPS", "a Photoshop image"},
      {"#?RADIANCE", "a Radiance HDR image"},
      {"\0\0\0\x0cjP  "s, "a JPEG 2000 image"},
      {"\0\0\0\x0cJXL "s, "a JPEG XL image"},
      {"\xff\x0a", "a JPEG XL image"},
      {"RIFF....WEBP", "a WebP image"},
      {"....ftypavif", "an AVIF image"},
      {"....ftyphei", "a HEIF image"},
      {"....ftypmif1", "a HEIF image"},
      {"\xfd\x37zXZ\0"s, "compressed by xz"},
      {"BZh", "compressed by bzip2"},
      {"\x28\xb5\x2f\xfd", "compressed by zstd"},
      {"GGUF", "a GGUF file"},
      {"<!doctype", "a web page"},
      {"<html", "a web page"},
      {std::string(257, 'x') + "ustar", "a tar archive"},
      {"BM....\0\0\0\0"s, "a BMP image"},
      {"P1\n", "a Netpbm image"},
      {"P7 ", "a Netpbm image"},
      {"\x80\x02.", "a pickle of Python"},
      {"\x80\x05.", "a pickle of Python"},
      {"\x08\x01\x12", "an ONNX model"},
      {"\x08\x20\x3a", "an ONNX model"},
  };
  for (const auto& [start, what] : starts) {
    CAPTURE(what);
    CHECK(kind(start).starts_with("; it is " + what));
    CHECK(kind(start.substr(0, start.size() - 1)).empty());
  }
  for (const std::string& other : {"BM....\0\0\0x"s, "P0\n"s, "P8\n"s, "P6x"s, "Q6\n"s, "\x80\x01."s, "\x80\x06."s,
                                   "\x81\x02."s, "\x08\0\x12"s, "\x08\x21\x12"s, "\x08\x01\x13"s, "\x09\x01\x12"s}) {
    CAPTURE(other);
    CHECK(kind(other).empty());
  }
}
