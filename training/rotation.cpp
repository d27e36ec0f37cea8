#include <gradus/training/rotation.h>

#include <algorithm>
#include <filesystem>

namespace gradus::training {
namespace {

const std::string kPrefix = "step-", kSuffix = ".safetensors";

/// The step in a file name, or -1 for other names.
int64_t step_of(const std::string& name) {
  int64_t step = -1;
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size())
    return -1;
  const std::string number = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  return detail::from_text(number, step) && std::to_string(step) == number ? step : -1;
}

}  // namespace

Rotation::Rotation(Checkpoint& checkpoint, std::string directory, const RotationOptions& options)
    : checkpoint_(checkpoint), directory_(std::move(directory)), options_(options),
      best_figure_(std::numeric_limits<double>::infinity() * (options.mode() == Mode::min ? 1 : -1)) {
  GRADUS_CHECK(options.keep_last() >= 1, ValueError, "keep_last must be at least 1, got ", options.keep_last());
  checkpoint_.value("best figure", best_figure_);
}

void Rotation::save(int64_t step, std::optional<double> figure) {
  GRADUS_CHECK(step >= 0, ValueError, "a checkpoint's step must not be negative, got ", step);
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  GRADUS_CHECK(!error, IoError, "cannot make the folder '", directory_, "': ", error.message());
  // The best checkpoint is saved first: if the process dies in between, it resumes from the last one, which has the old
  // best figure, and saves the best one again.
  if (figure && (options_.mode() == Mode::min ? *figure < best_figure_ : *figure > best_figure_)) {
    best_figure_ = *figure;
    checkpoint_.save(best_path());
  }
  checkpoint_.save(directory_ + "/" + kPrefix + std::to_string(step) + kSuffix);
  const std::vector<std::string> saved = files();
  for (size_t i = 0; i + static_cast<size_t>(options_.keep_last()) < saved.size(); ++i)
    std::filesystem::remove(saved[i], error);  // a file that cannot be removed now is tried again after the next save
}

bool Rotation::load_latest() {
  const std::vector<std::string> saved = files();
  if (saved.empty()) return false;
  checkpoint_.load(saved.back());
  return true;
}

bool Rotation::load_best() { return checkpoint_.load_if_there(best_path()); }

std::vector<std::string> Rotation::files() const {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code error;  // no files if there is no folder
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error))
    if (const int64_t step = step_of(entry->path().filename().string()); step >= 0)
      found.emplace_back(step, entry->path().string());
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace gradus::training
