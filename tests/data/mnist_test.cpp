#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include <gradus/autograd/autograd.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/data/mnist_files.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;
using data::datasets::MNIST;

TEST_CASE("MNIST: samples, images and targets are consistent", "[data][mnist]") {
  const TemporaryDirectory directory;
  write_mnist(directory, 25, 12);
  MNIST train(directory.path().string()), test(directory.path().string(), MNIST::kTest);
  CHECK(train.is_train());
  CHECK_FALSE(test.is_train());
  CHECK(train.size() == 25u);
  CHECK(test.size() == 12u);
  const Tensor images = train.images(), targets = train.targets();
  REQUIRE(images.sizes() == Shape{25, 1, 28, 28});
  REQUIRE(targets.sizes() == Shape{25});
  CHECK(images.dtype() == kFloat);
  CHECK(targets.dtype() == kLong);
  for (size_t i : {0u, 3u, 24u}) {
    const data::Example<> sample = train.get(i);
    CHECK(sample.data.sizes() == Shape{1, 28, 28});
    CHECK(sample.target.sizes() == Shape{});
    CHECK(sample.target.item<int64_t>() == static_cast<int64_t>(i % 10));
    CHECK(sample.data.equal(images[static_cast<int64_t>(i)]));
  }
  CHECK(images.data_ptr<float>()[1] == 7.f / 255.f);
  CHECK_THROWS_AS(train.get(25), IndexError);
  CHECK_THROWS_WITH(train.get_batch({1, 99}), contains("sample 99"));
}

TEST_CASE("MNIST: malformed files are errors that name the file", "[data][mnist]") {
  const TemporaryDirectory directory;
  const std::string root = directory.path().string();
  CHECK_THROWS_WITH(MNIST(root), contains("train-images-idx3-ubyte") && contains(".gz"));
  write_mnist(directory, 4, 2);
  REQUIRE_NOTHROW(MNIST(root));
  SECTION("counts differ") {
    io::write_file(directory.file("train-labels-idx1-ubyte"), idx_labels(3));
    CHECK_THROWS_WITH(MNIST(root), contains("4 images but 3 labels"));
  }
  SECTION("a label without a class") {
    std::string labels = idx_labels(4);
    labels.back() = 10;
    io::write_file(directory.file("train-labels-idx1-ubyte"), labels);
    CHECK_THROWS_WITH(MNIST(root), contains("label 3 is 10"));
  }
  SECTION("labels instead of images") {
    io::write_file(directory.file("train-images-idx3-ubyte"), idx_labels(4));
    CHECK_THROWS_WITH(MNIST(root), contains("(N, 28, 28)"));
  }
  SECTION("other sizes") {
    io::write_file(directory.file("train-images-idx3-ubyte"), idx_images(4, 14, 14));
    CHECK_THROWS_WITH(MNIST(root), contains("(4, 14, 14)"));
  }
  SECTION("damaged gzip") {
    std::filesystem::remove(directory.file("train-images-idx3-ubyte"));
    io::write_file(directory.file("train-images-idx3-ubyte.gz"), std::string("\x1f\x8b\x08 nonsense"));
    CHECK_THROWS_WITH(MNIST(root), contains("train-images-idx3-ubyte.gz") && contains("gzip"));
  }
}

TEST_CASE("MNIST: gzipped files are read if there are no plain ones", "[data][mnist]") {
  const TemporaryDirectory plain, packed;
  write_mnist(plain, 6, 6);
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}) {
    const io::Bytes bytes = io::read_file(plain.file(name));
    gzFile file = gzopen((packed.file(name) + ".gz").c_str(), "wb");
    REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
    REQUIRE(gzclose(file) == Z_OK);
  }
  CHECK(MNIST(packed.path().string()).images().equal(MNIST(plain.path().string()).images()));
}

