#include <gradus/training/checkpoint.h>

#include <bit>
#include <filesystem>
#include <map>

#include <gradus/autograd/ops/creation.h>
#include <gradus/core/platform/process.h>
#include <gradus/core/version.h>
#include <gradus/layers/module/containers.h>
#include <gradus/layers/module/serialize.h>
#include <gradus/optim/optimizer_options.h>

namespace gradus::training {
namespace {

constexpr const char* kLayout = "gradus:checkpoint";
constexpr const char* kLayoutVersion = "1";
constexpr const char* kLibrary = "gradus:version";
const std::string kKind = "kind:", kValue = "value:", kSetting = "setting:";

/// Returns "major.minor" of a version "major.minor.patch".
std::string series(const std::string& version) { return version.substr(0, version.rfind('.')); }

/// Returns the entries of the metadata whose keys begin with `prefix`, without the prefix.
TextDict with_prefix(const io::Metadata& metadata, const std::string& prefix) {
  TextDict found("Value");
  for (const auto& [key, text] : metadata)
    if (key.starts_with(prefix)) found.append(key.substr(prefix.size()), text);
  return found;
}

void check_layout(const io::Metadata& metadata, const std::string& path, bool any_version) {
  const auto entry = [&](const char* key) { return metadata.contains(key) ? metadata.at(key) : ""; };
  const std::string layout = entry(kLayout), library = entry(kLibrary);
  GRADUS_CHECK(!layout.empty(), IoError, "'", path,
               "' contains tensors but is not a checkpoint; load weights with load_safetensors(module, path)");
  GRADUS_CHECK(layout == kLayoutVersion, IoError, "'", path, "' has layout ", layout,
               " of checkpoints, written by gradus ", library, "; this is gradus ", version(), ", which reads layout ",
               kLayoutVersion);
  GRADUS_CHECK(any_version || series(library) == series(version()), IoError, "'", path, "' was written by gradus ",
               library, ", this is gradus ", version(), ": a continued run may differ from one with a single version; ",
               "load(path, /*any_version=*/true) accepts that");
}

/// Appends the differences between the entries of a checkpoint file and those of this run (`own`) to a message. If
/// `texts_too` is false, compares only the names.
void compare(gradus::detail::Message& differences, const char* what, const TextDict& file, const TextDict& own,
             bool texts_too = true) {
  for (const auto& item : own) {
    const std::string* text = file.find(item.key());
    if (!text) differences << "\n  the file has no " << what << " '" << item.key() << "'";
    else if (texts_too && *text != item.value())
      differences << "\n  " << what << " '" << item.key() << "' is " << *text << " in the file, " << item.value()
                  << " in this run";
  }
  for (const auto& item : file)
    if (!own.contains(item.key())) differences << "\n  this run has no " << what << " '" << item.key() << "'";
}

template <class Names>
void check_name(const std::string& name, const char* what, const Names& taken) {
  GRADUS_CHECK(!name.empty() && name.find_first_of(".:") == std::string::npos, ValueError, "a ", what,
               " of a checkpoint needs a name without '.' and ':', got '", name, "'");
  for (const auto& other : taken)
    GRADUS_CHECK(other.name != name, ValueError, "the checkpoint already has a ", what, " '", name, "'");
}

}  // namespace

std::string detail::type_name(const std::type_info& type) {
  const std::string name = platform::demangled(type);
  return name.substr(0, name.find('<'));
}

// ---- Content of a checkpoint ----

Checkpoint& Checkpoint::add(const std::string& name, std::string kind, std::function<State()> save,
                            std::function<void(const State&)> load) {
  check_name(name, "part", parts_);
  parts_.push_back({name, std::move(kind), std::move(save), std::move(load)});
  return *this;
}

Checkpoint& Checkpoint::add(const std::string& name, Generator& generator) {
  const auto save = [&generator] {
    State state("Key");
    state.append("seed", full({}, std::bit_cast<int64_t>(generator.seed()), dtype(kLong)));
    state.append("offset", full({}, std::bit_cast<int64_t>(generator.offset()), dtype(kLong)));
    return state;
  };
  const auto load = [&generator](const State& state) {
    optim::StateReader reader(state);
    const auto seed = std::bit_cast<uint64_t>(reader.get("seed").item<int64_t>());
    const auto offset = std::bit_cast<uint64_t>(reader.get("offset").item<int64_t>());
    reader.check_all_used("generator");
    generator.set_state(seed, offset);
  };
  return add(name, "generator", save, load);
}

Checkpoint& Checkpoint::add(const std::string& name, const Tensor& tensor) {
  const auto save = [tensor] {
    State state("Key");
    state.append("value", tensor.detach());
    return state;
  };
  const auto load = [tensor](const State& state) {
    optim::StateReader reader(state);
    const Tensor& value = reader.get("value");
    reader.check_all_used("tensor");
    GRADUS_CHECK(value.sizes() == tensor.sizes(), ShapeError, "'value' must have shape ", tensor.sizes(), ", has ",
                 value.sizes());
    const NoGradGuard no_grad;
    tensor.copy_(value);
  };
  return add(name, "tensor", save, load);
}

Checkpoint& Checkpoint::add_value(const std::string& name, std::function<std::string()> get,
                                  std::function<bool(const std::string&)> set) {
  check_name(name, "value", values_);
  values_.push_back({name, std::move(get), std::move(set)});
  return *this;
}

Checkpoint& Checkpoint::add_setting(const std::string& name, std::string text) {
  GRADUS_CHECK(!name.empty(), ValueError, "a setting of a checkpoint needs a name");
  settings_.insert(name, std::move(text));
  return *this;
}

// ---- Files ----

Checkpoint::Contents Checkpoint::contents() const {
  Contents contents{{}, {{"format", "pt"}, {kLayout, kLayoutVersion}, {kLibrary, version()}}};
  auto& [tensors, metadata] = contents;
  for (const Part& part : parts_) {
    metadata[kKind + part.name] = part.kind;
    nn::detail::store_state(part.save(), part.name + ".", tensors, metadata);
  }
  for (const Value& value : values_) metadata[kValue + value.name] = value.get();
  for (const auto& setting : settings_) metadata[kSetting + setting.key()] = setting.value();
  return contents;
}

void Checkpoint::save(const std::string& path) const {
  const OpContext context("save checkpoint");
  const auto [tensors, metadata] = contents();
  io::save_safetensors(path, tensors, metadata);
}

void Checkpoint::load(const std::string& path, bool any_version) {
  const auto read = [&] {
    const std::string title = "load checkpoint '" + path + "'";
    const OpContext context(title.c_str());
    check_layout(io::load_safetensors_metadata(path), path, any_version);
    return io::load_safetensors_with_metadata(path);
  };
  take(read(), path);
}

std::vector<std::byte> Checkpoint::to_bytes() const {
  const OpContext context("save checkpoint");
  const auto [tensors, metadata] = contents();
  return io::format_safetensors(tensors, metadata);
}

void Checkpoint::from_bytes(std::span<const std::byte> bytes) {
  const std::string name = "bytes of another process";
  const io::Safetensors file = io::parse_safetensors(bytes, name);
  check_layout(file.metadata, name, false);
  take(file, name);
}

void Checkpoint::take(const io::Safetensors& file, const std::string& path) {
  const std::string title = "load checkpoint '" + path + "'";
  {
    const OpContext context(title.c_str());
    gradus::detail::Message differences;
    compare(differences, "setting", with_prefix(file.metadata, kSetting), settings_);
    TextDict kinds, values;
    for (const Part& part : parts_) kinds.append(part.name, part.kind);
    for (const Value& value : values_) values.append(value.name, "");
    compare(differences, "part", with_prefix(file.metadata, kKind), kinds);
    compare(differences, "value", with_prefix(file.metadata, kValue), values, /*texts_too=*/false);
    for (const auto& [name, array] : file.tensors)
      if (!kinds.contains(name.substr(0, name.find('.')))) differences << "\n  this run has no tensor '" << name << "'";
    GRADUS_CHECK(differences.empty(), ValueError, "'", path, "' comes from another run:", differences);
  }

  // The code below changes parts. It keeps their old states, and restores them if a later part does not match.
  std::vector<State> old_states;
  std::vector<std::string> old_values;
  for (const Part& part : parts_) old_states.push_back(nn::detail::copy_of(part.save()));
  for (const Value& value : values_) old_values.push_back(value.get());
  size_t parts_changed = 0;
  try {
    for (const Part& part : parts_) {
      const std::string part_title = title + ": " + part.name;
      const OpContext context(part_title.c_str());
      ++parts_changed;
      part.load(nn::detail::stored_state(file, part.name + "."));
    }
    const OpContext context(title.c_str());
    for (const Value& value : values_) {
      const std::string& text = file.metadata.at(kValue + value.name);
      GRADUS_CHECK(value.set(text), ValueError, "value '", value.name, "' is not a number of its type: '", text, "'");
    }
  } catch (...) {
    for (size_t i = 0; i < parts_changed; ++i) parts_[i].load(old_states[i]);
    for (size_t i = 0; i < values_.size(); ++i) values_[i].set(old_values[i]);
    throw;
  }
}

bool Checkpoint::load_if_there(const std::string& path, bool any_version) {
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found) return false;
  load(path, any_version);
  return true;
}

