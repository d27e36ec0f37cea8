// Checkpoint saves everything that a training run needs to continue exactly in one file, and loads it again.
//
//   training::Checkpoint checkpoint;
//   checkpoint.add("model", *model).add("optimizer", sgd);
//   checkpoint.add("scheduler", schedule).add("generator", default_generator());
//   checkpoint.value("epoch", epoch).value("step", step).setting("batch size", batch_size);
//   if (resume) checkpoint.load("run.safetensors");
//   …
//   checkpoint.save("run.safetensors");     // if this fails, the old file remains intact
//
// A checkpoint file is a safetensors file with the tensors "model.fc.weight", "optimizer.state.0.exp_avg", … and
// metadata, which any reader of safetensors can show:
//   gradus:checkpoint   version of this layout       kind:<part>      type of the part
//   gradus:version      version of the library       value:<name>     a number or text
//   <tied tensor>       name it is stored under      setting:<name>   a setting of the run
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <typeinfo>
#include <vector>

#include <gradus/core/io/parse_number.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/core/runtime/random.h>
#include <gradus/layers/module/module.h>
#include <gradus/training/stopping.h>

namespace gradus::training {

/// The state of a part of a run: tensors by name.
using State = OrderedDict<std::string, Tensor>;
/// Texts by name.
using TextDict = OrderedDict<std::string, std::string>;

/// A part of a run that can save and load its state, such as a module, an optimizer, a scheduler or a loader. If the
/// state does not match the part, load_state_dict must throw and leave the part unchanged.
template <class Part>
concept Stateful = requires(Part& part, const Part& fixed, const State& state) {
  { fixed.state_dict() } -> std::convertible_to<State>;
  part.load_state_dict(state);
};

namespace detail {

/// The name of a type without template arguments, such as "gradus::optim::Adam".
std::string type_name(const std::type_info& type);

template <class T>
concept Number = std::is_arithmetic_v<T>;

/// Converts a number to text. from_text() converts the text back to exactly the same number, on any machine.
template <Number T>
std::string to_text(T number) {
  char text[32];
  if constexpr (std::is_same_v<T, bool>) return number ? "true" : "false";
  else return {text, std::to_chars(text, text + sizeof text, number).ptr};
}
inline std::string to_text(std::string text) { return text; }

/// Converts text to a number. Returns false if the text is not a number of this type.
template <Number T>
bool from_text(const std::string& text, T& number) {
  if constexpr (std::is_same_v<T, bool>) {
    number = text == "true";
    return number || text == "false";
  } else {
    const std::optional<T> parsed = io::parse_number<T>(text);
    if (parsed) number = *parsed;
    return parsed.has_value();
  }
}
inline bool from_text(const std::string& text, std::string& value) {
  value = text;
  return true;
}

}  // namespace detail

/// Holds references to the parts and values of a run, which must outlive the Checkpoint. Names must be unique and not
/// empty, and must not contain '.' or ':' (otherwise a ValueError).
class Checkpoint {
 public:
  // ---- Content of a checkpoint ----
  /// Adds a part of the run. A file can be loaded only if its part of this name has the same type, for example Adam.
  /// Modules are an exception: only the names and shapes of their parameters must be the same. Tied parameters are
  /// stored once.
  template <Stateful Part>
  Checkpoint& add(const std::string& name, Part& part) {
    std::string kind = std::derived_from<Part, nn::Module> ? "module" : detail::type_name(typeid(part));
    return add(
        name, std::move(kind), [&part]() -> State { return part.state_dict(); },
        [&part](const State& state) { part.load_state_dict(state); });
  }
  Checkpoint& add(const std::string& name, Generator& generator);
  /// Adds the values of a tensor, such as a running sum or a table.
  Checkpoint& add(const std::string& name, const Tensor& tensor);
  /// Adds any other part, by functions that save and load its state. `kind` is stored in the file, and must be the same
  /// when the file is loaded.
  Checkpoint& add(const std::string& name, std::string kind, std::function<State()> save,
                  std::function<void(const State&)> load);
  /// Adds a number or a text that save() stores and load() sets, such as the epoch or the best accuracy so far.
  template <class T>
  requires detail::Number<T> || std::same_as<T, std::string> Checkpoint& value(const std::string& name, T& value) {
    return add_value(
        name, [&value] { return detail::to_text(value); },
        [&value](const std::string& text) { return detail::from_text(text, value); });
  }
  /// Adds a setting, such as the batch size or the name of the model. load() does not change it, but throws if the run
  /// that saved the file had a different setting.
  template <class T>
  Checkpoint& setting(const std::string& name, const T& value) {
    return add_setting(name, detail::to_text(value));
  }

