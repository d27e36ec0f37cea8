// One step of training, eager or captured in a CUDA graph.
#pragma once

#include <gradus/core/cuda.h>
#include <gradus/optim/optim.h>

#include <gradus/examples/mnist/models.h>

/// Loss and hits, summed over the batches of an epoch. The sums live on the device: adding to them waits for nothing,
/// reading them does.
class Totals {
 public:
  explicit Totals(gradus::Device device);
  void reset();
  /// Adds a batch: its mean loss, logits (N, 10) and classes (N).
  void add(const gradus::Tensor& loss, const gradus::Tensor& logits, const gradus::Tensor& labels);
  double loss_sum() const { return loss_sum_.item<double>(); }
  int64_t correct() const { return correct_.item<int64_t>(); }
  /// The sums themselves, for checkpoints.
  const gradus::Tensor& loss_tensor() const { return loss_sum_; }
  const gradus::Tensor& correct_tensor() const { return correct_; }

 private:
  gradus::Tensor loss_sum_, correct_;
};

/// step(images, labels) changes the weights by one batch.
class TrainingStep {
 public:
  /// With `graph`, steps of `batch_size` images are captured after a few eager ones, and replayed from then on; another
  /// number of images, the last batch of an epoch, goes the eager way.
  TrainingStep(Classifier& model, gradus::optim::Optimizer& optimizer, gradus::Device device, int64_t batch_size,
               bool graph);
  /// A batch on the CPU.
  void operator()(const gradus::Tensor& images, const gradus::Tensor& labels);
  Totals& totals() { return totals_; }

 private:
  void run(const gradus::Tensor& images, const gradus::Tensor& labels);
  void run_captured(const gradus::Tensor& images, const gradus::Tensor& labels);

  Classifier& model_;
  gradus::optim::Optimizer& optimizer_;
  const gradus::Device device_;
  const int64_t batch_size_;
  const bool graph_wanted_;
  Totals totals_;
  int eager_steps_ = 0;
  gradus::Tensor images_, labels_;  // what the captured step reads
  gradus::cuda::Graph graph_;
};
