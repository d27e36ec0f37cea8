// One step of training: eager or captured in a CUDA graph, in float32 or in mixed precision.
#pragma once

#include <gradus/autograd/autograd.h>
#include <gradus/layers/module/any_module.h>
#include <gradus/optim/optim.h>
#include <gradus/training/replayed_step.h>

#include <functional>

#include <gradus/examples/common/ranks.h>
#include <gradus/examples/common/step_clock.h>
#include <gradus/examples/common/train_batches.h>

/// From logits (N, classes) and classes (N) to a mean over the images.
using Loss = std::function<gradus::Tensor(const gradus::Tensor& logits, const gradus::Tensor& labels)>;

/// Loss and hits, summed over this rank's images of an epoch. The sums live on the device: adding to them waits for
/// nothing, reading them does.
struct Totals {
  explicit Totals(gradus::Device device);
  void reset();
  /// Adds a batch: its mean loss, logits (N, classes) and classes (N).
  void add(const gradus::Tensor& batch_loss, const gradus::Tensor& logits, const gradus::Tensor& labels);

  /// Rank 0 gets the sums of all ranks; those of the others begin anew.
  void gather(const Ranks& ranks);
  double mean_loss() const { return loss.item<double>() / static_cast<double>(images); }

  gradus::Tensor loss, right;  // float64 and int64 scalars
  int64_t images = 0;
};

/// What a step works on and how. What it refers to must live as long as the step.
struct StepParts {
  const gradus::nn::AnyModule& model;
  const Loss& loss;
  gradus::optim::Optimizer& optimizer;
  gradus::amp::GradScaler& scaler;
  Totals& totals;
  const TrainBatches& batches;
  std::optional<gradus::DType> half;  // of autocast; nothing: float32
  int64_t batch_size = 0;             // of all ranks together
  bool graph = false;                 // capture steps of this size and replay them
};

class TrainingStep {
 public:
  explicit TrainingStep(StepParts parts);
  /// Changes the weights by this rank's part of one batch of `parts.batches`, which has so many images on all ranks.
  /// This rank's mean loss counts `weight` times in the average over the ranks.
  void operator()(const gradus::TensorList& batch, int64_t images_of_all, double weight);
  /// What the parts of the steps since the last call took; nothing where steps are captured, whose parts are one.
  std::optional<StepClock::Seconds> take_seconds();

 private:
  void run(const gradus::TensorList& batch);
  void mark(StepClock::Mark mark);

  const StepParts parts_;
  std::optional<StepClock> clock_;
  double weight_ = 1;
  bool checked_ = false;  // whether the first step has said what was forgotten
  gradus::training::CapturedStep step_;
};
