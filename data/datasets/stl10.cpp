#include <gradus/data/datasets/stl10.h>

#include <gradus/core/parallel/parallel.h>

namespace gradus::data {
namespace {

constexpr int64_t kSide = 96, kPlane = kSide * kSide, kImageBytes = 3 * kPlane;

// to[y][x] = from[x][y]
void transpose_plane(const uint8_t* from, uint8_t* to) {
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < kSide; ++x) to[y * kSide + x] = from[x * kSide + y];
}

}  // namespace

LabelledImages parse_stl10(io::ByteSpan images, io::ByteSpan labels, const std::string& name) {
  GRADUS_CHECK(!images.empty() && images.size() % kImageBytes == 0, IoError, "'", name, "' has ", images.size(),
               " bytes; a file of STL-10 images has a multiple of ", kImageBytes,
               ": it is truncated or something else");
  const int64_t count = static_cast<int64_t>(images.size()) / kImageBytes;
  GRADUS_CHECK(static_cast<size_t>(count) == labels.size(), IoError, "'", name, "' has ", count,
               " images, but its file of labels has ", labels.size());
  const LabelledImages read = {Array::empty({count, 3, kSide, kSide}, DType::u8), Array::empty({count}, DType::u8)};
  for (size_t i = 0; i < labels.size(); ++i) {
    const uint8_t label = static_cast<uint8_t>(labels[i]);
    GRADUS_CHECK(label >= 1 && label <= 10, IoError, "'", name, "': image ", i, " has class ", label,
                 ", but STL-10 has 1 to 10");
    read.labels.data<uint8_t>()[i] = static_cast<uint8_t>(label - 1);
  }
  const uint8_t* from = reinterpret_cast<const uint8_t*>(images.data());
  uint8_t* to = read.images.data<uint8_t>();
  parallel_for(3 * count, 96, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) transpose_plane(from + plane * kPlane, to + plane * kPlane);
  });
  return read;
}

namespace datasets {
namespace {

struct Files {
  std::string images, labels;
};

Files files_of(const std::string& folder, ImageDataset::Mode mode) {
  const std::string part = folder + (mode == ImageDataset::kTrain ? "/train" : "/test");
  return {part + "_X.bin", part + "_y.bin"};
}

bool holds(const std::string& folder, ImageDataset::Mode mode) {
  const Files files = files_of(folder, mode);
  return data::detail::is_file(files.images) && data::detail::is_file(files.labels);
}

ImageDataset load(const std::string& root, ImageDataset::Mode mode) {
  const std::string below = root + "/stl10_binary";
  const Files files = files_of(holds(root, mode) ? root : below, mode), outer = files_of(root, mode);
  if (!holds(root, mode) && !holds(below, mode)) {
    std::string hint = data::detail::unpack_hint({outer.images, files.images});
    if (hint.empty()) hint = ". Fetch them with scripts/stl10_data.sh, or unpack them: tar -xzf stl10_binary.tar.gz";
    GRADUS_FAIL(IoError, "no STL-10 files '", outer.images, "' and '", outer.labels,
                "', nor in the subfolder stl10_binary", hint);
  }
  const LabelledImages read = parse_stl10(io::read_file(files.images), io::read_file(files.labels), files.images);
  return ImageDataset(read.images, read.labels, 10, mode,
                      mode == ImageDataset::kTrain ? "STL-10 training set" : "STL-10 test set");
}

}  // namespace

STL10::STL10(const std::string& root, Mode mode) : ImageDataset(load(root, mode)) {}

const std::vector<std::string>& STL10::class_names() {
  static const std::vector<std::string> names = {"airplane", "bird",  "car",    "cat",  "deer",
                                                 "dog",      "horse", "monkey", "ship", "truck"};
  return names;
}

std::string find_stl10(const std::string& directory) {
  return data::detail::find_folder(directory, {"stl10_binary"}, [](const std::string& folder) {
    return holds(folder, ImageDataset::kTrain) && holds(folder, ImageDataset::kTest);
  });
}

}  // namespace datasets
}  // namespace gradus::data
