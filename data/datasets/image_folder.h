// ImageFolder: images in PNG and JPEG files, with one folder for each class.
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

/// The same as torchvision.datasets.ImageFolder for PNG and JPEG files. The classes are the subfolders of `root` in
/// alphabetical order. The images of a class are all files below its folder whose names end in .png, .jpg or .jpeg (in
/// any case), sorted by folder and name. Symbolic links are followed. Samples are {image (3, H, W) float32 in [0, 1],
/// class as an int64 scalar}. A file is read when its sample is requested.
class ImageFolder : public Dataset<ImageFolder> {
 public:
  struct Sample {
    std::string path;
    int64_t label;
  };

  /// With a size, every image is resized to it (transforms::functional::resize with antialias). Without a size, images
  /// keep their sizes; before Stack, transforms such as Resize and CenterCrop must make them equal. A folder without
  /// classes and a class without images are an IoError. Copies share the list of files.
  explicit ImageFolder(const std::string& root) : ImageFolder(std::nullopt, root) {}
  ImageFolder(const std::string& root, transforms::ImageSize size) : ImageFolder(std::optional(size), root) {}

  /// A missing or damaged file is an IoError that names it.
  Example<> get(size_t index) override;
  std::optional<size_t> size() const override { return list_->samples.size(); }
  std::vector<std::string> plan() const override;

  /// Names of the classes. The class of a sample is an index into this list.
  const std::vector<std::string>& classes() const { return list_->classes; }
  /// The file and the class of each sample.
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
