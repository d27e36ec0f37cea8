// model.safetensors of an image example: weights and, in the file's metadata, a description of the net.
#pragma once

#include <gradus/core/io/safetensors.h>
#include <gradus/layers/module/module.h>

#include <optional>
#include <string>

#include <gradus/examples/common/run_options.h>

namespace CLI {
class App;
}

/// Writes the weights with `notes`: "program", "classes" (a JSON array), "mean", "deviation", "test_accuracy", and
/// "setting:<name>" for each setting of the training run.
void save_model(const gradus::nn::Module& model, const gradus::io::Metadata& notes, const std::string& path);
/// Loads the weights of the file of --init, if this option is given. If they do not fit the model, throws an error that
/// says which net the file is of.
void load_model(gradus::nn::Module& model, const RunOptions& options);

/// Returns a setting from the file of --init, or nothing if there is no such file or no such setting in it.
std::optional<std::string> stored_setting(const RunOptions& options, const std::string& name);
/// Sets `option` to the value of a setting in the file of --init, if the file has this setting. Used for settings that
/// determine the net. A value that is invalid for the option is an IoError; a different value on the command line is a
/// ValueError.
void adopt_setting(CLI::App& app, const RunOptions& options, const std::string& option, const std::string& name);
