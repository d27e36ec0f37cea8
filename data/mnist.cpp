#include <gradus/data/mnist.h>

#include <gradus/data/find_data.h>
#include <gradus/data/idx.h>

namespace gradus::data::datasets {
namespace {

struct Files {
  const char *images, *labels;
};
constexpr Files kTrainFiles = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
constexpr Files kTestFiles = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// `name` or `name`.gz in `root`, whichever is there; empty if neither is.
std::string find_file(const std::string& root, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    const std::string path = root + "/" + name + ending;
    if (data::detail::is_file(path)) return path;
  }
  return "";
}

Array read(const std::string& root, const std::string& name) {
  const std::string path = find_file(root, name);
  GRADUS_CHECK(!path.empty(), IoError, "no MNIST file '", root, "/", name, "', plain or with .gz");
  return read_idx(path);
}

ImageDataset load(const std::string& root, ImageDataset::Mode mode) {
  const Files& files = mode == ImageDataset::kTrain ? kTrainFiles : kTestFiles;
  const Array images = read(root, files.images);
  const std::string name = root + "/" + files.images;
  GRADUS_CHECK(images.dtype() == DType::u8 && images.ndim() == 3 && images.size(1) == 28 && images.size(2) == 28,
               IoError, "'", name, "': MNIST images are bytes of shape (N, 28, 28), got ", images.dtype(), " of shape ",
               images.shape());
  return ImageDataset(images.unsqueeze(1), read(root, files.labels), 10, mode, name);
}

}  // namespace

MNIST::MNIST(const std::string& root, Mode mode) : ImageDataset(load(root, mode)) {}

std::string find_mnist(const std::string& directory) {
  return data::detail::find_folder(directory, "mnist", [](const std::string& folder) {
    for (const char* name : {kTrainFiles.images, kTrainFiles.labels, kTestFiles.images, kTestFiles.labels})
      if (find_file(folder, name).empty()) return false;
    return true;
  });
}

}  // namespace gradus::data::datasets
