#include <gradus/data/datasets/mnist.h>

#include <gradus/data/datasets/idx.h>

namespace gradus::data::datasets {
namespace {

struct Files {
  const char *images, *labels;
};
constexpr Files kTrainFiles = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
constexpr Files kTestFiles = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// Subfolders into which torchvision, or users who unpack by hand, put the files.
const std::vector<std::string> kSubfolders = {"mnist", "MNIST/raw", "raw", "mnist/raw", "MNIST"};

// The path of `name` in `folder`: plain or with .gz, and with a dash or a dot before "idx". Returns "" if there is
// none.
std::string find_file(const std::string& folder, const std::string& name) {
  std::string dotted = name;
  dotted[name.find("-idx")] = '.';
  for (const std::string& stem : {name, dotted})
    for (const char* ending : {"", ".gz"}) {
      const std::string path = folder + "/" + stem + ending;
      if (data::detail::is_file(path)) return path;
    }
  return "";
}

bool holds(const std::string& folder, const Files& files) {
  return !find_file(folder, files.images).empty() && !find_file(folder, files.labels).empty();
}

ImageDataset load(const std::string& root, ImageDataset::Mode mode) {
  const Files& files = mode == ImageDataset::kTrain ? kTrainFiles : kTestFiles;
  const std::string folder =
      data::detail::find_below(root, kSubfolders, [&](const std::string& place) { return holds(place, files); });
  GRADUS_CHECK(!folder.empty(), IoError, "no MNIST files '", root, "/", files.images, "' and '", files.labels,
               "', plain or with .gz, nor in the subfolders mnist, raw and MNIST/raw");
  const std::string name = find_file(folder, files.images);
  const Array images = read_idx(name);
  GRADUS_CHECK(images.dtype() == DType::u8 && images.ndim() == 3 && images.size(1) == 28 && images.size(2) == 28,
               IoError, "'", name, "': MNIST images are bytes of shape (N, 28, 28), got ", images.dtype(), " of shape ",
               images.shape());
  return ImageDataset(images.unsqueeze(1), read_idx(find_file(folder, files.labels)), 10, mode, name);
}

}  // namespace

MNIST::MNIST(const std::string& root, Mode mode) : ImageDataset(load(root, mode)) {}

std::string find_mnist(const std::string& directory) {
  return data::detail::find_folder(directory, kSubfolders, [](const std::string& folder) {
    return holds(folder, kTrainFiles) && holds(folder, kTestFiles);
  });
}

}  // namespace gradus::data::datasets
