// Normalize: (x - mean) / deviation for each channel, or with one mean and deviation for all channels.
#include <gradus/autograd/autograd.h>
#include <gradus/data/data.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using namespace gradus;
using data::Example;
using data::transforms::Normalize;

namespace {

// Shape (3, 2, 4): the elements of channel c are 10 c, 10 c + 1, …
Tensor channels_of_tens() {
  const Tensor x = empty({3, 2, 4});
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] = static_cast<float>(10 * (i / 8) + i % 8);
  return x;
}

}  // namespace

TEST_CASE("Normalize takes each channel's mean and deviation") {
  const Tensor x = channels_of_tens();
  const Tensor mean = tensor({1.0, 2.0, 3.0}).view({3, 1, 1}), deviation = tensor({2.0, 4.0, 8.0}).view({3, 1, 1});
  Normalize<> normalize({1, 2, 3}, {2, 4, 8});
  CHECK(test::error(normalize(x), (x - mean) / deviation) <= 1e-6);
  const Tensor batch = stack({x, x * 2});  // (2, 3, 2, 4): the channels of every image are normalised
  CHECK(test::error(normalize.apply_stacked({batch, Tensor()}).data, (batch - mean) / deviation) <= 1e-6);
}

TEST_CASE("Normalize with one mean and one deviation applies them to all channels") {
  const Tensor x = channels_of_tens();
  Normalize<> normalize(3, 4);
  CHECK(test::error(normalize(x), (x - 3) / 4) <= 1e-6);
  CHECK(test::error(normalize.apply_stacked({x.unsqueeze(0), Tensor()}).data, (x.unsqueeze(0) - 3) / 4) <= 1e-6);
  CHECK(test::error(normalize(x[1]), (x[1] - 3) / 4) <= 1e-6);  // (H, W)
}

TEST_CASE("Normalize with equal means and different deviations differs by channel") {
  const Tensor x = ones({2, 1, 1});
  Normalize<> normalize({0, 0}, {1, 2});
  const Tensor y = normalize(x);
  CHECK(y[0].item<double>() == 1);
  CHECK(y[1].item<double>() == 0.5);
}

TEST_CASE("Normalize refuses images of another type or number of channels") {
  const Tensor x = channels_of_tens();
  CHECK_THROWS_WITH(Normalize<>(0, 1)(x.to(kDouble)), test::contains("Normalize needs float32 images, got float64"));
  CHECK_THROWS_WITH(Normalize<>({1, 2}, {1, 2})(x),
                    test::contains("Normalize has 2 means, got images of shape (3, 2, 4)"));
  CHECK_THROWS_AS(Normalize<>({1, 2}, {1, 2})(x[0]), ShapeError);  // two rows, but no channels
  CHECK(Normalize<>(0, 1)(tensor({1.f, 2.f})).equal(tensor({1.f, 2.f})));
  const std::vector<double> none;
  CHECK_THROWS_WITH(Normalize<>(none, none), test::contains("as many means as deviations, got 0 and 0"));
  CHECK_THROWS_WITH(Normalize<>({1, 2}, {1}), test::contains("got 2 and 1"));
  for (const double deviation : {0.0, -1.0})
    CHECK_THROWS_WITH(Normalize<>({1, 2}, {1, deviation}), test::contains("Normalize needs deviations above 0, got "));
  CHECK(Normalize<>({1, 0.25}, {2, 1e-7}).describe() == "Normalize(mean 1, 0.25; deviation 2, 1e-07)");
}

TEST_CASE("Stack refuses examples that differ") {
  using Examples = std::vector<Example<>>;
  data::transforms::Stack<> stack_examples;
  const Tensor a = ones({2, 3}), label = tensor(1);
  const Example<> both = stack_examples.apply_batch(Examples{{a, label}, {a.t().contiguous().t() * 2, label + 1}});
  CHECK(both.data.equal(stack({a, a * 2})));
  CHECK(both.target.equal(tensor({1, 2})));
  CHECK_THROWS_WITH(stack_examples.apply_batch(Examples()), test::contains("Stack needs at least one example"));
  CHECK_THROWS_WITH(stack_examples.apply_batch(Examples{{a, label}, {ones({3, 2}), label}}),
                    test::contains("examples of one shape, got (2, 3) and (3, 2)"));
  CHECK_THROWS_WITH(stack_examples.apply_batch(Examples{{a, label}, {a.to(kDouble), label}}),
                    test::contains("examples of one dtype, got float32 and float64"));
}
