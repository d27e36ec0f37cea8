// A run: epochs of steps and tests, and what is kept of them. It can be interrupted and taken up again after any step, and
// ends with the same bits as if it had not been.
#pragma once

#include <gradus/gradus.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include <gradus/examples/common/progress.h>
#include <gradus/examples/mnist/curves.h>
#include <gradus/examples/mnist/log.h>
#include <gradus/examples/mnist/models.h>
#include <gradus/examples/mnist/options.h>
#include <gradus/examples/mnist/training_step.h>

template <class TrainLoader, class TestLoader>
class TrainingRun {
 public:
  /// A new run over `images` training images, or one that goes on from options.checkpoint.
  TrainingRun(const Options& options, TrainLoader& train_loader, TestLoader& test_loader, int64_t images)
      : options_(options), device_(options.device), train_loader_(train_loader), test_loader_(test_loader),
        images_(images), model_(make_model(options.model)) {
    model_->to(device_);
    make_optimizer();
    step_.emplace(*model_, *optimizer_, device_, options_.batch_size, options_.graph);
    describe_checkpoint();
    resumed_ = options_.resume && checkpoint_.load_if_there(options_.checkpoint);
    std::filesystem::create_directories(options_.out);
    log_.emplace(options_.out + "/log.jsonl", options_, at_.epoch - 1);
    curves_.emplace(options_, at_.steps);
  }

  /// Trains to the end or until Ctrl-C. Returns the program's exit code.
  int operator()() {
    print_beginning();
    const gradus::training::Interrupt interrupt;
    while (at_.epoch <= options_.epochs && !interrupt.requested()) {
      Progress progress(at_.epoch, options_.epochs, images_, at_.seconds, options_.quiet);
      train_epoch(progress, interrupt);
      if (interrupt.requested()) break;
      finish_epoch(progress);
    }
    if (at_.epoch <= options_.epochs) {
      stop();
      return interrupt.exit_code();
    }
    finish();
    return 0;
  }

 private:
  /// How far the run has come.
  struct Position {
    int epoch = 1;       // that is running or comes next
    int64_t steps = 0;   // of the whole run
    int64_t images = 0;  // of this epoch
    double lr = 0;       // of this epoch's first step
    double seconds = 0;  // that this epoch has taken so far
  };

  void make_optimizer() {
    using namespace gradus::optim;
    if (options_.optimizer == "adam")
      optimizer_ = std::make_unique<Adam>(model_->parameters(), AdamOptions(options_.lr));
    else optimizer_ = std::make_unique<SGD>(model_->parameters(), SGDOptions(options_.lr).momentum(0.9));
    const int64_t steps_per_epoch = (images_ + options_.batch_size - 1) / options_.batch_size;
    if (options_.schedule == "cosine")
      scheduler_ = std::make_unique<CosineAnnealingLR>(*optimizer_, options_.epochs * steps_per_epoch);
  }

  void describe_checkpoint() {
    checkpoint_.add("model", *model_).add("optimizer", *optimizer_).add("loader", train_loader_);
    if (scheduler_) checkpoint_.add("scheduler", *scheduler_);
    checkpoint_.add("generator", gradus::default_generator());
    checkpoint_.add("loss", step_->totals().loss_tensor()).add("correct", step_->totals().correct_tensor());
    checkpoint_.value("epoch", at_.epoch).value("steps", at_.steps).value("images", at_.images);
    checkpoint_.value("lr", at_.lr).value("seconds", at_.seconds);
    // What must be the same in the run that goes on.
    checkpoint_.setting("model", options_.model).setting("backend", options_.backend).setting("seed", options_.seed);
    checkpoint_.setting("batch size", options_.batch_size).setting("learning rate", options_.lr);
    checkpoint_.setting("data", options_.synthetic ? "synthetic" : "mnist").setting("training images", images_);
    checkpoint_.setting("augment", options_.augment).setting("schedule", options_.schedule);
    if (scheduler_) checkpoint_.setting("epochs", options_.epochs);  // where the schedule ends
  }

  double mean_loss() { return step_->totals().loss_sum() / static_cast<double>(at_.images); }
  double lr() const { return optimizer_->param_groups()[0].options().get_lr(); }
  void save_checkpoint() const {
    if (!options_.checkpoint.empty()) checkpoint_.save(options_.checkpoint);
  }

