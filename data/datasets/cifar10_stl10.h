// CIFAR-10: 50,000 colour images for training and 10,000 for testing, 32x32, ten classes (Krizhevsky: "Learning
// multiple layers of features from tiny images", 2009; https://www.cs.toronto.edu/~kriz/cifar.html, "binary version").
// data_batch_1.bin … data_batch_5.bin and test_batch.bin contain records of 3,073 bytes: the class (0 … 9), then the
// red, the green and the blue plane, each with 32 rows of 32 bytes.
//
// STL-10: 5,000 labelled colour images for training and 8,000 for testing, 96x96, ten classes (Coates, Lee, Ng: "An
// analysis of single-layer networks in unsupervised feature learning", AISTATS 2011;
// https://cs.stanford.edu/~acoates/stl10, binary files). The 100,000 unlabelled images are not read.
// train_X.bin and test_X.bin have 27,648 bytes for each image: the red, the green and the blue plane, each with 96
// columns of 96 bytes. train_y.bin and test_y.bin have one byte for each image, its class 1 … 10.
#pragma once

#include <string>
#include <vector>

#include <gradus/core/platform/file.h>
#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data {

/// The content of a file: images (N, C, H, W) u8 and their classes (N) u8.
struct LabelledImages {
  Array images, labels;
};

/// Parses the records of a CIFAR-10 file. Messages call the file `name`. An incomplete record or a class above 9 is an
/// IoError.
LabelledImages parse_cifar10(io::ByteSpan bytes, const std::string& name);
/// Parses the STL-10 files of images and of labels. Converts the planes, which are stored column by column, to
/// row-major order, and the classes to 0 … 9. Messages call the file of images `name`. An incomplete image, a different
/// number of labels, or an unknown class is an IoError.
LabelledImages parse_stl10(io::ByteSpan images, io::ByteSpan labels, const std::string& name);

namespace datasets {

/// Samples are {image (3, 32, 32) float32 in [0, 1], class as an int64 scalar}.
struct CIFAR10 : ImageDataset {
  static constexpr size_t kTrainSize = 50000, kTestSize = 10000;

  /// Reads the unpacked files of `mode` from the folder `root` or its subfolder cifar-10-batches-bin. Some batches may
  /// be missing or shorter: size() and explain() show how many images were read. If no file is found, throws an IoError
  /// that says how to get the files. A malformed file is an IoError that names it.
  explicit CIFAR10(const std::string& root, Mode mode = Mode::kTrain);

  /// True if the dataset has as many images as were published.
  bool is_complete() const { return *size() == (is_train() ? kTrainSize : kTestSize); }
  /// Returns the names of the classes 0 … 9: "airplane", "automobile", …
  static const std::vector<std::string>& class_names();
};

/// Samples are {image (3, 96, 96) float32 in [0, 1], class as an int64 scalar}.
struct STL10 : ImageDataset {
  static constexpr size_t kTrainSize = 5000, kTestSize = 8000;

  /// Reads the two unpacked files of `mode` from the folder `root` or its subfolder stl10_binary. They may contain
  /// fewer images than were published: size() and explain() show how many. If a file is missing, throws an IoError that
  /// says how to get it. A malformed file is an IoError that names it.
  explicit STL10(const std::string& root, Mode mode = Mode::kTrain);

  /// True if the dataset has as many images as were published.
  bool is_complete() const { return *size() == (is_train() ? kTrainSize : kTestSize); }
  /// Returns the names of the classes 0 … 9: "airplane", "bird", …
  static const std::vector<std::string>& class_names();
};

/// Returns the folder with training and test images of CIFAR-10 or STL-10. Searches `directory` and its subfolder
/// cifar-10-batches-bin or stl10_binary; if `directory` is empty, searches $GRADUS_DATA, data and ../shared/data in
/// this order. Returns "" if it finds none.
std::string find_cifar10(const std::string& directory = "");
/// find_cifar10() for STL-10.
std::string find_stl10(const std::string& directory = "");

}  // namespace datasets
}  // namespace gradus::data
