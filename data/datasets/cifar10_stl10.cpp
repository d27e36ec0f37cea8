#include <gradus/data/datasets/cifar10_stl10.h>

#include <gradus/autograd/autograd.h>
#include <gradus/core/ops/ops.h>

#include <cstring>

namespace gradus::data {

LabelledImages parse_cifar10(io::ByteSpan bytes, const std::string& name) {
  constexpr int64_t kSide = 32;
  constexpr size_t kImageBytes = 3 * kSide * kSide, kRecordBytes = 1 + kImageBytes;
  GRADUS_CHECK(!bytes.empty() && bytes.size() % kRecordBytes == 0, IoError, "'", name, "' has ", bytes.size(),
               " bytes; a file of CIFAR-10 has a multiple of ", kRecordBytes, ": it is truncated or something else");
  const size_t count = bytes.size() / kRecordBytes;
  const int64_t n = static_cast<int64_t>(count);
  const LabelledImages read = {Array::empty({n, 3, kSide, kSide}, DType::u8), Array::empty({n}, DType::u8)};
  for (size_t i = 0; i < count; ++i) {
    const std::byte* record = &bytes[i * kRecordBytes];
    const uint8_t label = static_cast<uint8_t>(record[0]);
    GRADUS_CHECK(label < 10, IoError, "'", name, "': record ", i, " has class ", label, ", but CIFAR-10 has 0 to 9");
    read.labels.data<uint8_t>()[i] = label;
    std::memcpy(read.images.data<uint8_t>() + i * kImageBytes, record + 1, kImageBytes);
  }
  return read;
}

LabelledImages parse_stl10(io::ByteSpan images, io::ByteSpan labels, const std::string& name) {
  constexpr int64_t kSide = 96, kImageBytes = 3 * kSide * kSide;
  GRADUS_CHECK(!images.empty() && images.size() % kImageBytes == 0, IoError, "'", name, "' has ", images.size(),
               " bytes; a file of STL-10 images has a multiple of ", kImageBytes,
               ": it is truncated or something else");
  const int64_t count = std::ssize(images) / kImageBytes;
  GRADUS_CHECK(static_cast<size_t>(count) == labels.size(), IoError, "'", name, "' has ", count,
               " images, but its file of labels has ", labels.size());
  const Array classes = Array::empty({count}, DType::u8);
  const Array planes = Array::empty({count, 3, kSide, kSide}, DType::u8);
  for (size_t i = 0; i < labels.size(); ++i) {
    const uint8_t label = static_cast<uint8_t>(labels[i]);
    GRADUS_CHECK(label >= 1 && label <= 10, IoError, "'", name, "': image ", i, " has class ", label,
                 ", but STL-10 has 1 to 10");
    classes.data<uint8_t>()[i] = static_cast<uint8_t>(label - 1);
  }
  std::memcpy(planes.data(), images.data(), images.size());
  return {ops::contiguous(planes.transpose(2, 3)), classes};
}

namespace datasets {
namespace {

// The files in which a dataset is published.
struct Published {
  const char *name, *subfolder, *script, *archive;
  const char *train_files[5], *test_files[5];
  bool may_be_partial;  // if true, a dataset with only some of these files can be read

