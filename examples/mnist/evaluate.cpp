#include <gradus/examples/mnist/evaluate.h>

#include <cstdio>
#include <numeric>

using namespace gradus;

namespace {

constexpr size_t kMistakes = 16;  // that are kept

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

std::vector<double> TestResult::class_accuracy() const {
  std::vector<double> shares;
  for (int label = 0; label < 10; ++label) shares.push_back(share(correct[label], images[label]));
  return shares;
}

void TestResult::print_classes() const {
  std::printf("accuracy by class:\n");
  for (int label = 0; label < 10; ++label)
    std::printf("  %d  %6.2f %%  (%lld of %lld)\n", label, 100 * share(correct[label], images[label]),
                static_cast<long long>(correct[label]), static_cast<long long>(images[label]));
}

void Evaluation::add(const Tensor& images, const Tensor& labels, const Tensor& logits) {
  const Tensor loss = cross_entropy(logits, labels.to(logits.device()), {}, Reduction::sum);
  sums_.loss += loss.item<double>();
  const Tensor predicted = logits.argmax(1).cpu();  // (N)
  for (int64_t i = 0; i < predicted.numel(); ++i) {
    const int64_t label = labels.data_ptr<int64_t>()[i];
    const bool right = predicted.data_ptr<int64_t>()[i] == label;
    ++sums_.images[label];
    sums_.correct[label] += right;
    if (!right && sums_.mistakes.size() < kMistakes) sums_.mistakes.push_back(images[i].clone());
  }
}

TestResult Evaluation::result() const {
  TestResult result = sums_;
  const int64_t images = std::accumulate(result.images, result.images + 10, int64_t{0});
  result.loss /= static_cast<double>(images);
  result.accuracy = share(std::accumulate(result.correct, result.correct + 10, int64_t{0}), images);
  return result;
}
