// The MNIST handwritten digits: 60,000 to train on and 10,000 to test with, 28x28, ten classes
// (LeCun, Cortes, Burges: http://yann.lecun.com/exdb/mnist/).
#pragma once

#include <string>

#include <gradus/data/image_dataset.h>

namespace gradus::data::datasets {

/// As torch::data::datasets::MNIST: samples are {image (1, 28, 28) float32 in [0, 1], class as an int64 scalar}.
class MNIST : public ImageDataset {
 public:
  /// Reads the two files of `mode`, plain or with .gz behind their names, from the folder `root`. A missing or
  /// malformed file is an IoError.
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain);
};

/// The folder that holds MNIST: `directory` or, where that is empty, $GRADUS_DATA, data or ../shared/data; each of them
/// itself or its subfolder mnist. Empty when none does.
std::string find_mnist(const std::string& directory = "");

}  // namespace gradus::data::datasets
