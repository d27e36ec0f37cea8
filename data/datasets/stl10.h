// STL-10: 5,000 labelled colour images to train on and 8,000 to test with, 96x96, ten classes (Coates, Lee, Ng: "An
// analysis of single-layer networks in unsupervised feature learning", AISTATS 2011;
// https://cs.stanford.edu/~acoates/stl10, binary files). The 100,000 images without labels are not read.
//
// train_X.bin and test_X.bin hold 27,648 bytes for each image: the red, the green and the blue plane, each 96 columns
// of 96 bytes. train_y.bin and test_y.bin hold one byte for each image, its class 1 … 10.
#pragma once

#include <string>
#include <vector>

#include <gradus/data/datasets/cifar10.h>

namespace gradus::data {

/// The images, with their planes row by row, and the classes 0 … 9 of a pair of files; `name` stands for them in
/// messages. Bytes that are no whole images, another number of labels, or a class that there is not, are an IoError.
LabelledImages parse_stl10(io::ByteSpan images, io::ByteSpan labels, const std::string& name);

namespace datasets {

/// Samples are {image (3, 96, 96) float32 in [0, 1], class as an int64 scalar}.
class STL10 : public ImageDataset {
 public:
  static constexpr size_t kTrainSize = 5000, kTestSize = 8000;

  /// Reads the two unpacked files of `mode` from the folder `root` or its stl10_binary/. They may hold fewer images
  /// than were published: size() and explain() tell how many. A missing file is an IoError that says what to unpack, a
  /// malformed one an IoError that names it.
  explicit STL10(const std::string& root, Mode mode = Mode::kTrain);

  /// True if no image of the published set is missing.
  bool is_complete() const { return *size() == (is_train() ? kTrainSize : kTestSize); }
  /// "airplane", "bird", …
  static const std::vector<std::string>& class_names();
};

/// The folder that holds the four files of STL-10: `directory` or, where that is empty, $GRADUS_DATA, data or
/// ../shared/data; each of them itself or its subfolder stl10_binary. Empty when none does.
std::string find_stl10(const std::string& directory = "");

}  // namespace datasets
}  // namespace gradus::data
