// EmbeddingBag, indices of adaptive maxima and pad_sequence, compared with values from PyTorch 1.13.
#include <gradus/gradus.h>
#include <gradus/layers/embedding.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/layers/printed.h>

using namespace gradus;
namespace F = nn::functional;
using test::contains;
using test::printed;

namespace {

/// Returns a tensor whose element i is sin(step i).
Tensor wave(const Shape& shape, double step = 0.7) {
  return (arange(0, numel_of(shape), kDouble) * step).sin().reshape(shape);
}

void check(const Tensor& x, const std::vector<double>& wanted, double tolerance = 1e-12) {
  REQUIRE(x.numel() == static_cast<int64_t>(wanted.size()));
  CHECK(x.reshape(-1).to(kDouble).allclose(tensor(wanted, kDouble), 0, tolerance));
}

}  // namespace

TEST_CASE("embedding_bag: sums, means and maxima of bags") {
  const Tensor weight = wave({6, 2}), indices = tensor({1, 3, 5, 3, 0, 2}), offsets = tensor({0, 2, 2});
  const auto options = F::EmbeddingBagFuncOptions().offsets(offsets).padding_idx(3);
  const std::vector<double> first = {0.9854497299884601, 0.8632093666488739, 0, 0};
  const auto with = [&](double a, double b) { return std::vector<double>{first[0], first[1], 0, 0, a, b}; };
  check(F::embedding_bag(indices, weight, F::EmbeddingBagFuncOptions(options).mode(kSum)),
        with(0.9919747488746942, 1.2816026934250715));
  check(F::embedding_bag(indices, weight, options), with(0.33065824962489804, 0.4272008978083572));
  check(F::embedding_bag(indices, weight, F::EmbeddingBagFuncOptions(options).mode(kMax)),
        with(0.6569865987187891, 0.9881682338770003));
  check(F::embedding_bag(indices, weight,
                         F::EmbeddingBagFuncOptions().offsets(offsets).mode(kSum).per_sample_weights(wave({6}, 0.3))),
        {-0.2575682523846801, -0.29033459911771575, 0, 0, 0.02238278212932776, 0.038911740176001464});
  check(F::embedding_bag(indices, weight,
                         F::EmbeddingBagFuncOptions().offsets(tensor({0, 2, 6})).include_last_offset(true)),
        {0.0569369787874362, -0.05962162298772933, 0.030099744115276605, 0.07478752020018471});
  check(F::embedding_bag(indices.reshape({2, 3}), weight),
        {0.2569535187645538, 0.2896416626338472, -0.1788625407525609, -0.2296727176920871});

  CHECK_THROWS_AS(F::embedding_bag(indices, weight), ShapeError);
  CHECK_THROWS_AS(F::embedding_bag(indices, weight, F::EmbeddingBagFuncOptions().offsets(tensor({0, 7}))), IndexError);
  CHECK_THROWS_AS(
      F::embedding_bag(indices.reshape({2, 3}), weight, F::EmbeddingBagFuncOptions().per_sample_weights(ones({2, 3}))),
      ValueError);
}

TEST_CASE("EmbeddingBag: its weight is trained except for the padding row") {
  nn::EmbeddingBag bag(nn::EmbeddingBagOptions(4, 3).mode(kSum).padding_idx(-1));
  CHECK(bag->weight[3].equal(zeros({3})));
  const Tensor indices = tensor({0, 3, 0, 1}), offsets = tensor({0, 3});
  bag(indices, offsets).sum().backward();
  CHECK(bag->weight.grad().sum(1).equal(tensor({6.0f, 3.0f, 0.0f, 0.0f})));
  CHECK(printed(bag) == "gradus::nn::EmbeddingBag(num_embeddings=4, embedding_dim=3, mode=kSum, padding_idx=3)");
  const auto table = nn::EmbeddingBag::from_pretrained(ones({2, 3}), false, kMax);
  CHECK(table->weight.requires_grad());
  CHECK(table(tensor({{0, 1}})).equal(ones({1, 3})));
}

TEST_CASE("adaptive max pooling returns indices") {
  const Tensor x = wave({2, 3, 5, 7}).set_requires_grad(true);
  nn::AdaptiveMaxPool2d pool(nn::AdaptiveMaxPool2dOptions({3, 2}));
  const auto [maxima, indices] = pool->forward_with_indices(x);
  CHECK(maxima.equal(pool(x)));
  CHECK(x.flatten(2).gather(2, indices.flatten(2)).equal(maxima.flatten(2)));
  const Tensor gradient = autograd::grad({maxima.square().sum()}, {x})[0];
  CHECK(gradient.equal(autograd::grad({pool(x).square().sum()}, {x})[0]));

  nn::AdaptiveMaxPool1d line(3);
  const auto [largest, places] = line->forward_with_indices(x[0].flatten(1));
  CHECK(largest.equal(line(x[0].flatten(1))));
  CHECK(x[0].flatten(1).gather(1, places).equal(largest));
  CHECK_THROWS_AS(pool->forward_with_indices(ones({3, 3})), ShapeError);
  for (const auto& size : {nn::AdaptiveMaxPool2dOptions({0, 2}), nn::AdaptiveMaxPool2dOptions({2, 0})}) {
    CHECK_THROWS_AS(F::adaptive_max_pool2d_with_indices(ones({1, 4, 4}), size), ValueError);
    CHECK_THROWS_WITH(F::adaptive_max_pool2d_with_indices(ones({1, 4, 4}), size), contains("must be positive"));
  }
}

TEST_CASE("pad_sequence combines sequences of different lengths") {
  const std::vector<Tensor> sequences = {ones({2, 3}), full({4, 3}, 2.0)};
  const Tensor padded = nn::utils::rnn::pad_sequence(sequences, true, -1);
  CHECK(padded.sizes() == Shape({2, 4, 3}));
  CHECK(padded[0].narrow(0, 2, 2).equal(full({2, 3}, -1.0)));
  CHECK(padded[1].equal(sequences[1]));
  CHECK(nn::utils::rnn::pad_sequence(sequences, false, -1).equal(padded.transpose(0, 1)));
  CHECK_THROWS_AS(nn::utils::rnn::pad_sequence({}), ValueError);
}
