// Labelled images of one size, stored as bytes in memory. Base of MNIST and similar datasets.
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
  /// The part of a dataset.
  enum class Mode { kTrain, kTest };
  static constexpr Mode kTrain = Mode::kTrain, kTest = Mode::kTest;

  /// images (N, C, H, W) u8 and labels (N) u8, each below `classes`. `name` names the dataset in messages (IoError) and
  /// in explain().
  ImageDataset(Array images, const Array& labels, int64_t classes, Mode mode, const std::string& name);

  std::optional<size_t> size() const override { return static_cast<size_t>(bytes_.size(0)); }
  Example<> get(size_t index) override;
  /// Images (N, C, H, W) and classes (N) of these samples, gathered in one operation.
  Example<> get_stacked(const std::vector<size_t>& indices) const;

  std::vector<std::string> plan() const override;

  bool is_train() const { return mode_ == Mode::kTrain; }
  /// All images (N, C, H, W) float32 in [0, 1], converted in each call.
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

// The pipelines of most programs, compiled once.
using NormalizedImages = MapDataset<ImageDataset, transforms::Normalize<>>;        ///< .map(Normalize)
using NormalizedImageBatches = MapDataset<NormalizedImages, transforms::Stack<>>;  ///< .map(Normalize).map(Stack)
extern template class Dataset<ImageDataset>;
extern template class MapDataset<ImageDataset, transforms::Normalize<>>;
extern template class MapDataset<NormalizedImages, transforms::Stack<>>;

}  // namespace gradus::data::datasets

namespace gradus::data {

extern template class DatasetLoader<datasets::NormalizedImageBatches>;

namespace detail {
// Finding the folders of datasets.
bool is_file(const std::string& path);
/// Returns the first of `root` and its `subfolders` that `holds` accepts; "" if there is none.
std::string find_below(const std::string& root, const std::vector<std::string>& subfolders,
                       const std::function<bool(const std::string&)>& holds);
/// find_below() for `directory` or, if that is empty, for $GRADUS_DATA, data and ../shared/data in this order.
std::string find_folder(const std::string& directory, const std::vector<std::string>& subfolders,
                        const std::function<bool(const std::string&)>& holds);
/// If one of these paths exists as an archive, tells how to unpack the first such, as the end of a message; else "".
std::string unpack_hint(const std::vector<std::string>& paths);
}  // namespace detail
}  // namespace gradus::data
