#include <gradus/data/datasets/find_data.h>

#include <cstdlib>
#include <filesystem>

namespace gradus::data::detail {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string find_below(const std::string& root, const std::vector<std::string>& subfolders,
                       const std::function<bool(const std::string&)>& holds) {
  if (holds(root)) return root;
  for (const std::string& subfolder : subfolders)
    if (holds(root + "/" + subfolder)) return root + "/" + subfolder;
  return "";
}

std::string find_folder(const std::string& directory, const std::vector<std::string>& subfolders,
                        const std::function<bool(const std::string&)>& holds) {
  std::vector<std::string> places = {directory};
  if (directory.empty()) {
    const char* variable = std::getenv("GRADUS_DATA");
    places = {variable ? variable : "", "data", "../shared/data"};
  }
  for (const std::string& place : places) {
    if (place.empty()) continue;
    if (const std::string folder = find_below(place, subfolders, holds); !folder.empty()) return folder;
  }
  return "";
}

std::string unpack_hint(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (is_file(path + ".xz")) return "; unpack it: xz -dk '" + path + ".xz'";
    if (is_file(path + ".gz")) return "; unpack it: gzip -dk '" + path + ".gz'";
  }
  return "";
}

}  // namespace gradus::data::detail