  // ---- Files ----
  /// Saves everything to a file. If this fails, throws an IoError, and the old file remains intact.
  void save(const std::string& path) const;
  /// Loads everything from a file. If there is an error, nothing of the run is changed. IoError: the file is missing,
  /// damaged, not a checkpoint file, or written by a library with another major or minor version (`any_version` allows
  /// this; the run's results may then differ in the last bits). ValueError: a part, a value or a setting is missing,
  /// unexpected or different. ShapeError: a tensor has another shape.
  void load(const std::string& path, bool any_version = false);
  /// Calls load(path) if the file exists. Returns whether it exists.
  bool load_if_there(const std::string& path, bool any_version = false);
  /// The same as save() and load(), but with bytes instead of a file, to send the state to another process of the same
  /// run.
  std::vector<std::byte> to_bytes() const;
  void from_bytes(std::span<const std::byte> bytes);
  /// Returns the entries that value() added to a checkpoint file, as text by name, without loading the checkpoint.
  static TextDict values_of(const std::string& path);

 private:
  struct Part {
    std::string name, kind;
    std::function<State()> save;
    std::function<void(const State&)> load;
  };
  struct Value {
    std::string name;
    std::function<std::string()> get;
    std::function<bool(const std::string&)> set;
  };
  using Contents = std::pair<io::NamedArrays, io::Metadata>;
  Contents contents() const;
  void take(const io::Safetensors& file, const std::string& path);
  Checkpoint& add_value(const std::string& name, std::function<std::string()> get,
                        std::function<bool(const std::string&)> set);
  Checkpoint& add_setting(const std::string& name, std::string text);

  std::vector<Part> parts_;
  std::vector<Value> values_;
  TextDict settings_;
};

// ---- A folder with the latest checkpoint files of a run and the best one ----
//
//   training::Rotation rotation(checkpoint, "runs/cifar10");
//   rotation.load_latest();
//   …
//   rotation.save(step, validation_loss);

class RotationOptions {
  /// The folder keeps this number of the latest files, and the best file.
  GRADUS_ARG(int64_t, keep_last) = 3;
  GRADUS_ARG(Mode, mode) = Mode::min;
};

/// Saves the files <directory>/step-<number>.safetensors and <directory>/best.safetensors, all of them checkpoint
/// files. Adds the best figure so far to the Checkpoint as the value "best figure", so that a resumed run knows it.
class Rotation : NoCopy {
 public:
  /// `checkpoint` must outlive this object. A keep_last below 1 is a ValueError.
  Rotation(Checkpoint& checkpoint, std::string directory, const RotationOptions& options = {});

  /// Saves the file of this step and removes the oldest files, so that keep_last files remain. Also saves the best file
  /// if `figure` is better than all figures before; NaN is never better. A negative step is a ValueError.
  void save(int64_t step, std::optional<double> figure = {});
  /// Loads the file with the highest step. Returns false if there is none.
  bool load_latest();
  /// Loads the best file. Returns false if there is none.
  bool load_best();

  /// Returns the paths of all files step-<number>.safetensors in the directory, sorted by step.
  std::vector<std::string> files() const;
  std::string best_path() const { return directory_ + "/best.safetensors"; }
  double best_figure() const { return best_figure_; }

 private:
  Checkpoint& checkpoint_;
  const std::string directory_;
  const RotationOptions options_;
  double best_figure_;
};

}  // namespace gradus::training
