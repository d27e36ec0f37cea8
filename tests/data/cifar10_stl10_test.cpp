#include <zlib.h>

#include <numeric>

#include <gradus/autograd/autograd.h>
#include <gradus/data/data.h>
#include <gradus/tests/data/real_data.h>
#include <gradus/tests/io/io_test.h>

using namespace gradus;
using namespace gradus::test;
using data::datasets::CIFAR10;
using data::datasets::ImageDataset;
using data::datasets::STL10;

namespace {

// The value of pixel (c, y, x) of image i.
uint8_t pixel(int i, int c, int y, int x) { return static_cast<uint8_t>(i * 31 + c * 101 + y * 7 + x * 3); }

// Record i has class i % 10.
std::string cifar10_file(int first, int count) {
  std::string file;
  for (int i = first; i < first + count; ++i) {
    file.push_back(static_cast<char>(i % 10));
    for (int c = 0; c < 3; ++c)
      for (int y = 0; y < 32; ++y)
        for (int x = 0; x < 32; ++x) file.push_back(static_cast<char>(pixel(i, c, y, x)));
  }
  return file;
}

// Column-major planes.
std::string stl10_images(int count) {
  std::string file;
  for (int i = 0; i < count; ++i)
    for (int c = 0; c < 3; ++c)
      for (int x = 0; x < 96; ++x)
        for (int y = 0; y < 96; ++y) file.push_back(static_cast<char>(pixel(i, c, y, x)));
  return file;
}
std::string stl10_labels(int count) {
  std::string file;
  for (int i = 0; i < count; ++i) file.push_back(static_cast<char>(1 + i % 10));
  return file;
}

// True if all pixels have the values of pixel(). Image 0 of the set is image number `first`.
bool has_pixels(const ImageDataset& set, int first = 0) {
  const Array& bytes = set.bytes();
  const uint8_t* at = bytes.data<uint8_t>();
  for (int i = 0; i < bytes.size(0); ++i)
    for (int c = 0; c < 3; ++c)
      for (int y = 0; y < bytes.size(2); ++y)
        for (int x = 0; x < bytes.size(3); ++x)
          if (*at++ != pixel(first + i, c, y, x)) return false;
  return true;
}

unsigned long checksum(const ImageDataset& set) {
  return crc32(0, static_cast<const Bytef*>(set.bytes().data()), static_cast<unsigned>(set.bytes().nbytes()));
}
std::vector<int> histogram(const ImageDataset& set) {
  std::vector<int> counts(10);
  const Tensor targets = set.targets();
  for (int64_t i = 0; i < targets.numel(); ++i) ++counts[static_cast<size_t>(targets.data_ptr<int64_t>()[i])];
  return counts;
}

}  // namespace

TEST_CASE("CIFAR-10: records of five batches, or of fewer", "[data][cifar10]") {
  const TemporaryDirectory directory;
  const std::string root = directory.path().string();
  for (int batch = 1; batch <= 5; ++batch)
    io::write_file(directory.file("data_batch_" + std::to_string(batch) + ".bin"), cifar10_file(4 * batch, 4));
  io::write_file(directory.file("test_batch.bin"), cifar10_file(0, 3));
  CIFAR10 train(root), test(root, CIFAR10::kTest);
  REQUIRE(train.bytes().shape() == Shape{20, 3, 32, 32});
  CHECK(has_pixels(train, 4));
  CHECK(has_pixels(test));
  CHECK(train.get(7).target.item<int64_t>() == 1);
  CHECK(train.get(7).data[2][30][5].item<float>() == static_cast<float>(pixel(11, 2, 30, 5)) / 255.f);
  const data::Example<> batch = train.get_stacked({7, 0, 19});
  CHECK(batch.data.equal(stack({train.get(7).data, train.get(0).data, train.get(19).data})));
  CHECK(batch.data.equal(train.images().index_select(0, tensor({7, 0, 19}))));
  CHECK(batch.target.equal(tensor({1, 4, 3})));
  CHECK_THROWS_WITH(train.get_stacked({0, 20}), contains("sample 20 of a dataset of 20"));
  CHECK_FALSE(train.is_complete());
  CHECK(train.explain() == "CIFAR-10 training set, 5 of 5 batches, 20 images of 3x32x32\n");
  CHECK(data::datasets::find_cifar10(root) == root);
  CHECK(CIFAR10::class_names().size() == 10);

  // Some batches are missing, and the folder is a subfolder.
  const TemporaryDirectory outer;
  const std::string below = outer.file("cifar-10-batches-bin");
  std::filesystem::create_directory(below);
  CHECK(data::datasets::find_cifar10(outer.path().string()).empty());
  io::write_file(below + "/data_batch_2.bin", cifar10_file(8, 2));
  io::write_file(below + "/test_batch.bin", cifar10_file(0, 1));
  const CIFAR10 part(outer.path().string());
  CHECK(part.size() == 2u);
  CHECK(has_pixels(part, 8));
  CHECK(part.explain() == "CIFAR-10 training set, 1 of 5 batches, 2 images of 3x32x32\n");
  CHECK(data::datasets::find_cifar10(outer.path().string()) == below);
}

