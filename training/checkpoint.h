// Checkpoint: all that a run needs to go on as if nothing had happened, in one file.
//
//   training::Checkpoint checkpoint;
//   checkpoint.add("model", *model).add("optimizer", sgd).add("scheduler", schedule).add("generator", default_generator());
//   checkpoint.value("epoch", epoch).value("step", step).setting("batch size", batch_size);
//   if (resume) checkpoint.load("run.safetensors");
//   …
//   checkpoint.save("run.safetensors");     // the old file or the new one, whatever happens meanwhile
//
// The file is safetensors: tensors "model.fc.weight", "optimizer.state.0.exp_avg", …, and metadata that any reader
// shows:
//   gradus:checkpoint   version of this layout       kind:<part>      type of the part
//   gradus:version      version of the library       value:<name>     a number or text
//   <tied tensor>       where it is stored           setting:<name>   what the run was started with
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

#include <gradus/core/io/safetensors.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/core/runtime/random.h>
#include <gradus/layers/module.h>

namespace gradus::training {

/// Numbers by name.
using State = OrderedDict<std::string, Tensor>;

/// A part that gives its state and takes it back: modules, optimizers, schedulers, moving averages, loaders, …
/// load_state_dict throws, and leaves the part as it was, when the state does not fit.
template <class Part>
concept Stateful = requires(Part& part, const Part& fixed, const State& state) {
  { fixed.state_dict() } -> std::convertible_to<State>;
  part.load_state_dict(state);
};

namespace detail {

/// "gradus::optim::Adam", without template arguments.
std::string type_name(const std::type_info& type);

template <class T>
concept Number = std::is_arithmetic_v<T>;

/// Numbers as text that gives the same number back, on any machine.
template <Number T>
std::string to_text(T number) {
  char text[32];
  if constexpr (std::is_same_v<T, bool>) return number ? "true" : "false";
  else return {text, std::to_chars(text, text + sizeof text, number).ptr};
}
inline std::string to_text(const std::string& text) { return text; }
inline std::string to_text(const char* text) { return text; }

/// False for what is no such number.
template <Number T>
bool from_text(const std::string& text, T& number) {
  const char* const end = text.data() + text.size();
  if constexpr (std::is_same_v<T, bool>) return number = text == "true", text == "true" || text == "false";
  else return std::from_chars(text.data(), end, number) == std::from_chars_result{end, std::errc()};
}
inline bool from_text(const std::string& text, std::string& value) { return value = text, true; }

}  // namespace detail

/// Holds references: what was added must live as long as the checkpoint. Names are not empty, hold neither '.' nor ':',
/// and are given once; else a ValueError.
class Checkpoint {
 public:
  // ---- What a run consists of ----
  /// A part of any type; a file with another type of optimizer, scheduler, … is refused. Modules may be of any type
  /// whose parameters have the same names and shapes; tied parameters are stored once.
  template <Stateful Part>
  Checkpoint& add(const std::string& name, Part& part) {
    std::string kind = std::derived_from<Part, nn::Module> ? "module" : detail::type_name(typeid(part));
    return add(
        name, std::move(kind), [&part]() -> State { return part.state_dict(); },
        [&part](const State& state) { part.load_state_dict(state); });
  }
  Checkpoint& add(const std::string& name, Generator& generator);
  /// The numbers of a tensor: a running sum, a table.
  Checkpoint& add(const std::string& name, const Tensor& tensor);
  /// Something else, by functions that give its state and take it back.
  Checkpoint& add(const std::string& name, std::string kind, std::function<State()> save,
                  std::function<void(const State&)> load);
  /// A number, or text: the epoch, the best accuracy so far.
  template <class T>
  requires detail::Number<T> || std::same_as<T, std::string> Checkpoint& value(const std::string& name, T& value) {
    return add_value(
        name, [&value] { return detail::to_text(value); },
        [&value](const std::string& text) { return detail::from_text(text, value); });
  }
  /// What must be the same in the run that saves and in the one that loads: a batch size, the name of the model.
  template <class T>
  Checkpoint& setting(const std::string& name, const T& value) {
    return add_setting(name, detail::to_text(value));
  }

  // ---- Files ----
  /// Writes everything. IoError where that fails; the file that was there is still there then.
  void save(const std::string& path) const;
  /// Brings everything back. Nothing changes unless everything fits. IoError: no file, a broken one, one that is no
  /// checkpoint, one of another version of the library (unless `any_version`: what comes then may differ in the last
  /// bits). ValueError: a part, value or setting that is missing, unexpected or different; ShapeError: a tensor that
  /// is.
  void load(const std::string& path, bool any_version = false);
  /// load(path) if there is such a file.
  bool load_if_there(const std::string& path, bool any_version = false);
  /// What save() would write, and load() of it: for another process of the same run.
  std::vector<std::byte> to_bytes() const;
  void from_bytes(std::span<const std::byte> bytes);
  /// The values in a file, as text, without loading it.
  static OrderedDict<std::string, std::string> values_of(const std::string& path);

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
  struct Contents {
    std::vector<std::pair<std::string, Array>> tensors;
    io::Metadata metadata;
  };
  Contents contents() const;
  void take(const io::Safetensors& file, const std::string& path);
  Checkpoint& add_value(const std::string& name, std::function<std::string()> get,
                        std::function<bool(const std::string&)> set);
  Checkpoint& add_setting(const std::string& name, std::string text);

  std::vector<Part> parts_;
  std::vector<Value> values_;
  OrderedDict<std::string, std::string> settings_;
};

}  // namespace gradus::training
