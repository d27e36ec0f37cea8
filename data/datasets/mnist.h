// The MNIST handwritten digits: 60,000 for training and 10,000 for testing, 28x28, ten classes (LeCun, Cortes, Burges:
// http://yann.lecun.com/exdb/mnist/).
#pragma once

#include <string>

#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data::datasets {

/// As torch::data::datasets::MNIST. Samples are {image (1, 28, 28) float32 in [0, 1], class as an int64 scalar}.
class MNIST : public ImageDataset {
 public:
  /// Reads the two files of `mode` from the folder `root` or its subfolders MNIST/raw (used by torchvision), raw or
  /// mnist. The names are train-images-idx3-ubyte or train-images.idx3-ubyte and so on, optionally with .gz appended.
  /// Datasets with the same file names (Fashion-MNIST, Kuzushiji-MNIST) are read from their own folder, such as
  /// data/FashionMNIST. A missing or malformed file is an IoError.
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain);
};

/// Finds the folder with the four files of MNIST: `directory` or, if that is empty, the first suitable one of
/// $GRADUS_DATA, data and ../shared/data. Each is searched itself and in its subfolders mnist, MNIST/raw and raw.
/// Returns "" if none is suitable.
std::string find_mnist(const std::string& directory = "");

}  // namespace gradus::data::datasets
