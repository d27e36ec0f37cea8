#include <map>

#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/data/data.h>
#include <gradus/tests/compare.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;
using data::datasets::ImageFolder;

namespace {

const std::vector<std::string> kPng = {"rgb.png",        "alpha.png",   "gray.png",
                                       "gray_alpha.png", "palette.png", "one_bit.png"};
const std::vector<std::string> kJpeg = {"rgb.jpg", "small_colors.jpg", "progressive.jpeg", "gray.jpg", "cmyk.jpg"};
// The name of a JPEG says how many brightness values there are for each colour value, across and down, and the image's
// size.
const std::vector<std::string> kChroma = {"chroma_2x1_22x13.jpg", "chroma_2x1_21x13.jpg", "chroma_2x1_2x3.jpg",
                                          "chroma_2x1_1x1.jpg",   "chroma_2x2_21x12.jpg", "chroma_2x2_22x13.jpg",
                                          "chroma_1x2_22x13.jpg", "chroma_1x2_21x12.jpg", "chroma_4x1_22x13.jpg",
                                          "chroma_4x1_21x13.jpg", "chroma_4x2_19x11.jpg"};

std::string image_path(const std::string& name) { return source_path("tests/fuzz/image_fuzz/" + name); }

// The pixels that Pillow reads (tests/golden/make_images.py).
Array as_pillow_reads(const std::string& name) {
  static const std::map<std::string, Array> all = io::load_safetensors(source_path("tests/golden/images.safetensors"));
  return all.at(name);
}

std::string image_error(io::Bytes bytes) {
  try {
    data::decode_image(bytes, "test");
  } catch (const IoError& error) { return error.what(); }
  return "(no error)";
}

// Writes root/<folder>/<name>: a copy of an image, or another content.
void put(const TemporaryDirectory& root, const std::string& place, const std::string& image) {
  const std::filesystem::path path = root.path() / place;
  std::filesystem::create_directories(path.parent_path());
  std::filesystem::copy_file(image_path(image), path);
}

}  // namespace

TEST_CASE("images: PNG and JPEG files are read as by Pillow", "[data][image]") {
  for (const std::string& name : kPng) {
    INFO(name);
    CHECK(error(data::read_image(image_path(name)), as_pillow_reads(name)) == 0);
  }
  for (const std::string& name : kJpeg) {
    INFO(name);
    CHECK(error(data::read_image(image_path(name)), as_pillow_reads(name)) <
          3.5 / 255);  // decoders round inverse cosine transforms differently
  }
  for (const std::string& name : kChroma) {
    INFO(name);
    CHECK(error(data::read_image(image_path(name)), as_pillow_reads(name)) < 3.5 / 255);
  }
}

TEST_CASE("images: truncated and damaged files are errors", "[data][image]") {
  for (const auto& names : {kPng, kJpeg})
    for (const std::string& name : names) {
      const io::Bytes whole = io::read_file(image_path(name));
      for (size_t length = 0; length < whole.size(); length += 1 + length / 16) {
        INFO(name << " cut to " << length);
        CHECK_THAT(image_error({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}),
                   contains("'test'"));
      }
    }
  // Every flipped bit of a PNG is detected by its checksums.
  const io::Bytes whole = io::read_file(image_path("gray.png"));
  for (size_t i = 0; i < whole.size(); ++i) {
    io::Bytes damaged = whole;
    damaged[i] ^= std::byte{0x10};
    CHECK(image_error(damaged) != "(no error)");
  }
  CHECK_THAT(image_error({}), contains("neither a PNG nor a JPEG"));
  const std::string_view text = "GIF89a";
  const auto gif = std::as_bytes(std::span(text));
  CHECK_THAT(image_error({gif.begin(), gif.end()}), contains("neither a PNG nor a JPEG file; it is a GIF image"));
  CHECK_THROWS_WITH(data::read_image("/nowhere/image.png"), contains("/nowhere/image.png"));
}

TEST_CASE("images: huge sizes are rejected before memory is allocated", "[data][image]") {
  // Changes the size in a JPEG's header to 65535x65535.
  io::Bytes jpeg = io::read_file(image_path("rgb.jpg"));
  size_t frame = 0;
  for (size_t i = 0; i + 8 < jpeg.size() && !frame; ++i)
    if (jpeg[i] == std::byte{0xFF} && jpeg[i + 1] == std::byte{0xC0}) frame = i;
  REQUIRE(frame > 0);
  for (size_t i = 5; i < 9; ++i) jpeg[frame + i] = std::byte{0xFF};
  CHECK_THAT(image_error(jpeg), contains("65535x65535"));
  const io::Bytes small = io::read_file(image_path("rgb.png"));
  CHECK_THROWS_WITH(data::decode_image(small, "test", 125), contains("14x9") && contains("125"));
  CHECK(data::decode_image(small, "test", 126).shape() == Shape{3, 9, 14});
}

