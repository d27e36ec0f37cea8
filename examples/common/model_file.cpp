#include <gradus/examples/common/model_file.h>

#include <CLI/CLI.hpp>

#include <gradus/layers/serialize.h>
#include <gradus/training/checkpoint.h>

using namespace gradus;

void save_model(const nn::Module& model, const io::Metadata& notes, const std::string& path) {
  std::vector<std::pair<std::string, Array>> tensors;
  for (const auto& item : model.state_dict()) tensors.emplace_back(item.key(), item.value().array());
  io::save_safetensors(path, tensors, notes);
}

void load_model(nn::Module& model, const RunOptions& options) {
  if (options.init.empty()) return;
  try {
    load_safetensors(model, options.init);
  } catch (const Error& error) {
    const io::Metadata notes = io::load_safetensors_metadata(options.init);
    const auto program = notes.find("program");
    GRADUS_FAIL(ValueError, "--init ", options.init, " does not fit this net: ", error.what(),
                program == notes.end() ? "" : "; the file is from " + program->second);
  }
}

void adopt_setting(const CLI::App& app, const RunOptions& options, const std::string& option, const std::string& name,
                   std::string& value) {
  if (options.init.empty()) return;
  const io::Metadata notes = io::load_safetensors_metadata(options.init);
  const auto found = notes.find("setting:" + name);
  if (found == notes.end()) return;
  GRADUS_CHECK(app.count(option) == 0 || value == found->second, ValueError, option, " ", value, ": '", options.init,
               "' holds a net with ", name, " ", found->second, ": leave out ", option);
  value = found->second;
}

void adopt_setting(const CLI::App& app, const RunOptions& options, const std::string& option, const std::string& name,
                   int& value) {
  std::string text = std::to_string(value);
  adopt_setting(app, options, option, name, text);
  GRADUS_CHECK(training::detail::from_text(text, value), IoError, "'", options.init, "' has the ", name, " '", text,
               "', which is no number");
}