  void train_epoch(Progress& progress, const gradus::training::Interrupt& interrupt) {
    constexpr int64_t kStepsPerPoint = 50;  // of the curves
    if (at_.images == 0) {
      step_->totals().reset();
      at_.lr = lr();
    }
    for (auto& batch : train_loader_) {
      (*step_)(batch.data, batch.target);
      if (scheduler_) scheduler_->step();
      ++at_.steps;
      at_.images += batch.data.size(0);
      at_.seconds = progress.seconds();
      if (interrupt.requested()) break;
      if (progress.due()) progress.show(at_.images, mean_loss());
      if (curves_->wanted() && at_.steps % kStepsPerPoint == 0) curves_->show(at_.steps, mean_loss(), lr());
      if (options_.checkpoint_every > 0 && at_.steps % options_.checkpoint_every == 0) save_checkpoint();
    }
  }

  void finish_epoch(Progress& progress) {
    EpochResult result;
    result.epoch = at_.epoch;
    result.lr = at_.lr;
    result.train_loss = mean_loss();
    result.train_accuracy = static_cast<double>(step_->totals().correct()) / static_cast<double>(images_);
    result.seconds = progress.seconds();
    result.images_per_second = static_cast<double>(images_) / result.seconds;
    result.data_wait_seconds = train_loader_.wait_seconds();
    tested_ = evaluate(*model_, test_loader_, device_);
    result.test = *tested_;
    result.test_seconds = progress.seconds() - result.seconds;
    progress.finish();
    log_->write(result);
    curves_->show(at_.steps, result, *model_);
    if (!options_.quiet) print_epoch(result);

    ++at_.epoch;
    at_.images = 0, at_.seconds = 0;
    save_checkpoint();
  }

  void stop() const {
    std::printf("\n");
    if (options_.checkpoint.empty()) {
      std::printf("stopped after step %lld; nothing is saved (--checkpoint FILE would have)\n", as_long(at_.steps));
      return;
    }
    save_checkpoint();
    std::printf("stopped after step %lld and saved; to go on:\n  %s%s\n", as_long(at_.steps), options_.command.c_str(),
                options_.resume ? "" : " --resume");
  }

  void finish() {
    const std::string path = options_.out + "/model.safetensors";
    gradus::save_safetensors(*model_, path);
    if (options_.quiet) return;
    if (!tested_) tested_ = evaluate(*model_, test_loader_, device_);  // the checkpoint was of the end
    tested_->print_classes();
    std::printf("wrote %s and %s/log.jsonl\n", path.c_str(), options_.out.c_str());
  }

  void print_beginning() const {
    if (options_.quiet) return;
    std::printf("%s, %lld parameters, on %s (%s); %lld images to train on\n", options_.model.c_str(),
                as_long(model_->num_parameters()), options_.device.c_str(), options_.backend.c_str(), as_long(images_));
    if (resumed_) std::printf("going on from %s, after step %lld\n", options_.checkpoint.c_str(), as_long(at_.steps));
  }

  void print_epoch(const EpochResult& result) const {
    std::printf(
        "epoch %d/%d  train loss %.4f error %.2f %%  test loss %.4f error %.2f %%  %.1f s, %.0f images/s, "
        "%.2f s waiting for data\n",
        result.epoch, options_.epochs, result.train_loss, 100 - 100 * result.train_accuracy, result.test.loss,
        100 - 100 * result.test.accuracy, result.seconds, result.images_per_second, result.data_wait_seconds);
    std::fflush(stdout);
  }

  static long long as_long(int64_t number) { return number; }

  const Options options_;
  const gradus::Device device_;
  TrainLoader& train_loader_;
  TestLoader& test_loader_;
  const int64_t images_;
  const std::shared_ptr<Classifier> model_;
  std::unique_ptr<gradus::optim::Optimizer> optimizer_;
  std::unique_ptr<gradus::optim::LRScheduler> scheduler_;
  std::optional<TrainingStep> step_;
  Position at_;
  gradus::training::Checkpoint checkpoint_;
  bool resumed_ = false;
  std::optional<Log> log_;
  std::optional<Curves> curves_;
  std::optional<TestResult> tested_;  // of the last epoch
};
