#include <gradus/core/convolution_accuracy.h>

#include <atomic>
#include <string>

#include <gradus/core/error.h>

namespace gradus {
namespace {

constexpr ConvolutionAccuracy kAll[] = {ConvolutionAccuracy::exact, ConvolutionAccuracy::winograd_2x2,
                                        ConvolutionAccuracy::winograd_4x4};

std::atomic<ConvolutionAccuracy> process_accuracy{ConvolutionAccuracy::exact};
thread_local std::optional<ConvolutionAccuracy> thread_accuracy;

}  // namespace

const char* name(ConvolutionAccuracy accuracy) {
  static constexpr const char* names[] = {"exact", "winograd_2x2", "winograd_4x4"};
  return names[static_cast<int>(accuracy)];
}

ConvolutionAccuracy convolution_accuracy_of(std::string_view wanted) {
  std::string known;
  for (ConvolutionAccuracy accuracy : kAll) {
    if (name(accuracy) == wanted) return accuracy;
    known += (known.empty() ? "" : ", ") + std::string(name(accuracy));
  }
  GRADUS_FAIL(ValueError, "no convolution accuracy '", wanted, "'; there are: ", known);
}

ConvolutionAccuracy convolution_accuracy() {
  return thread_accuracy.value_or(process_accuracy.load(std::memory_order_relaxed));
}

void set_convolution_accuracy(ConvolutionAccuracy accuracy) {
  process_accuracy.store(accuracy, std::memory_order_relaxed);
}

ConvolutionAccuracyGuard::ConvolutionAccuracyGuard(ConvolutionAccuracy accuracy) : previous_(thread_accuracy) {
  thread_accuracy = accuracy;
}

ConvolutionAccuracyGuard::~ConvolutionAccuracyGuard() { thread_accuracy = previous_; }

}  // namespace gradus
