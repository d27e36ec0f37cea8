// gradus-info FILE…: shows what a file or folder written by gradus or another framework contains.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>

#include <gradus/core/io/npy.h>
#include <gradus/core/io/safetensors.h>

namespace {

using namespace gradus;

/// Prints pairs of names and descriptions in two columns.
void print_columns(const std::vector<std::pair<std::string, std::string>>& lines) {
  size_t width = 0;
  for (const auto& [name, text] : lines) width = std::max(width, name.size());
  for (const auto& [name, text] : lines)
    std::printf("  %-*s  %s\n", static_cast<int>(width), name.c_str(), text.c_str());
}

std::string text_of(DType dtype, const Shape& shape) { return std::string(name(dtype)) + " " + to_string(shape); }

void print_safetensors(const std::string& path) {
  const io::SafetensorsHeader header = io::read_safetensors_header(path);
  const auto note = [&](const char* key) {
    const auto found = header.metadata.find(key);
    return found == header.metadata.end() ? std::string() : found->second;
  };
  std::string kind = "tensors";
  if (!note("gradus:checkpoint").empty()) kind = "a checkpoint of a run, by gradus " + note("gradus:version");
  else if (!note("program").empty()) kind = "a net trained by " + note("program");
  std::printf("%s: %s (safetensors)\n", path.c_str(), kind.c_str());
  print_columns({header.metadata.begin(), header.metadata.end()});
  int64_t numbers = 0;
  uint64_t bytes = 0;
  std::vector<std::pair<std::string, std::string>> lines;
  for (const io::SafetensorsEntry& entry : header.entries) {
    numbers += numel_of(entry.shape);
    bytes += entry.end - entry.begin;
    lines.emplace_back(entry.name, text_of(entry.dtype, entry.shape));
  }
  std::printf("%lld numbers in %zu tensors, %s\n", static_cast<long long>(numbers), lines.size(),
              format_bytes(static_cast<int64_t>(bytes)).c_str());
  print_columns(lines);
}

/// Prints a checkpoint of several ranks (distributed/sharding/sharded_module.h).
void print_folder(const std::string& path) {
  const std::string index = path + "/index.json";
  GRADUS_CHECK(std::filesystem::exists(index), IoError, "'", path,
               "' is a folder without an index.json, so it is not a checkpoint of several ranks");
  const std::vector<std::byte> bytes = io::read_file(index);
  const auto json = nlohmann::json::parse(reinterpret_cast<const char*>(bytes.data()),
                                          reinterpret_cast<const char*>(bytes.data() + bytes.size()));
  std::printf("%s: a checkpoint of %d ranks, %zu tensors; rank 0's part:\n", path.c_str(), json.at("ranks").get<int>(),
              json.at("tensors").size());
  print_safetensors(path + "/rank_0." + json.at("save").get<std::string>() + ".safetensors");
}

void print_file(const std::string& path) {
  GRADUS_CHECK(std::filesystem::exists(path), IoError, "there is no '", path, "'");
  if (std::filesystem::is_directory(path)) return print_folder(path);
  const std::vector<std::byte> start = io::InputFile(path).start(6);
  const std::string_view magic(reinterpret_cast<const char*>(start.data()), start.size());
  if (magic != "\x93NUMPY" && !path.ends_with(".npy")) return print_safetensors(path);
  const Array array = io::load_npy(path);
  std::printf("%s: an array (NumPy)\n  %s\n", path.c_str(), text_of(array.dtype(), array.shape()).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) == "--help") {
    std::puts(
        "usage: gradus-info FILE...\n\nShows what a safetensors file, a checkpoint, a folder with a checkpoint of "
        "several ranks or a .npy file\ncontains: the run that wrote it, the run's settings, and the tensors.");
    return argc < 2 ? 2 : 0;
  }
  int failures = 0;
  for (int i = 1; i < argc; ++i) {
    try {
      print_file(argv[i]);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "gradus-info: %s\n", error.what());
      ++failures;
    }
  }
  return failures > 0;
}
