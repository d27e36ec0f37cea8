#include <gradus/data/datasets/image_folder.h>

#include <gradus/autograd/ops/creation.h>
#include <gradus/data/datasets/image_dataset.h>
#include <gradus/data/images/image_file.h>

#include <cctype>
#include <filesystem>
#include <set>

namespace gradus::data::datasets {
namespace {

namespace fs = std::filesystem;

bool is_image(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Adds the paths of the images in `folder`, then of the images in its subfolders. `open` contains the folders above
// `folder`. A symbolic link to one of them is not followed, because it would lead into an endless loop.
void add_images(const fs::path& folder, std::set<fs::path>& open, std::vector<std::string>& images) {
  std::error_code error;
  const fs::path canonical = fs::canonical(folder, error);
  if (error || !open.insert(canonical).second) return;
  const std::vector<std::string> entries = detail::entries_of(folder);
  for (const std::string& entry : entries)
    if (is_image(entry) && !is_folder(entry)) images.push_back(entry);
  for (const std::string& entry : entries)
    if (is_folder(entry)) add_images(entry, open, images);
  open.erase(canonical);
}

}  // namespace

ImageFolder::ImageFolder(std::optional<transforms::ImageSize> size, const std::string& root) : size_(size) {
  GRADUS_CHECK(!size || (size->height > 0 && size->width > 0), ValueError,
               "ImageFolder needs a height and a width above 0, got ", size->height, " and ", size->width);
  GRADUS_CHECK(is_folder(root), IoError, "'", root,
               "' is not a folder; ImageFolder needs one with a subfolder for each class");
  auto list = std::make_shared<List>();
  list->root = root;
  for (const fs::path entry : detail::entries_of(root)) {
    if (!is_folder(entry)) continue;
    std::vector<std::string> images;
    std::set<fs::path> open;
    add_images(entry, open, images);
    GRADUS_CHECK(!images.empty(), IoError, "no .png, .jpg or .jpeg file in the class folder '", entry.string(), "'");
    for (std::string& image : images)
      list->samples.push_back({std::move(image), static_cast<int64_t>(list->classes.size())});
    list->classes.push_back(entry.filename().string());
  }
  GRADUS_CHECK(!list->classes.empty(), IoError, "no folder in '", root,
               "'; ImageFolder needs a subfolder for each class with its images");
  list_ = std::move(list);
}

Example<> ImageFolder::get(size_t index) {
  GRADUS_CHECK(index < *size(), IndexError, "sample ", index, " of a dataset of ", *size());
  const Sample& sample = list_->samples[index];
  const Tensor data = unit_floats(read_image(sample.path));
  return {size_ ? transforms::functional::resize(data, *size_) : data, tensor(sample.label)};
}

std::vector<std::string> ImageFolder::plan() const {
  std::string line = "images in '" + list_->root + "', " + std::to_string(*size()) + " files of " +
                     std::to_string(classes().size()) + " classes";
  if (size_) line += ", resized to " + std::to_string(size_->height) + "x" + std::to_string(size_->width);
  return {line};
}

}  // namespace gradus::data::datasets
