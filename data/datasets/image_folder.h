// Reads your own images from one folder for each class.
//
//   photos/cat/tabby.jpg   photos/cat/siamese.png   photos/dog/rex.jpg   …
//
//   auto train = data::datasets::ImageFolder("photos", {64, 64}).map(data::transforms::Stack<>());
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/data/dataset.h>
#include <gradus/data/images/image_ops.h>

namespace gradus::data::datasets {

/// torchvision.datasets.ImageFolder for PNG and JPEG. The classes are the subfolders of `root` in alphabetical order.
/// Their images are all files below them whose names end in .png, .jpg or .jpeg (in any case), sorted by folder and
/// name. Links are followed. Samples are {image (3, H, W) float32 in [0, 1], class as an int64 scalar}; a file is read
/// when its sample is requested.
class ImageFolder : public Dataset<ImageFolder> {
 public:
  struct Sample {
    std::string path;
    int64_t label;
  };

  /// If a size is given, every image is resized to it (transforms::functional::resize with antialias). Otherwise images
  /// keep their sizes and need Resize and a crop before Stack. A folder without classes and a class without images are
  /// an IoError. Copies share the list of files.
  explicit ImageFolder(const std::string& root) : ImageFolder(std::nullopt, root) {}
  ImageFolder(const std::string& root, transforms::ImageSize size) : ImageFolder(std::optional(size), root) {}

  /// A missing or damaged file is an IoError that names it.
  Example<> get(size_t index) override;
  std::optional<size_t> size() const override { return list_->samples.size(); }
  std::vector<std::string> plan() const override;

  /// Names of the classes; a sample's class is an index into this list.
  const std::vector<std::string>& classes() const { return list_->classes; }
  /// The files.
  const std::vector<Sample>& samples() const { return list_->samples; }

 private:
  struct List {
    std::string root;
    std::vector<std::string> classes;
    std::vector<Sample> samples;
  };

  ImageFolder(std::optional<transforms::ImageSize> size, const std::string& root);

  std::shared_ptr<const List> list_;
  std::optional<transforms::ImageSize> size_;
};

}  // namespace gradus::data::datasets
