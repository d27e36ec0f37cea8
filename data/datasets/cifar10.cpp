#include <gradus/data/datasets/cifar10.h>

#include <gradus/autograd/autograd.h>

#include <cstring>

namespace gradus::data {
namespace {

constexpr int64_t kSide = 32;
constexpr size_t kImageBytes = 3 * kSide * kSide, kRecordBytes = 1 + kImageBytes;

}  // namespace

LabelledImages parse_cifar10(io::ByteSpan bytes, const std::string& name) {
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

namespace datasets {
namespace {

std::vector<std::string> files_of(const std::string& folder, ImageDataset::Mode mode) {
  if (mode == ImageDataset::kTest) return {folder + "/test_batch.bin"};
  std::vector<std::string> files;
  for (int i = 1; i <= 5; ++i) files.push_back(folder + "/data_batch_" + std::to_string(i) + ".bin");
  return files;
}

std::vector<std::string> present_files(const std::string& folder, ImageDataset::Mode mode) {
  std::vector<std::string> files = files_of(folder, mode);
  std::erase_if(files, [](const std::string& file) { return !data::detail::is_file(file); });
  return files;
}

ImageDataset load(const std::string& root, ImageDataset::Mode mode) {
  std::vector<std::string> files = present_files(root, mode);
  if (files.empty()) files = present_files(root + "/cifar-10-batches-bin", mode);
  if (files.empty()) {
    std::vector<std::string> wanted = files_of(root, mode), below = files_of(root + "/cifar-10-batches-bin", mode);
    wanted.insert(wanted.end(), below.begin(), below.end());
    std::string hint = data::detail::unpack_hint(wanted);
    for (const std::string& place : {root, root + "/cifar-10-batches-py"})
      if (data::detail::is_file(place + "/data_batch_1"))
        hint = ". '" + place + "' has the version for Python, which is pickled; the binary version is read";
    if (hint.empty()) hint = ". Fetch it with scripts/cifar10_data.sh, or unpack it: tar -xzf cifar-10-binary.tar.gz";
    GRADUS_FAIL(IoError, "no CIFAR-10 file '", wanted[0], "', nor in its subfolder cifar-10-batches-bin", hint);
  }
  TensorList images, labels;
  for (const std::string& file : files) {
    const LabelledImages read = parse_cifar10(io::read_file(file), file);
    images.emplace_back(read.images), labels.emplace_back(read.labels);
  }
  const bool train = mode == ImageDataset::kTrain;
  const std::string name = train ? "CIFAR-10 training set, " + std::to_string(files.size()) + " of 5 batches"
                                 : std::string("CIFAR-10 test set");
  return ImageDataset(cat(images).array(), cat(labels).array(), 10, mode, name);
}

}  // namespace

CIFAR10::CIFAR10(const std::string& root, Mode mode) : ImageDataset(load(root, mode)) {}

const std::vector<std::string>& CIFAR10::class_names() {
  static const std::vector<std::string> names = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                 "dog",      "frog",       "horse", "ship", "truck"};
  return names;
}

std::string find_cifar10(const std::string& directory) {
  return data::detail::find_folder(directory, {"cifar-10-batches-bin"}, [](const std::string& folder) {
    return !present_files(folder, ImageDataset::kTrain).empty() && !present_files(folder, ImageDataset::kTest).empty();
  });
}

}  // namespace datasets
}  // namespace gradus::data