TEST_CASE("CIFAR-10: malformed files are errors that name the file", "[data][cifar10]") {
  const TemporaryDirectory directory;
  const std::string root = directory.path().string(), file = directory.file("data_batch_1.bin");
  CHECK_THROWS_WITH(CIFAR10(root), contains(file) && contains("scripts/cifar10_data.sh") && contains("tar -xzf"));
  io::write_file(file + ".xz", std::string_view("packed"));
  CHECK_THROWS_WITH(CIFAR10(root), contains("unpack it: xz -dk '" + file + ".xz'"));
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{3072}, size_t{3074}, size_t{2 * 3073 - 1}}) {
    io::write_file(file, std::string(bytes, '\1'));
    CHECK_THROWS_WITH(CIFAR10(root), contains(file) && contains("multiple of 3073"));
  }
  std::string records = cifar10_file(0, 3);
  records[2 * 3073] = 10;
  io::write_file(file, records);
  CHECK_THROWS_WITH(CIFAR10(root), contains(file) && contains("record 2 has class 10"));
}

TEST_CASE("STL-10: planes are column-major, classes begin with 1", "[data][stl10]") {
  const TemporaryDirectory directory;
  const std::string root = directory.path().string();
  std::filesystem::create_directory(directory.file("stl10_binary"));
  const std::string below = directory.file("stl10_binary");
  io::write_file(below + "/train_X.bin", stl10_images(12));
  io::write_file(below + "/train_y.bin", stl10_labels(12));
  STL10 train(root);
  REQUIRE(train.bytes().shape() == Shape{12, 3, 96, 96});
  CHECK(has_pixels(train));
  CHECK(train.get(11).target.item<int64_t>() == 1);
  CHECK_FALSE(train.is_complete());
  CHECK(train.explain() == "STL-10 training set, 12 images of 3x96x96\n");
  CHECK(data::datasets::find_stl10(root).empty());
  io::write_file(below + "/test_X.bin", stl10_images(1));
  io::write_file(below + "/test_y.bin", stl10_labels(1));
  CHECK(data::datasets::find_stl10(root) == below);
  CHECK(STL10(below, STL10::kTest).size() == 1u);
  CHECK(STL10::class_names()[7] == "monkey");
}

TEST_CASE("STL-10: malformed files are errors that name the file", "[data][stl10]") {
  const TemporaryDirectory directory;
  const std::string root = directory.path().string();
  const std::string images = directory.file("test_X.bin"), labels = directory.file("test_y.bin");
  auto read = [&] { return STL10(root, STL10::kTest); };
  CHECK_THROWS_WITH(read(), contains(images) && contains("scripts/stl10_data.sh"));
  io::write_file(images + ".gz", std::string_view("packed"));
  CHECK_THROWS_WITH(read(), contains("gzip -dk '" + images));
  io::write_file(labels, stl10_labels(2));
  for (size_t bytes : {size_t{0}, size_t{27647}, size_t{27649}}) {
    io::write_file(images, std::string(bytes, '\1'));
    CHECK_THROWS_WITH(read(), contains(images) && contains("multiple of 27648"));
  }
  io::write_file(images, stl10_images(3));
  CHECK_THROWS_WITH(read(), contains("3 images") && contains("2"));
  std::filesystem::remove(labels);
  CHECK_THROWS_WITH(read(), contains("no STL-10 file '" + labels) && !contains("gzip"));
  for (char bad : {0, 11}) {
    std::string wrong = stl10_labels(3);
    wrong[1] = bad;
    io::write_file(labels, wrong);
    CHECK_THROWS_WITH(read(), contains("image 1 has class " + std::to_string(bad)));
  }
}

TEST_CASE("CIFAR-10: Python's version is recognised", "[data][cifar10]") {
  const TemporaryDirectory directory;
  const std::string root = directory.path().string(), below = directory.file("cifar-10-batches-py");
  std::filesystem::create_directory(below);
  io::write_file(below + "/data_batch_1", std::string_view("pickled"));
  CHECK_THROWS_WITH(CIFAR10(root), contains("'" + below + "' has the version for Python") && !contains("Fetch it"));
  io::write_file(directory.file("data_batch_1.bin.gz"), std::string_view("packed"));
  CHECK_THROWS_WITH(CIFAR10(root), contains("has the version for Python") && !contains("unpack"));
  CHECK_THROWS_WITH(CIFAR10(below), contains("'" + below + "' has the version for Python"));
  io::write_file(directory.file("data_batch_1.bin"), cifar10_file(0, 1));
  CHECK(CIFAR10(root).size() == 1u);
}

