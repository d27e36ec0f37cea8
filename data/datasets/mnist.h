// MNIST: 60,000 grey images of handwritten digits for training and 10,000 for testing, 28x28, ten classes (LeCun,
// Cortes, Burges: http://yann.lecun.com/exdb/mnist/).
//
// Its files have the format IDX, an array of any type and shape:
//
//   2 bytes   zero
//   1 byte    element type: 0x08 unsigned byte, 0x0C int32, 0x0D float32, 0x0E float64
//   1 byte    number of dimensions
//   4 bytes   for each dimension its size, big-endian
//   the rest  the elements, row-major and big-endian
#pragma once

#include <string>

#include <gradus/core/platform/file.h>
#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data {

/// Reads the array of an IDX file, plain or gzipped. Decompresses no more data than the shape in the header needs, and
/// at most 2 GiB. If the content is not a valid array, throws an IoError that names the file.
Array read_idx(const std::string& path);
/// Parses the bytes of an uncompressed file. Messages call it `name`.
Array parse_idx(io::ByteSpan bytes, const std::string& name);

namespace datasets {

/// The same as torch::data::datasets::MNIST. Samples are {image (1, 28, 28) float32 in [0, 1], class as an int64
/// scalar}.
struct MNIST : ImageDataset {
  /// Reads the images and the labels of `mode` from the folder `root` or one of its subfolders mnist, MNIST/raw (where
  /// torchvision puts them), raw, mnist/raw and MNIST. The files are called train-images-idx3-ubyte or
  /// train-images.idx3-ubyte and so on, and may end in .gz. Datasets with the same file names (Fashion-MNIST,
  /// Kuzushiji-MNIST) can be read, too: pass the folder that has their files, such as data/FashionMNIST. A missing or
  /// malformed file is an IoError.
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain);
};

/// Returns the folder with the four files of MNIST. Searches `directory` and the subfolders named above; if `directory`
/// is empty, searches $GRADUS_DATA, data and ../shared/data in this order. Returns "" if it finds none.
std::string find_mnist(const std::string& directory = "");

/// Images of 28x28 pixels, as in MNIST. Each is drawn with pen strokes that vary at random in shape, position,
/// thickness and ink, and has random noise. Sample i depends only on (seed, mode, i) and is the same on every machine,
/// because only + - * / and square roots are used. Training and test samples come from different parts of the stream of
/// random numbers.
struct SyntheticDigits : ImageDataset {
  /// Draws `count` digits.
  explicit SyntheticDigits(size_t count, uint64_t seed = 0, Mode mode = Mode::kTrain);
};

}  // namespace datasets
}  // namespace gradus::data
