// The MNIST handwritten digits: 60,000 to train on and 10,000 to test with, 28x28, ten classes
// (LeCun, Cortes, Burges: http://yann.lecun.com/exdb/mnist/).
#pragma once

#include <string>

#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data::datasets {

/// As torch::data::datasets::MNIST: samples are {image (1, 28, 28) float32 in [0, 1], class as an int64 scalar}.
class MNIST : public ImageDataset {
 public:
  /// Reads the two files of `mode` from the folder `root` or, where torchvision puts them, its MNIST/raw, raw or mnist:
  /// train-images-idx3-ubyte or train-images.idx3-ubyte and so on, plain or with .gz behind. Data sets in the same
  /// files (Fashion-MNIST, Kuzushiji-MNIST) are read from their own folder, data/FashionMNIST. A missing or malformed
  /// file is an IoError.
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain);
};

/// The folder that holds the four files of MNIST: `directory` or, where that is empty, $GRADUS_DATA, data or
/// ../shared/data; each of them itself or its subfolder mnist, MNIST/raw or raw. Empty when none does.
std::string find_mnist(const std::string& directory = "");

}  // namespace gradus::data::datasets
