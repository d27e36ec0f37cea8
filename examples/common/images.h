// Labelled images for a net, and the result of testing a net on them.
#pragma once

#include <gradus/data/data.h>
#include <gradus/layers/module/containers.h>
#include <gradus/training/metrics.h>

#include <string>
#include <utility>
#include <vector>

#include <gradus/examples/common/ranks.h>

/// Images (C, H, W) with their classes, after any transforms.
using Images = gradus::data::datasets::AnyDataset<>;
/// Batches (N, C, H, W) of them, in random order or in their own.
using Batches = decltype(std::declval<Images&>().map(gradus::data::transforms::Stack<>()));
using TrainLoader = gradus::data::DataLoader<Batches, gradus::data::samplers::RandomSampler>;
using TestLoader = gradus::data::DataLoader<Batches, gradus::data::samplers::SequentialSampler>;

/// The number of images. Throws an IoError if there are none.
int64_t size_of(const Images& images);
/// The first `count` images, or all images if `count` is 0.
Images first(Images images, int count);

/// An image that the net classifies wrongly.
struct Mistake {
  double loss;
  gradus::Tensor image;  // (C, H, W), the input of the net
  int64_t label, predicted;
};

/// The result of testing a net.
struct TestResult {
  double loss = 0;  // mean over all images
  gradus::training::ConfusionMatrix confusion{1};
  std::vector<Mistake> mistakes;  // this rank's mistakes with the greatest loss, in descending order

  double accuracy() const { return confusion.accuracy(); }
  int64_t images() const { return confusion.matrix().sum().item<int64_t>(); }
  std::vector<double> class_accuracy() const;
  /// Prints a table of precision, recall and F1 of each class.
  void print_classes(const std::vector<std::string>& names) const;
  /// Returns an image with the mistakes side by side. Its values range from black to white.
  gradus::Tensor mistake_pictures() const;
  /// Writes test.json, which has the confusion matrix, and mistakes.png. scripts/report.py shows them.
  void save(const std::string& folder, const std::vector<std::string>& names) const;
};

/// Tests the model in evaluation mode, on this device, with all images of the loaders of all ranks. Classes are 0 to
/// classes - 1.
TestResult evaluate(const gradus::nn::AnyModule& model, TestLoader& loader, gradus::Device device, size_t classes,
                    const Ranks& ranks);
