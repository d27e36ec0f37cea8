#include <gradus/examples/common/model_file.h>

#include <CLI/CLI.hpp>

#include <gradus/layers/module/serialize.h>

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

std::optional<std::string> stored_setting(const RunOptions& options, const std::string& name) {
  if (options.init.empty()) return std::nullopt;
  const io::Metadata notes = io::load_safetensors_metadata(options.init);
  const auto found = notes.find("setting:" + name);
  return found == notes.end() ? std::nullopt : std::optional(found->second);
}

void adopt_setting(CLI::App& app, const RunOptions& options, const std::string& option, const std::string& name) {
  const std::optional<std::string> stored = stored_setting(options, name);
  if (!stored) return;
  CLI::Option* const given = app.get_option(option);
  if (given->count() == 0) {
    try {
      given->add_result(*stored);
      given->run_callback();
    } catch (const CLI::ParseError& error) {
      GRADUS_FAIL(IoError, "'", options.init, "' says of its net: ", error.what());
    }
  }
  GRADUS_CHECK(given->results()[0] == *stored, ValueError, option, " ", given->results()[0], ": '", options.init,
               "' holds a net with ", name, " ", *stored, ": leave out ", option);
}
