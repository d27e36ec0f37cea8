// ImageRun trains and tests an image classifier for several epochs, with a log (run_log.h) and a checkpoint file. A run
// can be interrupted and resumed after any step; its result has the same bits as that of an uninterrupted run.
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
  /// `model` maps images (N, C, H, W) to logits (N, classes).
  ImageRun(RunOptions options, const Images& train_set, const Images& test_set, std::vector<std::string> class_names,
           gradus::nn::AnyModule model);

  // The parts of the run, which the program sets. The default loss is cross_entropy; without a schedule the learning
  // rate is constant.
  std::unique_ptr<gradus::optim::Optimizer> optimizer;
  std::unique_ptr<gradus::optim::LRScheduler> schedule;  ///< stepped after every step of the optimizer
  Loss loss;
  /// Trains on images that are already on the device, instead of loading the training set. Of these images it uses the
  /// first ones, as many as the training set has. Call it before operator().
  void train_on(gradus::data::DeviceImages images);
  /// Ends the run after `patience` epochs in which the loss of `validation_set` did not fall, and restores the best
  /// weights.
  void stop_early(const Images& validation_set, int64_t patience);
  /// Stores the normalisation of the images in the model file.
  void normalisation(const std::string& means, const std::string& deviations);
  /// Stores a setting of the program in the log and in the model file. Resuming from a checkpoint file with another
  /// value of the setting is an error.
  void setting(const std::string& name, const std::string& value) { settings_.emplace_back(name, value); }
  /// Number of steps in the whole run.
  int64_t steps() const { return options_.epochs * steps_per_epoch_; }

  /// Trains and tests until the last epoch or until Ctrl-C, or does what the options ask for instead. Returns the
  /// program's exit code.
  int operator()();

 private:
  /// The position of the run.
  struct Position {
    int epoch = 1;       // the running epoch, or the next one
    int64_t steps = 0;   // of the whole run
    int64_t images = 0;  // of this epoch, on all ranks together
    double lr = 0;       // in this epoch's first step
    double seconds = 0;  // duration of this epoch so far
    bool stopped_early = false;
  };

  gradus::nn::Module& model() const { return *model_.ptr(); }
  double lr() const { return optimizer->param_groups()[0].options().get_lr(); }
  bool done() const { return at_.epoch > options_.epochs || at_.stopped_early; }
  void describe_checkpoint();
  /// Prepares processes that have the same weights and position to train together as ranks.
  void begin_ranks();
  void save_checkpoint();
  /// True if one of the ranks was asked to stop.
  bool stop_requested(const gradus::training::Interrupt& interrupt);
  StepParts step_parts(const gradus::nn::AnyModule& model);
  void take_step(TrainingStep& step, const gradus::TensorList& batch);
  /// Makes only the training steps that --verify compares.
  void show_steps(gradus::dist::TrainingComparison& comparison);
  /// Explains a training step on the first batch: prints the explanation, or writes a web page.
  void explain_step();
  /// Trains until the run is complete (returns true) or interrupted (returns false).
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
  gradus::Tensor image_;  // an example image (1, C, H, W) for the export of the model
  std::optional<gradus::training::EarlyStopping> stopping_;
  RunLog::Settings settings_;
  gradus::io::Metadata notes_;                                // the metadata of the model file
  std::optional<gradus::dist::DistributedDataParallel> ddp_;  // only if there are several ranks
  Totals totals_;                                             // of this epoch
  gradus::amp::GradScaler scaler_;                            // scales the loss for float16 gradients
  Position at_;
  int planned_epochs_;                // number of epochs when the run was started
  int stop_signal_ = 0;               // the signal that asked one of the ranks to stop
  std::optional<TestResult> tested_;  // test result of the current weights
  gradus::training::Checkpoint checkpoint_;
};

/// Calls run() as the main function of a program. Prints an exception as a line on stderr and then returns exit code 1.
int run_example(const char* name, const std::function<int()>& run);
