#include <gradus/examples/common/images.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include <gradus/autograd/autograd.h>

using namespace gradus;

namespace {

int64_t sum(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

int64_t size_of(const Images& images) {
  const size_t size = images.size().value_or(0);
  GRADUS_CHECK(size > 0, IoError, "there are no images to train on or to test with");
  return static_cast<int64_t>(size);
}

Images first(Images images, int count) {
  if (count == 0 || count >= size_of(images)) return images;
  std::vector<size_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), size_t{0});
  return data::datasets::Subset<Images>(std::move(images), std::move(indices));
}

std::vector<double> TestResult::class_accuracy() const {
  std::vector<double> shares;
  for (size_t label = 0; label < images.size(); ++label) shares.push_back(share(right[label], images[label]));
  return shares;
}

void TestResult::print_classes(const std::vector<std::string>& names) const {
  size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  std::printf("accuracy by class, %.2f %% of all:\n", 100 * accuracy);
  for (size_t label = 0; label < images.size(); ++label)
    std::printf("  %-*s %6.2f %%  (%lld of %lld)\n", static_cast<int>(width), names[label].c_str(),
                100 * share(right[label], images[label]), static_cast<long long>(right[label]),
                static_cast<long long>(images[label]));
}

TestResult evaluate(const nn::AnyModule& model, TestLoader& loader, Device device, size_t classes, const Ranks& ranks) {
  constexpr size_t kMistakes = 16;  // that are kept
  const NoGradGuard no_grad;
  model.ptr()->eval();
  TestResult result;
  double loss = 0;
  std::vector<double> counts(2 * classes);  // images of each class, and how many of them were classified right
  for (const auto& batch : loader) {
    const Tensor logits = model.forward(batch.data.to(device));  // (N, classes)
    loss += cross_entropy(logits, batch.target.to(device), {}, Reduction::sum).item<double>();
    const Tensor predicted = logits.argmax(1).cpu();  // (N)
    for (int64_t i = 0; i < predicted.numel(); ++i) {
      const auto label = static_cast<size_t>(batch.target.data_ptr<int64_t>()[i]);
      const bool right = predicted.data_ptr<int64_t>()[i] == batch.target.data_ptr<int64_t>()[i];
      ++counts[label];
      counts[classes + label] += right;
      if (!right && result.mistakes.size() < kMistakes) result.mistakes.push_back(batch.data[i].clone());
    }
  }
  model.ptr()->train();
  counts = ranks.sum(std::move(counts));
  const auto middle = counts.begin() + static_cast<std::ptrdiff_t>(classes);
  result.images.assign(counts.begin(), middle);
  result.right.assign(middle, counts.end());
  result.loss = ranks.sum({loss})[0] / static_cast<double>(sum(result.images));
  result.accuracy = share(sum(result.right), sum(result.images));
  return result;
}
