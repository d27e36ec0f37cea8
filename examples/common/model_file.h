// model.safetensors of an image example: weights and, in the file's metadata, what they are the weights of.
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
/// "setting:<name>" of all that the net was trained with.
void save_model(const gradus::nn::Module& model, const gradus::io::Metadata& notes, const std::string& path);
/// Loads the weights of --init, if there is one. What does not fit is an error that says which net the file holds.
void load_model(gradus::nn::Module& model, const RunOptions& options);

/// A setting from the file of --init; nothing where there is no such file, or no such setting in it.
std::optional<std::string> stored_setting(const RunOptions& options, const std::string& name);
/// Gives `option` the value of a setting that decides about the net, from the file of --init, where it has it. A value
/// that the option does not take is an IoError, another one given on the command line a ValueError.
void adopt_setting(CLI::App& app, const RunOptions& options, const std::string& option, const std::string& name);
