// Labelled images on their way to a net, and what the net makes of them.
#pragma once

#include <gradus/data/data.h>
#include <gradus/layers/module/containers.h>
#include <gradus/training/metrics.h>

#include <string>
#include <utility>
#include <vector>

#include <gradus/examples/common/ranks.h>

/// Images (C, H, W) with their classes, through whatever was mapped over them.
using Images = gradus::data::datasets::AnyDataset<>;
/// Batches (N, C, H, W) of them, in random order or in their own.
using Batches = decltype(std::declval<Images&>().map(gradus::data::transforms::Stack<>()));
using TrainLoader = gradus::data::DataLoader<Batches, gradus::data::samplers::RandomSampler>;
using TestLoader = gradus::data::DataLoader<Batches, gradus::data::samplers::SequentialSampler>;

/// How many there are; none is an IoError.
int64_t size_of(const Images& images);
/// The first `count` of them, or all where it is 0.
Images first(Images images, int count);

/// An image that a net takes for something else.
struct Mistake {
  double loss;
  gradus::Tensor image;  // (C, H, W), as the net gets it
  int64_t label, predicted;
};

/// What a net makes of test images.
struct TestResult {
  double loss = 0;  // mean over all images
  gradus::training::ConfusionMatrix confusion{1};
  std::vector<Mistake> mistakes;  // this rank's worst, the greatest loss first

  double accuracy() const { return confusion.accuracy(); }
  int64_t images() const { return confusion.matrix().sum().item<int64_t>(); }
  std::vector<double> class_accuracy() const;
  /// A table of it.
  void print_classes(const std::vector<std::string>& names) const;
  /// The mistakes side by side, from black to white.
  gradus::Tensor mistake_pictures() const;
  /// test.json, with the confusion matrix, and mistakes.png: what scripts/report.py shows.
  void save(const std::string& folder, const std::vector<std::string>& names) const;
};

/// Runs all that the loaders of all ranks have through the model, in evaluation mode and on this device. Classes are 0
/// to classes - 1.
TestResult evaluate(const gradus::nn::AnyModule& model, TestLoader& loader, gradus::Device device, size_t classes,
                    const Ranks& ranks);
