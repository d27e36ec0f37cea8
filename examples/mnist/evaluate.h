// What a net makes of the test set.
#pragma once

#include <vector>

#include <gradus/examples/mnist/models.h>

struct TestResult {
  double loss = 0, accuracy = 0;
  int64_t images[10] = {}, correct[10] = {};  // by class
  std::vector<gradus::Tensor> mistakes;       // the first images (1, 28, 28) that were classified wrong

  std::vector<double> class_accuracy() const;
  /// A table of it.
  void print_classes() const;
};

/// Adds up results batch by batch.
class Evaluation {
 public:
  /// Labels (N) and images (N, 1, 28, 28) on the CPU, logits (N, 10) on any device.
  void add(const gradus::Tensor& images, const gradus::Tensor& labels, const gradus::Tensor& logits);
  TestResult result() const;

 private:
  TestResult sums_;
};

/// Runs all that `loader` has through the model, in evaluation mode.
template <class Loader>
TestResult evaluate(Classifier& model, Loader& loader, gradus::Device device) {
  const gradus::NoGradGuard no_grad;
  model.eval();
  Evaluation evaluation;
  for (auto& batch : loader) evaluation.add(batch.data, batch.target, model.forward(batch.data.to(device)));
  model.train();
  return evaluation.result();
}
