// TrainingStep: a training step that is eager or captured in a CUDA graph, in float32 or in mixed precision.
#pragma once

#include <gradus/autograd/autograd.h>
#include <gradus/layers/module/containers.h>
#include <gradus/optim/optim.h>
#include <gradus/training/replayed_step.h>

#include <functional>

#include <gradus/examples/common/ranks.h>
#include <gradus/examples/common/step_clock.h>
#include <gradus/examples/common/train_batches.h>

/// Computes the mean loss over the images from logits (N, classes) and classes (N).
using Loss = std::function<gradus::Tensor(const gradus::Tensor& logits, const gradus::Tensor& labels)>;

/// Sums of the loss and of correct predictions over this rank's images of an epoch. The sums are on the device: adding
/// to them does not wait for the device, but reading them does.
struct Totals {
  explicit Totals(gradus::Device device);
  void reset();
  /// Adds a batch: its mean loss, logits (N, classes) and classes (N).
  void add(const gradus::Tensor& batch_loss, const gradus::Tensor& logits, const gradus::Tensor& labels);

  /// Adds the sums of all ranks to those of rank 0, and sets the sums of the other ranks to 0.
  void gather(const Ranks& ranks);
  double mean_loss() const { return loss.item<double>() / static_cast<double>(images); }

  gradus::Tensor loss, right;  // float64 and int64 scalars
  int64_t images = 0;
};

/// The parts and options of a training step. Objects that it refers to must outlive the step.
struct StepParts {
  const gradus::nn::AnyModule& model;
  const Loss& loss;
  gradus::optim::Optimizer& optimizer;
  gradus::amp::GradScaler& scaler;
  Totals& totals;
  const TrainBatches& batches;
  std::optional<gradus::DType> half;  // the type for autocast; none: float32
  int64_t batch_size = 0;             // of all ranks together
  bool graph = false;                 // whether steps with `batch_size` images are captured and replayed
};

class TrainingStep {
 public:
  explicit TrainingStep(StepParts parts);
  /// Trains on this rank's part of a batch of `parts.batches`. The batch has `images_of_all` images on all ranks
  /// together. This rank's mean loss has the weight `weight` in the mean over the ranks.
  void operator()(const gradus::TensorList& batch, int64_t images_of_all, double weight);
  /// Durations of the parts of the steps since the last call. None if steps are captured, because the parts of a
  /// captured step cannot be separated.
  std::optional<StepClock::Seconds> take_seconds();

 private:
  void run(const gradus::TensorList& batch);
  void mark(StepClock::Mark mark);

  const StepParts parts_;
  std::optional<StepClock> clock_;
  double weight_ = 1;
  bool checked_ = false;  // true after the first step, which warns about common mistakes
  gradus::training::CapturedStep step_;
};
