// What a trained net makes of image files: --predict of the image examples.
#pragma once

#include <gradus/layers/module/containers.h>

#include <functional>
#include <string>
#include <vector>

#include <gradus/examples/common/run_options.h>

/// Makes of a photograph (3, H, W), values from 0 to 1, an image (C, h, w) as the net's training images are, not yet
/// normalised; and of that what the net takes.
struct Preparation {
  std::function<gradus::Tensor(const gradus::Tensor&)> crop, normalise;
};

/// Loads the weights of --init and prints the most probable classes of each file of --predict; predictions.html in
/// --out shows what the net saw. Returns the program's exit code.
int predict(const RunOptions& options, const gradus::nn::AnyModule& model, const std::vector<std::string>& classes,
            const Preparation& preparation);

/// The middle of a photograph, as large a square as there is, at side x side pixels.
gradus::Tensor centre_square(const gradus::Tensor& photograph, int64_t side);