TextDict Checkpoint::values_of(const std::string& path) {
  const OpContext context("read checkpoint");
  const io::Metadata metadata = io::load_safetensors_metadata(path);
  check_layout(metadata, path, true);
  return with_prefix(metadata, kValue);
}

// ---- Rotation ----

namespace {

const std::string kPrefix = "step-";

std::string file_name(int64_t step) { return kPrefix + std::to_string(step) + ".safetensors"; }

/// Returns the step in the name of a file, or -1 for another name.
int64_t step_of(const std::string& name) {
  int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const std::string number = name.substr(kPrefix.size(), name.find('.') - kPrefix.size());
  return detail::from_text(number, step) && file_name(step) == name ? step : -1;
}

}  // namespace

Rotation::Rotation(Checkpoint& checkpoint, std::string directory, const RotationOptions& options)
    : checkpoint_(checkpoint), directory_(std::move(directory)), options_(options),
      best_figure_(detail::worst_figure(options.mode())) {
  GRADUS_CHECK(options.keep_last() >= 1, ValueError, "keep_last must be at least 1, got ", options.keep_last());
  checkpoint_.value("best figure", best_figure_);
}

void Rotation::save(int64_t step, std::optional<double> figure) {
  GRADUS_CHECK(step >= 0, ValueError, "a checkpoint's step must not be negative, got ", step);
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  GRADUS_CHECK(!error, IoError, "cannot make the folder '", directory_, "': ", error.message());
  // Saves the best file first. If the process dies before the file of the step is saved, the run resumes from the file
  // before it, which has the old best figure, and saves the best file again.
  if (figure && detail::is_better(options_.mode(), *figure, best_figure_)) {
    best_figure_ = *figure;
    checkpoint_.save(best_path());
  }
  checkpoint_.save(directory_ + "/" + file_name(step));
  const std::vector<std::string> saved = files();
  for (size_t i = 0; i + static_cast<size_t>(options_.keep_last()) < saved.size(); ++i)
    std::filesystem::remove(saved[i], error);  // errors are ignored: the next save tries to remove the file again
}

bool Rotation::load_latest() {
  const std::vector<std::string> saved = files();
  if (saved.empty()) return false;
  checkpoint_.load(saved.back());
  return true;
}

bool Rotation::load_best() { return checkpoint_.load_if_there(best_path()); }

std::vector<std::string> Rotation::files() const {
  std::map<int64_t, std::string> found;
  std::error_code error;  // ignored: if the folder does not exist, there are no files
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error))
    if (const int64_t step = step_of(entry->path().filename().string()); step >= 0)
      found.emplace(step, entry->path().string());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace gradus::training
