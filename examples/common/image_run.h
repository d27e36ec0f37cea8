// A run of an image classifier: epochs of training and testing, what is kept of them (run_log.h), and a checkpoint. It
// can be interrupted and taken up again after any step, and ends with the same bits as if it had not been.
#pragma once

#include <gradus/optim/optim.h>
#include <gradus/training/training.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/examples/common/images.h>
#include <gradus/examples/common/progress.h>
#include <gradus/examples/common/ranks.h>
#include <gradus/examples/common/run_log.h>
#include <gradus/examples/common/run_options.h>
#include <gradus/examples/common/train_batches.h>
#include <gradus/examples/common/training_step.h>

class ImageRun {
 public:
  /// model: images (N, C, H, W) to logits (N, classes).
  ImageRun(RunOptions options, const Images& train_set, const Images& test_set, std::vector<std::string> class_names,
           gradus::nn::AnyModule model);

  // What the run is made of. Unless said otherwise the loss is cross_entropy and the learning rate stays as it is.
  std::unique_ptr<gradus::optim::Optimizer> optimizer;
  std::unique_ptr<gradus::optim::LRScheduler> schedule;  ///< stepped after every step of the optimizer
  Loss loss;
  /// Takes the training images from the device, as many of `images` as there were in the set. Before operator().
  void train_on(gradus::data::DeviceImages images);
  /// Ends the run after `patience` epochs in which the loss of `validation_set` did not fall, with the best weights.
  void stop_early(const Images& validation_set, int64_t patience);
  /// How the images were normalised: noted in the model file.
  void normalisation(const std::string& means, const std::string& deviations);
  /// Noted in the log and in the model file; a checkpoint of a run with another value is refused.
  void setting(const std::string& name, const std::string& value) { settings_.emplace_back(name, value); }
  /// Of the whole run.
  int64_t steps() const { return options_.epochs * steps_per_epoch_; }

  /// Trains and tests to the end, or until Ctrl-C; or whatever the options ask for instead. Returns the program's exit
  /// code.
  int operator()();

 private:
  /// How far the run has come.
  struct Position {
    int epoch = 1;       // that is running or comes next
    int64_t steps = 0;   // of the whole run
    int64_t images = 0;  // of this epoch, on all ranks
    double lr = 0;       // of this epoch's first step
    double seconds = 0;  // that this epoch has taken so far
    bool stopped_early = false;
  };

  gradus::nn::Module& model() const { return *model_.ptr(); }
  double lr() const { return optimizer->param_groups()[0].options().get_lr(); }
  bool done() const { return at_.epoch > options_.epochs || at_.stopped_early; }
  void describe_checkpoint();
  /// Makes of processes with the same weights and position ranks that train together.
  void begin_ranks();
  void save_checkpoint();
  /// True once one of the ranks has been asked to end.
  bool stop_requested(const gradus::training::Interrupt& interrupt);
  StepParts step_parts(const gradus::nn::AnyModule& model);
  void take_step(TrainingStep& step, const gradus::TensorList& batch);
  /// Makes the steps of --verify and nothing else.
  void show_steps(gradus::dist::TrainingComparison& comparison);
  /// Says what a training step on the first batch does, or writes a page of it.
  void explain_step();
  /// Trains until the run is done (true) or interrupted.
  bool train(RunLog& log, const gradus::training::Interrupt& interrupt);
  bool train_epoch(TrainingStep& step, Progress& progress, RunLog& log, const gradus::training::Interrupt& interrupt);
  void finish_epoch(TrainingStep& step, Progress& progress, RunLog& log);
  void finish();
  void stop();
  void save(const std::string& name) const;
  void show_test();
  TestResult test(TestLoader& loader) const;

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const RunOptions options_;
  const Ranks& ranks_ = options_.ranks;
  const gradus::Device device_;
  const std::vector<std::string> class_names_;
  gradus::nn::AnyModule model_;
  const int64_t train_images_, steps_per_epoch_;
  std::unique_ptr<TrainBatches> batches_;
  std::unique_ptr<TestLoader> test_loader_, validation_loader_;
  gradus::Tensor image_;  // (1, C, H, W), where the model is to be exported
  std::optional<gradus::training::EarlyStopping> stopping_;
  RunLog::Settings settings_;
  gradus::io::Metadata notes_;                                // for the model file
  std::optional<gradus::dist::DistributedDataParallel> ddp_;  // where there are several ranks
  Totals totals_;                                             // of this epoch
  gradus::amp::GradScaler scaler_;                            // of float16 gradients
  Position at_;
  int planned_epochs_;                // of the checkpoint's run
  int stop_signal_ = 0;               // by which one of the ranks was asked to end
  std::optional<TestResult> tested_;  // with the weights as they are
  gradus::training::Checkpoint checkpoint_;
};

/// A program's main: run(), and an exception becomes a line on stderr and exit code 1.
int run_example(const char* name, const std::function<int()>& run);
