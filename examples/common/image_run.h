// A run of an image classifier: epochs of training and testing, what is printed and logged of them, and a checkpoint from
// which the run goes on with the same bits as if it had not been interrupted.
//
// log.jsonl gets a line an epoch: epoch, train_loss, train_accuracy, test_loss, test_accuracy, test_images, lr, seconds,
// data_wait_seconds, and the settings of the run.
#pragma once

#include <gradus/gradus.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradus/examples/common/run_options.h>

/// Images (C, H, W) with their classes, through whatever was mapped over them.
using Images = gradus::data::datasets::AnyDataset<>;

class ImageRun {
 public:
  /// model: images (N, C, H, W) to logits (N, classes).
  ImageRun(RunOptions options, Images train_set, Images test_set, std::vector<std::string> class_names,
           gradus::nn::AnyModule model);

  // What the run is made of. Unless said otherwise the loss is cross_entropy and the learning rate stays as it is.
  std::unique_ptr<gradus::optim::Optimizer> optimizer;
  std::unique_ptr<gradus::optim::LRScheduler> schedule;  ///< stepped after every step of the optimizer
  std::function<gradus::Tensor(const gradus::Tensor& logits, const gradus::Tensor& labels)> loss;
  /// Ends the run after `patience` epochs in which the loss of `validation_set` did not fall, with the best weights.
  void stop_early(Images validation_set, int64_t patience);
  /// Noted in the log; a checkpoint of a run with another value is refused.
  void setting(const std::string& name, const std::string& value) { settings_.emplace_back(name, value); }
  int64_t steps() const { return options_.epochs * steps_per_epoch_; }

  /// Trains and tests to the end, or until Ctrl-C. Returns the program's exit code.
  int operator()();

 private:
  struct Result {
    double loss = 0;
    int64_t images = 0, right = 0;
    std::vector<int64_t> images_of_class, right_of_class;
    double accuracy() const { return static_cast<double>(right) / static_cast<double>(images); }
  };
  using Batches = decltype(std::declval<Images&>().map(gradus::data::transforms::Stack<>()));
  template <class Sampler>
  using Loader = gradus::data::DataLoader<Batches, Sampler>;
  using TestLoader = Loader<gradus::data::samplers::SequentialSampler>;

  void describe_checkpoint();
  bool train_epoch(const gradus::training::Interrupt& interrupt);
  Result evaluate(TestLoader& loader);
  void log(const Result& tested, double seconds);
  int stop(int exit_code) const;
  void print_classes(const Result& tested) const;
  void save_checkpoint() const;

  const RunOptions options_;
  const gradus::Device device_;
  const std::vector<std::string> class_names_;
  gradus::nn::AnyModule model_;
  std::unique_ptr<Loader<gradus::data::samplers::RandomSampler>> train_loader_;
  std::unique_ptr<TestLoader> test_loader_, validation_loader_;
  std::optional<gradus::training::EarlyStopping> stopping_;
  std::vector<std::pair<std::string, std::string>> settings_;
  gradus::training::Checkpoint checkpoint_;
  int64_t train_images_ = 0, steps_per_epoch_ = 0;
  // How far the run has come.
  int epoch_ = 1;
  int64_t seen_ = 0;             // images of this epoch
  gradus::Tensor loss_, right_;  // their sums, on the device: adding to them waits for nothing
};

/// The first `count` of them, or all where it is 0.
Images first(Images images, int count);

/// A program's main: run(), and an exception becomes a line on stderr and exit code 1.
int run_example(const char* name, const std::function<int()>& run);
