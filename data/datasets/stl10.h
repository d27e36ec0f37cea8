// STL-10: 5,000 labelled colour images for training and 8,000 for testing, 96x96, ten classes (Coates, Lee, Ng: "An
// analysis of single-layer networks in unsupervised feature learning", AISTATS 2011;
// https://cs.stanford.edu/~acoates/stl10, binary files). The 100,000 unlabelled images are not read.
//
// train_X.bin and test_X.bin have 27,648 bytes for each image: the red, the green and the blue plane, each with 96
// columns of 96 bytes. train_y.bin and test_y.bin have one byte for each image, its class 1 … 10.
#pragma once

#include <string>
#include <vector>

#include <gradus/data/datasets/cifar10.h>

namespace gradus::data {

/// Parses a pair of files to images with row-major planes and classes 0 … 9; `name` names them in messages. An
/// incomplete image, a different number of labels, or an unknown class is an IoError.
LabelledImages parse_stl10(io::ByteSpan images, io::ByteSpan labels, const std::string& name);

namespace datasets {

/// Samples are {image (3, 96, 96) float32 in [0, 1], class as an int64 scalar}.
class STL10 : public ImageDataset {
 public:
  static constexpr size_t kTrainSize = 5000, kTestSize = 8000;

  /// Reads the two unpacked files of `mode` from the folder `root` or its subfolder stl10_binary. They may contain
  /// fewer images than were published: size() and explain() tell how many. A missing file is an IoError that tells what
  /// to unpack, a malformed file an IoError that names it.
  explicit STL10(const std::string& root, Mode mode = Mode::kTrain);

  /// True if all images of the published set were found.
  bool is_complete() const { return *size() == (is_train() ? kTrainSize : kTestSize); }
  /// "airplane", "bird", …
  static const std::vector<std::string>& class_names();
};

/// Finds the folder with the four files of STL-10: `directory` or, if that is empty, the first suitable one of
/// $GRADUS_DATA, data and ../shared/data. Each is searched itself and in its subfolder stl10_binary. Returns "" if none
/// is suitable.
std::string find_stl10(const std::string& directory = "");

}  // namespace datasets
}  // namespace gradus::data
