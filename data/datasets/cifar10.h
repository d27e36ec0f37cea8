// CIFAR-10: 50,000 colour images to train on and 10,000 to test with, 32x32, ten classes (Krizhevsky: "Learning
// multiple layers of features from tiny images", 2009; https://www.cs.toronto.edu/~kriz/cifar.html, "binary version").
//
// data_batch_1.bin … data_batch_5.bin and test_batch.bin hold records of 3,073 bytes: the class (0 … 9), then the red,
// the green and the blue plane, each 32 rows of 32 bytes.
#pragma once

#include <string>
#include <vector>

#include <gradus/core/io/file.h>
#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data {

/// What is in a file: images (N, C, H, W) u8 and their classes (N) u8.
struct LabelledImages {
  Array images, labels;
};

/// The records of one file of CIFAR-10; `name` stands for it in messages. Bytes that are no whole records, or a class
/// above 9, are an IoError.
LabelledImages parse_cifar10(io::ByteSpan bytes, const std::string& name);

namespace datasets {

/// Samples are {image (3, 32, 32) float32 in [0, 1], class as an int64 scalar}.
class CIFAR10 : public ImageDataset {
 public:
  static constexpr size_t kTrainSize = 50000, kTestSize = 10000;

  /// Reads the unpacked files of `mode` from the folder `root` or its cifar-10-batches-bin/. Batches may be missing, or
  /// hold fewer records: size() and explain() tell how many images there are. None at all is an IoError that says what
  /// to unpack, a malformed file one that names it.
  explicit CIFAR10(const std::string& root, Mode mode = Mode::kTrain);

  /// True if no image of the published set is missing.
  bool is_complete() const { return *size() == (is_train() ? kTrainSize : kTestSize); }
  /// "airplane", "automobile", …
  static const std::vector<std::string>& class_names();
};

/// The folder that holds images of CIFAR-10 to train on and to test with: `directory` or, where that is empty,
/// $GRADUS_DATA, data or ../shared/data; each of them itself or its subfolder cifar-10-batches-bin. Empty when none
/// does.
std::string find_cifar10(const std::string& directory = "");

}  // namespace datasets
}  // namespace gradus::data