  std::vector<std::string> files_in(const std::string& folder, ImageDataset::Mode mode) const {
    std::vector<std::string> files;
    for (const char* file : mode == ImageDataset::kTrain ? train_files : test_files)
      if (file) files.push_back(folder + "/" + file);
    return files;
  }
  // Returns the files in `folder` that exist. Returns none if one is missing and the dataset needs all of them.
  std::vector<std::string> present_files(const std::string& folder, ImageDataset::Mode mode) const {
    std::vector<std::string> files = files_in(folder, mode);
    const size_t missing = std::erase_if(files, [](const std::string& file) { return !detail::is_file(file); });
    return missing > 0 && !may_be_partial ? std::vector<std::string>() : files;
  }
  // Returns the files in `root` or, if it has none, in its subfolder. If there are none either, throws an IoError that
  // names a missing file and ends with `hint` or, if `hint` is empty, says how to unpack or fetch the files.
  std::vector<std::string> find_files(const std::string& root, ImageDataset::Mode mode, std::string hint = "") const {
    std::string missing;
    for (const std::string& folder : {root, root + "/" + subfolder}) {
      if (std::vector<std::string> files = present_files(folder, mode); !files.empty()) return files;
      for (const std::string& file : files_in(folder, mode)) {
        if (detail::is_file(file)) continue;
        if (missing.empty()) missing = file;
        if (hint.empty() && detail::is_file(file + ".xz")) hint = "; unpack it: xz -dk '" + file + ".xz'";
        if (hint.empty() && detail::is_file(file + ".gz")) hint = "; unpack it: gzip -dk '" + file + ".gz'";
      }
    }
    const std::string fetch = std::string(". Fetch it with scripts/") + script + ", or unpack it: tar -xzf " + archive;
    GRADUS_FAIL(IoError, "no ", name, " file '", missing, "', nor in the subfolder ", subfolder,
                hint.empty() ? fetch : hint);
  }
  std::string find(const std::string& directory) const {
    return detail::find_folder(directory, {subfolder}, [&](const std::string& folder) {
      return !present_files(folder, ImageDataset::kTrain).empty() &&
             !present_files(folder, ImageDataset::kTest).empty();
    });
  }
};

constexpr Published kCifar10 = {
    "CIFAR-10",
    "cifar-10-batches-bin",
    "cifar10_data.sh",
    "cifar-10-binary.tar.gz",
    {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
    {"test_batch.bin"},
    /*may_be_partial=*/true};
constexpr Published kStl10 = {"STL-10",
                              "stl10_binary",
                              "stl10_data.sh",
                              "stl10_binary.tar.gz",
                              {"train_X.bin", "train_y.bin"},
                              {"test_X.bin", "test_y.bin"},
                              /*may_be_partial=*/false};

ImageDataset load_cifar10(const std::string& root, ImageDataset::Mode mode) {
  std::string hint;
  for (const std::string& place : {root, root + "/cifar-10-batches-py"})
    if (detail::is_file(place + "/data_batch_1"))
      hint = ". '" + place + "' has the version for Python, which is pickled; the binary version is read";
  const std::vector<std::string> files = kCifar10.find_files(root, mode, hint);
  TensorList images, labels;
  for (const std::string& file : files) {
    const LabelledImages read = parse_cifar10(io::read_file(file), file);
    images.emplace_back(read.images);
    labels.emplace_back(read.labels);
  }
  const bool train = mode == ImageDataset::kTrain;
  const std::string name = train ? "CIFAR-10 training set, " + std::to_string(files.size()) + " of 5 batches"
                                 : std::string("CIFAR-10 test set");
  return ImageDataset(cat(images).array(), cat(labels).array(), 10, mode, name);
}

ImageDataset load_stl10(const std::string& root, ImageDataset::Mode mode) {
  const std::vector<std::string> files = kStl10.find_files(root, mode);
  const LabelledImages read = parse_stl10(io::read_file(files[0]), io::read_file(files[1]), files[0]);
  return ImageDataset(read.images, read.labels, 10, mode,
                      mode == ImageDataset::kTrain ? "STL-10 training set" : "STL-10 test set");
}

}  // namespace

CIFAR10::CIFAR10(const std::string& root, Mode mode) : ImageDataset(load_cifar10(root, mode)) {}
STL10::STL10(const std::string& root, Mode mode) : ImageDataset(load_stl10(root, mode)) {}

const std::vector<std::string>& CIFAR10::class_names() {
  static const std::vector<std::string> names = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                 "dog",      "frog",       "horse", "ship", "truck"};
  return names;
}
const std::vector<std::string>& STL10::class_names() {
  static const std::vector<std::string> names = {"airplane", "bird",  "car",    "cat",  "deer",
                                                 "dog",      "horse", "monkey", "ship", "truck"};
  return names;
}

std::string find_cifar10(const std::string& directory) { return kCifar10.find(directory); }
std::string find_stl10(const std::string& directory) { return kStl10.find(directory); }

}  // namespace datasets
}  // namespace gradus::data
