// One step of training, eager or captured in a CUDA graph.
#pragma once

#include <gradus/autograd/autograd.h>
#include <gradus/core/cuda.h>
#include <gradus/layers/any_module.h>
#include <gradus/optim/optim.h>

#include <functional>

/// From logits (N, classes) and classes (N) to a mean over the images.
using Loss = std::function<gradus::Tensor(const gradus::Tensor& logits, const gradus::Tensor& labels)>;

/// Loss and hits, summed over the images of an epoch. The sums live on the device: adding to them waits for nothing,
/// reading them does.
struct Totals {
  explicit Totals(gradus::Device device);
  void reset();
  /// Adds a batch: its mean loss, logits (N, classes) and classes (N).
  void add(const gradus::Tensor& batch_loss, const gradus::Tensor& logits, const gradus::Tensor& labels);

  gradus::Tensor loss, right;  // float64 and int64 scalars
};

/// step(images, labels) changes the weights by one batch.
class TrainingStep {
 public:
  /// With `graph`, steps of `batch_size` images are captured after a few eager ones, and replayed from then on; another
  /// number of images, the last batch of an epoch, goes the eager way. What is given must live as long as this.
  TrainingStep(const gradus::nn::AnyModule& model, const Loss& loss, gradus::optim::Optimizer& optimizer,
               Totals& totals, int64_t batch_size, bool graph);
  /// A batch on the CPU.
  void operator()(const gradus::Tensor& images, const gradus::Tensor& labels);

 private:
  void run(const gradus::Tensor& images, const gradus::Tensor& labels);
  void run_captured(const gradus::Tensor& images, const gradus::Tensor& labels);

  const gradus::nn::AnyModule& model_;
  const Loss& loss_;
  gradus::optim::Optimizer& optimizer_;
  Totals& totals_;
  const gradus::Device device_;
  const int64_t batch_size_;
  const bool graph_wanted_;
  int eager_steps_ = 0;
  gradus::Tensor images_, labels_;  // what the captured step reads
  gradus::cuda::Graph graph_;
};
