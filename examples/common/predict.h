// --predict of the image examples: classifies image files with a trained net.
#pragma once

#include <gradus/layers/module/containers.h>

#include <functional>
#include <string>
#include <vector>

#include <gradus/examples/common/run_options.h>

/// Two functions that convert a photograph for a net: the first converts a photograph (3, H, W) with values from 0 to 1
/// to an image (C, h, w) like the training images, the second normalises it.
struct Preparation {
  std::function<gradus::Tensor(const gradus::Tensor&)> crop, normalise;
};

/// Loads the weights of --init and prints the most probable classes of each file of --predict. Writes predictions.html
/// in --out, which shows the images that the net classified. Returns the program's exit code.
int predict(const RunOptions& options, const gradus::nn::AnyModule& model, const std::vector<std::string>& classes,
            const Preparation& preparation);

/// Returns the largest square in the middle of a photograph, resized to side x side pixels.
gradus::Tensor centre_square(const gradus::Tensor& photograph, int64_t side);
