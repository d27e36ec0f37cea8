#include <gradus/core/convolution_accuracy.h>

#include <thread>

#include <gradus/core/error.h>
#include <gradus/tests/catch.h>

using namespace gradus;

TEST_CASE("convolutions are exact by default") { CHECK(convolution_accuracy() == ConvolutionAccuracy::exact); }

TEST_CASE("set_convolution_accuracy is the process's choice, a guard its thread's") {
  const auto elsewhere = [] {
    ConvolutionAccuracy seen{};
    std::thread([&] { seen = convolution_accuracy(); }).join();
    return seen;
  };
  set_convolution_accuracy(ConvolutionAccuracy::winograd_2x2);
  CHECK(convolution_accuracy() == ConvolutionAccuracy::winograd_2x2);
  CHECK(elsewhere() == ConvolutionAccuracy::winograd_2x2);
  {
    ConvolutionAccuracyGuard outer(ConvolutionAccuracy::winograd_4x4);
    CHECK(convolution_accuracy() == ConvolutionAccuracy::winograd_4x4);
    CHECK(elsewhere() == ConvolutionAccuracy::winograd_2x2);
    {
      ConvolutionAccuracyGuard inner(ConvolutionAccuracy::exact);
      CHECK(convolution_accuracy() == ConvolutionAccuracy::exact);
      set_convolution_accuracy(ConvolutionAccuracy::exact);
    }
    CHECK(convolution_accuracy() == ConvolutionAccuracy::winograd_4x4);
  }
  CHECK(convolution_accuracy() == ConvolutionAccuracy::exact);
}

TEST_CASE("accuracies have names") {
  for (ConvolutionAccuracy accuracy :
       {ConvolutionAccuracy::exact, ConvolutionAccuracy::winograd_2x2, ConvolutionAccuracy::winograd_4x4})
    CHECK(convolution_accuracy_of(name(accuracy)) == accuracy);
  CHECK_THROWS_WITH(convolution_accuracy_of("fast"),
                    "no convolution accuracy 'fast'; there are: exact, winograd_2x2, winograd_4x4");
}