TEST_CASE("images: a Huffman table of too many symbols does not reach the decoder", "[data][image]") {
  io::Bytes jpeg = io::read_file(image_path("rgb.jpg"));
  size_t table = 0;
  for (size_t i = 0; i + 8 < jpeg.size() && !table; ++i)
    if (jpeg[i] == std::byte{0xFF} && jpeg[i + 1] == std::byte{0xC4}) table = i + 4;
  REQUIRE(table > 0);
  jpeg[table + 15] = jpeg[table + 16] = std::byte{200};
  CHECK_THAT(image_error(jpeg), contains("Huffman table"));
  CHECK_THAT(image_error(io::read_file(image_path("large_huffman_table"))), contains("Huffman table"));
  CHECK_THAT(image_error(io::read_file(image_path("missing_huffman_table"))), contains("Huffman table"));
}

TEST_CASE("ImageFolder: a folder for each class", "[data][image]") {
  const TemporaryDirectory root;
  put(root, "dog/b.PNG", "rgb.png");
  put(root, "dog/a.jpg", "rgb.jpg");
  put(root, "dog/deep/er/0.jpeg", "progressive.jpeg");
  put(root, "cat/z.png", "gray.png");
  io::write_file(root.file("cat/notes.txt"), std::string_view("no image"));
  io::write_file(root.file("labels.csv"), std::string_view("no class"));
  std::filesystem::create_directory_symlink(root.path() / "dog", root.path() / "dog/deep/round");  // a cycle
  ImageFolder folder(root.path().string());
  CHECK(folder.classes() == std::vector<std::string>{"cat", "dog"});
  std::vector<std::string> names;
  for (const auto& sample : folder.samples())
    names.push_back(std::filesystem::path(sample.path).filename().string() + " " + std::to_string(sample.label));
  CHECK(names == std::vector<std::string>{"z.png 0", "a.jpg 1", "b.PNG 1", "0.jpeg 1"});
  const data::Example<> sample = folder.get(2);
  CHECK(sample.target.item<int64_t>() == 1);
  CHECK(sample.data.sizes() == Shape{3, 9, 14});
  CHECK(sample.data[1][3][5].item<float>() ==
        static_cast<float>(as_pillow_reads("rgb.png").data<uint8_t>()[9 * 14 + 3 * 14 + 5]) / 255.f);
  CHECK_THROWS_AS(folder.get(4), IndexError);

  ImageFolder resized(root.path().string(), data::transforms::ImageSize(8, 6));
  CHECK(resized.get(2).data.equal(data::transforms::functional::resize(sample.data, {8, 6})));
  const std::string line = "images in '" + root.path().string() + "', 4 files of 2 classes";
  CHECK(folder.explain() == line + "\n");
  CHECK(resized.explain() == line + ", resized to 8x6\n");
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(resized.map(data::transforms::Stack<>()),
                                                                          data::DataLoaderOptions(4).workers(2));
  for (auto& batch : *loader) {
    CHECK(batch.data.sizes() == Shape{4, 3, 8, 6});
    CHECK(batch.target.equal(tensor({0, 1, 1, 1})));
  }
}

TEST_CASE("ImageFolder: errors name the file or folder", "[data][image]") {
  const TemporaryDirectory root;
  const std::string path = root.path().string();
  CHECK_THROWS_WITH(ImageFolder(path + "/nowhere"), contains("/nowhere' is not a folder"));
  CHECK_THROWS_WITH(ImageFolder(path), contains("a subfolder for each class"));
  std::filesystem::create_directory(root.path() / "empty");
  CHECK_THROWS_WITH(ImageFolder(path), contains("/empty'"));
  put(root, "empty/good.png", "rgb.png");
  io::write_file(root.file("empty/bad.jpg"), std::string_view("\xff\xd8\xff but no more"));
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(
      ImageFolder(path, 8).map(data::transforms::Stack<>()), data::DataLoaderOptions(2).workers(1));
  CHECK_THROWS_WITH(loader->begin(), contains("sample 0: ") && contains("empty/bad.jpg"));
  ImageFolder folder(path);
  std::filesystem::remove(root.path() / "empty/good.png");
  CHECK_THROWS_WITH(folder.get(1), contains("empty/good.png"));
  CHECK_THROWS_AS(ImageFolder(path, data::transforms::ImageSize(0, 3)), ValueError);
  CHECK(ImageFolder(path, data::transforms::ImageSize(1, 1)).samples().size() == 1);
  CHECK_THROWS_WITH(ImageFolder(path, data::transforms::ImageSize(3, 0)), contains("above 0, got 3 and 0"));
  CHECK_THROWS_WITH(folder.get(2), contains("sample 2 of a dataset of 2"));
  CHECK_THROWS_WITH(ImageFolder(root.file("empty/bad.jpg")), contains("is not a folder"));
  // A folder may have the ending of an image, and a link to nowhere is no folder.
  put(root, "other.png/a.png", "gray.png");
  put(root, "other.png/sub.png/b.png", "gray.png");
  std::filesystem::create_symlink("nowhere", root.path() / "other.png/lost");
  const auto named = ImageFolder(path).samples();
  REQUIRE(named.size() == 3);
  CHECK(named[1].path == root.file("other.png/a.png"));
  CHECK(named[2].path == root.file("other.png/sub.png/b.png"));
}