TEST_CASE("MNIST: files with a dot before idx, and in torchvision's folders", "[data][mnist]") {
  const TemporaryDirectory root;
  const Tensor images = [&] {
    const TemporaryDirectory plain;
    write_mnist(plain, 3, 2);
    return MNIST(plain.path().string()).images();
  }();
  for (const std::string folder : {".", "mnist", "raw", "MNIST/raw", "FashionMNIST/raw"})
    for (const bool dotted : {false, true})
      for (const bool packed : {false, true}) {
        CAPTURE(folder, dotted, packed);
        const TemporaryDirectory place;
        const auto put = [&](std::string name, const std::string& bytes) {
          if (dotted) name[name.find("-idx")] = '.';
          const std::filesystem::path path = place.path() / folder / (name + (packed ? ".gz" : ""));
          std::filesystem::create_directories(path.parent_path());
          io::write_file(path.string(), packed ? gzip(bytes) : bytes);
        };
        put("train-images-idx3-ubyte", idx_images(3));
        put("train-labels-idx1-ubyte", idx_labels(3));
        const std::string given = folder == "FashionMNIST/raw" ? place.path() / "FashionMNIST" : place.path();
        CHECK(MNIST(given).images().equal(images));
        CHECK_THROWS_WITH(MNIST(given, MNIST::kTest), contains("t10k-images-idx3-ubyte"));
        put("t10k-images-idx3-ubyte", idx_images(2));
        put("t10k-labels-idx1-ubyte", idx_labels(2));
        CHECK(MNIST(given, MNIST::kTest).size() == 2u);
        CHECK_FALSE(data::datasets::find_mnist(given).empty());
        if (folder == "FashionMNIST/raw") CHECK_THROWS_AS(MNIST(place.path().string()), IoError);
      }
}

TEST_CASE("find_mnist looks in the folder and in its mnist/", "[data][mnist]") {
  const TemporaryDirectory directory;
  const std::string root = directory.path().string();
  CHECK(data::datasets::find_mnist(root).empty());
  write_mnist(directory, 1, 1);
  CHECK(data::datasets::find_mnist(root) == root);
  const TemporaryDirectory outer;
  std::filesystem::create_directory_symlink(root, outer.path() / "mnist");
  // A folder with only some of the files is passed over.
  io::write_file(outer.file("train-images-idx3-ubyte"), idx_images(5));
  CHECK(MNIST(outer.path().string()).size() == 1u);
  io::write_file(outer.file("train-labels-idx1-ubyte"), idx_labels(5));
  CHECK(MNIST(outer.path().string()).size() == 5u);
  CHECK(MNIST(outer.path().string(), MNIST::kTest).size() == 1u);
  CHECK(data::datasets::find_mnist(outer.path().string()) == outer.path().string() + "/mnist");
  io::write_file(outer.file("t10k-images-idx3-ubyte"), idx_images(5));
  CHECK(data::datasets::find_mnist(outer.path().string()) == outer.path().string() + "/mnist");
}

TEST_CASE("the real MNIST is complete", "[data][mnist]") {
  const std::string root = data::datasets::find_mnist();
  if (root.empty() && test::skip("MNIST")) return;
  const MNIST train(root), test(root, MNIST::kTest);
  REQUIRE(train.size() == 60000u);
  REQUIRE(test.size() == 10000u);
  auto histogram = [](const Tensor& targets) {
    std::vector<int> counts(10);
    for (int64_t i = 0; i < targets.numel(); ++i) ++counts[static_cast<size_t>(targets.data_ptr<int64_t>()[i])];
    return counts;
  };
  CHECK(histogram(train.targets()) == std::vector<int>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949});
  CHECK(histogram(test.targets()) == std::vector<int>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009});
  // CRC-32 of the decompressed pixels.
  auto checksum = [](const MNIST& set) {
    const Array& bytes = set.bytes();
    return crc32(0, static_cast<const Bytef*>(bytes.data()), static_cast<unsigned>(bytes.nbytes()));
  };
  CHECK(checksum(train) == 0xf3639b56u);
  CHECK(checksum(test) == 0xe4ca5f57u);
}
