// CIFAR-10: 50,000 colour images for training and 10,000 for testing, 32x32, ten classes (Krizhevsky: "Learning
// multiple layers of features from tiny images", 2009; https://www.cs.toronto.edu/~kriz/cifar.html, "binary version").
//
// data_batch_1.bin … data_batch_5.bin and test_batch.bin contain records of 3,073 bytes: the class (0 … 9), then the
// red, the green and the blue plane, each with 32 rows of 32 bytes.
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

/// Parses the records of a CIFAR-10 file; `name` names it in messages. An incomplete record or a class above 9 is an
/// IoError.
LabelledImages parse_cifar10(io::ByteSpan bytes, const std::string& name);

namespace datasets {

/// Samples are {image (3, 32, 32) float32 in [0, 1], class as an int64 scalar}.
class CIFAR10 : public ImageDataset {
 public:
  static constexpr size_t kTrainSize = 50000, kTestSize = 10000;

  /// Reads the unpacked files of `mode` from the folder `root` or its subfolder cifar-10-batches-bin. Some batches may
  /// be missing or shorter: size() and explain() tell how many images there are. If no file is found, throws an IoError
  /// that tells what to unpack; a malformed file is an IoError that names it.
  explicit CIFAR10(const std::string& root, Mode mode = Mode::kTrain);

  /// True if all images of the published set were found.
  bool is_complete() const { return *size() == (is_train() ? kTrainSize : kTestSize); }
  /// "airplane", "automobile", …
  static const std::vector<std::string>& class_names();
};

/// Finds the folder with the training and test images of CIFAR-10: `directory` or, if that is empty, the first suitable
/// one of $GRADUS_DATA, data and ../shared/data. Each is searched itself and in its subfolder cifar-10-batches-bin.
/// Returns "" if none is suitable.
std::string find_cifar10(const std::string& directory = "");

}  // namespace datasets
}  // namespace gradus::data
