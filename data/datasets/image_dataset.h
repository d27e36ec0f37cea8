// ImageDataset: images of one size and their classes, stored as bytes in memory. It is the base of MNIST and similar
// datasets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gradus/data/dataset.h>
#include <gradus/data/loader/data_loader.h>

namespace gradus::data::datasets {

/// Samples are {image (C, H, W) float32 in [0, 1], class as an int64 scalar}. Copies share the images.
class ImageDataset : public Dataset<ImageDataset> {
 public:
  /// Selects the images for training or those for testing.
  enum class Mode { kTrain, kTest };
  static constexpr Mode kTrain = Mode::kTrain, kTest = Mode::kTest;

  /// Takes images (N, C, H, W) u8 and labels (N) u8. Other shapes or types, and a label that is not below `classes`,
  /// are an IoError. Messages and explain() call the dataset `name`.
  ImageDataset(Array images, const Array& labels, int64_t classes, Mode mode, const std::string& name);

  std::optional<size_t> size() const override { return static_cast<size_t>(bytes_.size(0)); }
  Example<> get(size_t index) override;
  /// Returns images (N, C, H, W) and classes (N) of these samples as one batch (StackedDataset).
  Example<> get_stacked(const Indices& indices) const;

  std::vector<std::string> plan() const override;

  /// True for the training images, false for the test images.
  bool is_train() const { return mode_ == Mode::kTrain; }
  /// All images (N, C, H, W) float32 in [0, 1]. Each call converts all of them.
  Tensor images() const;
  /// All classes (N) int64.
  Tensor targets() const { return Tensor(labels_); }
  /// The images as stored, (N, C, H, W) u8.
  const Array& bytes() const { return bytes_; }

 private:
  void copy_image(size_t index, float* to) const;

  Array bytes_, labels_;
  Mode mode_;
  std::string name_;
};

// These pipelines, which most programs use, are compiled in image_dataset.cpp.
using NormalizedImages = MapDataset<ImageDataset, transforms::Normalize<>>;        ///< .map(Normalize)
using NormalizedImageBatches = MapDataset<NormalizedImages, transforms::Stack<>>;  ///< .map(Normalize).map(Stack)
extern template class Dataset<ImageDataset>;
extern template class MapDataset<ImageDataset, transforms::Normalize<>>;
extern template class MapDataset<NormalizedImages, transforms::Stack<>>;

}  // namespace gradus::data::datasets

namespace gradus::data {

extern template class DatasetLoader<datasets::NormalizedImageBatches>;

namespace detail {
// Helpers of datasets that consist of files.
bool is_file(const std::string& path);
/// The paths of all entries of a folder, sorted. A folder that cannot be read is an IoError.
std::vector<std::string> entries_of(const std::string& folder);
/// Returns true if a folder has what is searched for.
using Holds = std::function<bool(const std::string& folder)>;
/// Returns the first of `root` and its `subfolders` for which holds(folder) is true, or "" if there is none.
std::string find_below(const std::string& root, const std::vector<std::string>& subfolders, const Holds& holds);
/// Calls find_below() with `directory` or, if that is empty, with $GRADUS_DATA, data and ../shared/data in this order
/// until one has a result.
std::string find_folder(const std::string& directory, const std::vector<std::string>& subfolders, const Holds& holds);
}  // namespace detail
}  // namespace gradus::data
