#include <gradus/data/datasets/image_dataset.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gradus/core/parallel/parallel.h>

template class gradus::data::DatasetLoader<gradus::data::datasets::NormalizedImageBatches>;

namespace gradus::data::datasets {

template class Dataset<ImageDataset>;
template class MapDataset<ImageDataset, transforms::Normalize<>>;
template class MapDataset<NormalizedImages, transforms::Stack<>>;

ImageDataset::ImageDataset(Array images, const Array& labels, int64_t classes, Mode mode, const std::string& name)
    : bytes_(std::move(images)), mode_(mode), name_(name) {
  GRADUS_CHECK(bytes_.dtype() == DType::u8 && bytes_.ndim() == 4 && bytes_.is_contiguous(), IoError, "'", name,
               "': images must be bytes of shape (N, C, H, W), got ", bytes_.dtype(), " of shape ", bytes_.shape());
  GRADUS_CHECK(labels.dtype() == DType::u8 && labels.ndim() == 1 && labels.is_contiguous(), IoError, "'", name,
               "': labels must be bytes of shape (N,), got ", labels.dtype(), " of shape ", labels.shape());
  GRADUS_CHECK(bytes_.size(0) == labels.size(0), IoError, "'", name, "': ", bytes_.size(0), " images but ",
               labels.size(0), " labels");
  labels_ = Array::empty(labels.shape(), DType::i64);
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const uint8_t label = labels.data<uint8_t>()[i];
    GRADUS_CHECK(label < classes, IoError, "'", name, "': label ", i, " is ", label, ", but there are ", classes,
                 " classes");
    labels_.data<int64_t>()[i] = label;
  }
}

// Copies an image and converts its bytes 0 … 255 to [0, 1].
void ImageDataset::copy_image(size_t index, float* to) const {
  GRADUS_CHECK(index < *size(), IndexError, "sample ", index, " of a dataset of ", *size());
  const int64_t pixels = bytes_.stride(0);
  const uint8_t* from = bytes_.data<uint8_t>() + static_cast<int64_t>(index) * pixels;
  for (int64_t i = 0; i < pixels; ++i) to[i] = static_cast<float>(from[i]) / 255.0f;
}

Example<> ImageDataset::get(size_t index) {
  const Example<> batch = get_stacked({index});
  return {Tensor(batch.data.array().select(0, 0)), Tensor(batch.target.array().select(0, 0))};
}

Example<> ImageDataset::get_stacked(const Indices& indices) const {
  const int64_t count = std::ssize(indices);
  const Array images = Array::empty({count, bytes_.size(1), bytes_.size(2), bytes_.size(3)});
  const Array labels = Array::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    const size_t index = indices[static_cast<size_t>(i)];
    copy_image(index, images.data<float>() + i * images.stride(0));
    labels.data<int64_t>()[i] = labels_.data<int64_t>()[index];
  }
  return {Tensor(images), Tensor(labels)};
}

std::vector<std::string> ImageDataset::plan() const {
  return {name_ + ", " + std::to_string(*size()) + " images of " + std::to_string(bytes_.size(1)) + "x" +
          std::to_string(bytes_.size(2)) + "x" + std::to_string(bytes_.size(3))};
}

Tensor ImageDataset::images() const {
  const Array images = Array::empty(bytes_.shape());
  parallel_for(images.size(0), 512, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      copy_image(static_cast<size_t>(i), images.data<float>() + i * images.stride(0));
  });
  return Tensor(images);
}

}  // namespace gradus::data::datasets

namespace gradus::data::detail {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    paths.push_back(entry->path().string());
  GRADUS_CHECK(!error, IoError, "cannot read the folder '", folder, "': ", error.message());
  std::ranges::sort(paths);
  return paths;
}

std::string find_below(const std::string& root, const std::vector<std::string>& subfolders, const Holds& holds) {
  if (holds(root)) return root;
  for (const std::string& subfolder : subfolders)
    if (holds(root + "/" + subfolder)) return root + "/" + subfolder;
  return "";
}

std::string find_folder(const std::string& directory, const std::vector<std::string>& subfolders, const Holds& holds) {
  if (!directory.empty()) return find_below(directory, subfolders, holds);
  const char* variable = std::getenv("GRADUS_DATA");
  for (const char* place : {variable ? variable : "", "data", "../shared/data"}) {
    const std::string folder = *place == '\0' ? "" : find_below(place, subfolders, holds);
    if (!folder.empty()) return folder;
  }
  return "";
}

}  // namespace gradus::data::detail