TEST_CASE("an image dataset refuses bytes and labels of other shapes", "[data]") {
  const auto made = [](const Tensor& images, const Tensor& labels) {
    return ImageDataset(images.array(), labels.array(), 5, ImageDataset::kTrain, "noise");
  };
  const Tensor images = zeros({3, 1, 2, 2}).to(kByte), labels = tensor({0, 4, 2}).to(kByte);
  CHECK(made(images, labels).targets().equal(tensor({0, 4, 2})));
  const Tensor numbers = arange(3 * 2 * 3 * 5).reshape({3, 2, 3, 5}).to(kByte);  // neither square nor of one channel
  ImageDataset wide = made(numbers, labels);
  CHECK(wide.explain() == "noise, 3 images of 2x3x5\n");
  CHECK(wide.images().equal(numbers.to(kFloat) / 255));
  CHECK(wide.get(2).data.equal(numbers[2].to(kFloat) / 255));
  const data::Example<> batch = wide.get_stacked({1, 2, 1, 0});
  CHECK(batch.data.equal(stack({numbers[1], numbers[2], numbers[1], numbers[0]}).to(kFloat) / 255));
  CHECK(batch.target.equal(tensor({4, 2, 4, 0})));
  CHECK(wide.get_stacked({}).data.sizes() == Shape{0, 2, 3, 5});
  const std::string bytes = "'noise': images must be bytes of shape (N, C, H, W), got ";
  CHECK_THROWS_WITH(made(images.to(kFloat), labels), contains(bytes + "float32 of shape (3, 1, 2, 2)"));
  CHECK_THROWS_WITH(made(images.squeeze(1), labels), contains(bytes + "uint8 of shape (3, 2, 2)"));
  CHECK_THROWS_WITH(made(zeros({3, 1, 2, 3}).to(kByte).transpose(2, 3), labels), contains(bytes));
  CHECK_THROWS_WITH(made(images, labels.to(kLong)), contains("labels must be bytes of shape (N,), got int64"));
  CHECK_THROWS_WITH(made(images, labels.view({3, 1})), contains("labels must be bytes of shape (N,)"));
  CHECK_THROWS_WITH(made(images, labels.slice(0, 0, 2)), contains("3 images but 2 labels"));
  CHECK_THROWS_WITH(made(images, tensor({0, 5, 2}).to(kByte)), contains("label 1 is 5, but there are 5 classes"));
}

TEST_CASE("data sets are found by an environment variable", "[data]") {
  const char* const variable = std::getenv("GRADUS_DATA");
  const std::string before = variable ? variable : "";
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.file("stl10_binary"));
  for (const char* file : {"/train_X.bin", "/train_y.bin", "/test_X.bin", "/test_y.bin"})
    io::write_file(directory.file("stl10_binary") + file, std::string_view("1"));
  io::write_file(directory.file("data_batch_3.bin"), cifar10_file(0, 1));
  io::write_file(directory.file("test_batch.bin"), cifar10_file(0, 1));
  setenv("GRADUS_DATA", directory.path().c_str(), 1);
  CHECK(data::datasets::find_stl10() == directory.file("stl10_binary"));
  CHECK(data::datasets::find_cifar10() == directory.path().string());
  std::filesystem::remove(directory.file("stl10_binary/train_y.bin"));  // one file of four is missing
  CHECK(data::datasets::find_stl10(directory.path().string()).empty());
  if (variable) setenv("GRADUS_DATA", before.c_str(), 1);
  else unsetenv("GRADUS_DATA");
}

TEST_CASE("the real CIFAR-10", "[data][cifar10]") {
  const TemporaryDirectory directory;
  const bool found = unpack_xz("cifar10", {"data_batch_1.bin.xz"}, directory.file("data_batch_1.bin")) &&
                     unpack_xz("cifar10", {"test_batch.bin.xz"}, directory.file("test_batch.bin"));
  if (!found && skip("CIFAR-10")) return;
  const CIFAR10 train(directory.path().string()), test(directory.path().string(), CIFAR10::kTest);
  CHECK(histogram(train) == std::vector<int>{1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981});
  CHECK(histogram(test) == std::vector<int>{196, 198, 195, 199, 198, 185, 216, 193, 217, 203});
  // CRC-32 of the pixels without the labels, computed independently of this library.
  CHECK(checksum(train) == 0x4342fec4u);
  CHECK(checksum(test) == 0xa3f5346bu);
}

TEST_CASE("the real STL-10", "[data][stl10]") {
  const TemporaryDirectory directory;
  if (!unpack_xz("stl10", {"test_X.bin.xz"}, directory.file("test_X.bin")) && skip("STL-10")) return;
  const char* variable = std::getenv("GRADUS_DATA");
  const std::string root = variable ? variable : "../shared/data";
  std::filesystem::copy_file(root + "/stl10/test_y.bin", directory.file("test_y.bin"));
  const STL10 test(directory.path().string(), STL10::kTest);
  CHECK(histogram(test) == std::vector<int>{157, 182, 152, 170, 153, 155, 156, 171, 150, 154});
  CHECK(checksum(test) == 0xc200c03fu);  // of the row-major pixels, computed independently of this library
}
