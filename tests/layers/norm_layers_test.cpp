// Normalisation layers and embeddings: running statistics, padding rows, options and errors.
#include <gradus/autograd/autograd.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/layers/printed.h>

using namespace gradus;
using gradus::test::printed;
using test::contains;

namespace {

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("batch normalisation of a slice of channels-last images is channels-last, as are its gradients") {
  manual_seed(1);
  nn::BatchNorm2d norm(4);
  const Tensor images = randn({2, 7, 3, 5}).contiguous(MemoryFormat::channels_last);
  const Tensor slice = images.narrow(1, 2, 4).detach().requires_grad_();
  const Tensor copy = slice.detach().clone().requires_grad_();
  const Tensor y = norm(slice), expected = norm(copy), dy = randn({2, 4, 3, 5});
  CHECK(y.array().is_channels_last());
  CHECK(y.allclose(expected, 1e-5, 1e-6));
  const Tensor dx = autograd::grad({y}, {slice}, {dy})[0];
  CHECK(dx.array().is_channels_last());
  CHECK(dx.allclose(autograd::grad({expected}, {copy}, {dy})[0], 1e-5, 1e-6));
}

TEST_CASE("batch normalisation tracks the batches it sees in training and uses them in evaluation") {
  manual_seed(1);
  nn::BatchNorm2d norm(3);
  CHECK(norm->named_parameters().keys() == Names{"weight", "bias"});
  CHECK(norm->named_buffers().keys() == Names{"running_mean", "running_var", "num_batches_tracked"});
  const Tensor x = randn({4, 3, 5, 5}) * 2 + 1;
  const Tensor y = norm(x);
  const Tensor mean = x.mean({0, 2, 3}), var = x.var({0, 2, 3}, true);
  CHECK(norm->running_mean.allclose(0.1 * mean, 1e-4, 1e-5));
  CHECK(norm->running_var.allclose(0.9 + 0.1 * var, 1e-4, 1e-5));
  CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
  CHECK(y.detach().mean({0, 2, 3}).allclose(zeros({3}), 0, 1e-5));

  norm->eval();
  const Tensor before = norm->running_mean.clone();
  const Tensor expected =
      (x - norm->running_mean.view({1, 3, 1, 1})) / (norm->running_var.view({1, 3, 1, 1}) + 1e-5).sqrt();
  CHECK(norm(x).detach().allclose(expected, 1e-4, 1e-5));
  CHECK(norm->running_mean.equal(before));
  CHECK(norm->num_batches_tracked.item<int64_t>() == 1);

  norm->reset_running_stats();
  CHECK(norm->running_var.equal(ones({3})));
  CHECK(norm->num_batches_tracked.item<int64_t>() == 0);

  // All buffers are moved and saved with the module; the counter remains an integer.
  norm->to(kDouble);
  CHECK(norm->running_mean.dtype() == kDouble);
  CHECK(norm->num_batches_tracked.dtype() == kLong);
  CHECK(norm->state_dict().keys() == Names{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"});
  auto copy = std::dynamic_pointer_cast<nn::BatchNorm2dImpl>(norm->clone());
  CHECK_FALSE(copy->running_mean.is_same(norm->running_mean));
  CHECK(copy->running_mean.is_same(copy->named_buffers()["running_mean"]));
}

TEST_CASE("BNReLU2d equals batch normalisation, sum and ReLU, and its files those of BatchNorm2d") {
  manual_seed(3);
  nn::BatchNorm2d norm(3);
  nn::BNReLU2d fused(3);
  nn::init::normal_(norm->weight), nn::init::normal_(norm->bias);
  fused->load_state_dict(norm->state_dict());
  CHECK(fused->state_dict().keys() == norm->state_dict().keys());
  const Tensor x = randn({4, 3, 5, 5}), residual = randn({4, 3, 5, 5});
  for (const bool training : {true, false}) {
    norm->train(training), fused->train(training);
    CHECK(fused(x).allclose(relu(norm(x)), 1e-5, 1e-6));
    CHECK(fused(x, residual).allclose(relu(norm(x) + residual), 1e-5, 1e-6));
    for (const std::string& name : norm->named_buffers().keys())
      CHECK(fused->named_buffers()[name].equal(norm->named_buffers()[name]));
  }
  const auto copy = std::dynamic_pointer_cast<nn::BNReLU2dImpl>(fused->clone());
  CHECK(copy->forward(x, residual).equal(fused(x, residual)));
  CHECK(printed(fused) == "gradus::nn::BNReLU2d(3, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");

  // In training, statistics of several processes take the place of those of the batch.
  std::vector<double> momenta;
  fused->synchronized = [&](const Tensor& input, const auto& own, double momentum) {
    CHECK(own.weight.is_same(fused->weight));
    momenta.push_back(momentum);
    return input * 2 - 1;
  };
  fused->train();
  CHECK(fused(x).equal(relu(x * 2 - 1)));
  CHECK(fused(x, residual).equal(relu(x * 2 - 1 + residual)));
  CHECK(momenta == std::vector<double>{0.1, 0.1});
  CHECK_THAT(printed(fused), contains("SyncBatchNorm(3,"));
  fused->eval();
  norm->eval();
  CHECK(fused(x).allclose(relu(norm(x)), 1e-5, 1e-6));
  fused->synchronized = nullptr;

  int calls = 0;
  fused->register_forward_pre_hook([&](nn::Module&, TensorList& inputs) { calls += static_cast<int>(inputs.size()); });
  fused(x, residual);
  CHECK(calls == 2);
}

TEST_CASE("BNReLU2d has the gradients of its parts for any subset of inputs") {
  manual_seed(4);
  const auto number = dtype(kDouble);
  const TensorList in = {randn({4, 3, 2, 2}, number), randn({3}, number), randn({3}, number),
                         randn({4, 3, 2, 2}, number)};  // x, weight, bias, residual
  const Tensor mean = randn({3}, number), var = rand({3}, number) + 0.5, dy = randn({4, 3, 2, 2}, number);
  for (const bool training : {true, false})
    for (int wanted = 1; wanted < 16; ++wanted)
      for (const bool create_graph : {false, true}) {
        TensorList leaves;
        const auto gradients = [&](bool fused) {
          leaves.clear();
          TensorList t;
          for (size_t i = 0; i < in.size(); ++i) {
            t.push_back(in[i].clone());
            if (wanted >> i & 1) leaves.push_back(t[i].requires_grad_());
          }
          const Tensor running_mean = mean.clone(), running_var = var.clone();
          const Tensor y = fused
                               ? batch_norm_relu(t[0], running_mean, running_var, t[1], t[2], training, 0.1, 1e-5, t[3])
                               : relu(batch_norm(t[0], running_mean, running_var, t[1], t[2], training) + t[3]);
          return autograd::grad({y}, leaves, {dy}, /*retain_graph=*/std::nullopt, create_graph);
        };
        const TensorList expected = gradients(false), given = gradients(true);
        CAPTURE(training, wanted, create_graph);
        for (size_t i = 0; i < expected.size(); ++i) CHECK(given[i].allclose(expected[i], 1e-9, 1e-9));
      }
}

TEST_CASE("BNReLU2d saves only its input and result, and its ReLU has slope 0 at 0") {
  nn::BNReLU2d norm(2);
  norm->eval();
  const Tensor x = tensor({-1.f, 0.f, 1.f, 0.f}).view({1, 2, 1, 2}).requires_grad_();
  const Tensor y = norm(x);
  int64_t images = 0;
  for (const Saved* saved = y.grad_fn()->saved(); saved; saved = saved->next())
    if (saved->defined()) images += saved->peek().numel() == x.numel() && saved->peek().ndim() == 4;
  CHECK(images == 2);
  y.sum().backward();
  CHECK((x.grad() > 0).equal(tensor({0, 0, 1, 0}).view({1, 2, 1, 2}).to(kBool)));
}

TEST_CASE("without momentum the running statistics are the average over all batches") {
  manual_seed(2);
  nn::BatchNorm1d norm(nn::BatchNorm1dOptions(2).momentum(std::nullopt));
  Tensor sum = zeros({2});
  for (int i = 1; i <= 3; ++i) {
    const Tensor x = randn({8, 2});
    norm(x);
    sum = sum + x.mean(0);
    CHECK(norm->running_mean.allclose(sum / i, 1e-4, 1e-5));
  }
  CHECK(norm->num_batches_tracked.item<int64_t>() == 3);
  norm(zeros({0, 2}));
  CHECK(norm->num_batches_tracked.item<int64_t>() == 4);
  CHECK(norm->running_mean.allclose(sum / 3, 1e-4, 1e-5));
}

TEST_CASE("without running statistics, evaluation uses those of the batch") {
  nn::BatchNorm1d norm(nn::BatchNorm1dOptions(2).track_running_stats(false).affine(false));
  CHECK(norm->buffers().empty());
  CHECK(norm->parameters().empty());
  const Tensor x = randn({8, 2});
  const Tensor trained = norm(x);
  norm->eval();
  CHECK(norm(x).equal(trained));
  nn::InstanceNorm2d instance(nn::InstanceNorm2dOptions(3).track_running_stats(true).affine(true));
  CHECK(instance->state_dict().size() == 5);
  const Tensor image = randn({3, 4, 4});
  CHECK(instance(image).sizes() == image.sizes());
  CHECK(instance->num_batches_tracked.item<int64_t>() == 1);
}

TEST_CASE("normalisation layers are initialised with ones and zeros, and print") {
  nn::LayerNorm layer(nn::LayerNormOptions({2, 3}));
  CHECK(layer->weight.detach().equal(ones({2, 3})));
  CHECK(layer->bias.detach().equal(zeros({2, 3})));
  CHECK(nn::LayerNorm(nn::LayerNormOptions({2}).elementwise_affine(false))->parameters().empty());
  CHECK(printed(nn::BatchNorm2d(4)) ==
        "gradus::nn::BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");
  CHECK(printed(layer) == "gradus::nn::LayerNorm([2, 3], eps=1e-05, elementwise_affine=true)");
  CHECK(printed(nn::GroupNorm(2, 4)) == "gradus::nn::GroupNorm(2, 4, eps=1e-05, affine=true)");
  CHECK(printed(nn::LocalResponseNorm(2)) == "gradus::nn::LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1)");
  CHECK(printed(nn::Embedding(nn::EmbeddingOptions(10, 3).padding_idx(2))) ==
        "gradus::nn::Embedding(num_embeddings=10, embedding_dim=3, padding_idx=2)");
}

TEST_CASE("errors of normalisation layers name the layer") {
  nn::Sequential net(nn::Identity(), nn::BatchNorm2d(3));
  CHECK_THROWS_WITH(net(randn({2, 4, 4})), contains("layer '1'") && contains("(2, 4, 4)"));
  CHECK_THROWS_WITH(net(randn({2, 4, 4, 4})), contains("layer '1'") && contains("4"));
  CHECK_THROWS_AS(nn::BatchNorm1d(3)(randn({2, 3, 4, 4})), ShapeError);
  CHECK_THROWS_WITH(nn::BNReLU2d(3)(randn({2, 3, 4})), contains("BNReLU2d") && contains("(2, 3, 4)"));
  CHECK_THROWS_AS(nn::InstanceNorm2d(3)(randn({2, 4, 4, 4})), ShapeError);
  CHECK_THROWS_AS(nn::LayerNorm(nn::LayerNormOptions({3}))(randn({2, 4})), ShapeError);
  CHECK_THROWS_AS(nn::GroupNorm(3, 4), ValueError);
  CHECK_THROWS_AS(nn::BatchNorm2d(0), ValueError);
  CHECK_THROWS_AS(nn::Embedding(0, 3), ValueError);
  CHECK_THROWS_AS(nn::Embedding(nn::EmbeddingOptions(4, 3).padding_idx(4)), IndexError);
  CHECK_THROWS_AS(nn::Embedding(4, 3)(full({2}, 4)), IndexError);
}

TEST_CASE("an embedding's padding row is zero and gets no gradient") {
  manual_seed(3);
  nn::Embedding table(nn::EmbeddingOptions(5, 3).padding_idx(-1));
  CHECK(table->options.padding_idx() == 4);
  CHECK(table->weight[4].detach().equal(zeros({3})));
  const Tensor indices = tensor({{0, 4}, {4, 2}});
  const Tensor y = table(indices);
  CHECK(y.sizes() == Shape({2, 2, 3}));
  CHECK(y[0][0].equal(table->weight[0]));
  y.sum().backward();
  CHECK(table->weight.grad()[4].equal(zeros({3})));
  CHECK(table->weight.grad()[2].equal(ones({3})));

  nn::Embedding short_rows(nn::EmbeddingOptions(5, 3).max_norm(0.5));
  short_rows(tensor({1, 3}));
  CHECK(short_rows->weight[1].detach().norm().item<double>() <= 0.5001);
}

TEST_CASE("from_pretrained uses the given vectors and freezes them by default") {
  const Tensor vectors = randn({4, 2});
  nn::Embedding frozen = nn::Embedding::from_pretrained(vectors);
  CHECK(frozen->weight.is_same(vectors));
  CHECK_FALSE(frozen->weight.requires_grad());
  CHECK(frozen(tensor({3})).equal(vectors.slice(0, 3, 4)));
  auto copy = std::dynamic_pointer_cast<nn::EmbeddingImpl>(frozen->clone());
  CHECK_FALSE(copy->weight.is_same(vectors));
  CHECK(copy->weight.equal(vectors));
  CHECK(frozen->weight.is_same(vectors));
  CHECK(nn::Embedding::from_pretrained(randn({4, 2}), nn::EmbeddingFromPretrainedOptions().freeze(false))
            ->weight.requires_grad());
  CHECK_THROWS_AS(nn::Embedding::from_pretrained(randn({4})), ShapeError);
  CHECK_THROWS_AS(nn::Embedding(nn::EmbeddingOptions(4, 3)._weight(vectors)), ShapeError);
}

TEST_CASE("an embedding's negative padding_idx counts from the end") {
  namespace F = nn::functional;
  const Tensor indices = tensor({0, 3, 1, 3});
  for (int64_t padding : {-1, -2, -4, 3}) {
    CAPTURE(padding);
    const int64_t row = padding < 0 ? padding + 4 : padding;
    Tensor expected = zeros({4, 2});
    expected.index_put_({0}, 1.0), expected.index_put_({1}, 1.0), expected.index_put_({3}, 2.0);
    expected[row].zero_();
    const Tensor weight = randn({4, 2}).requires_grad_();
    F::embedding(indices, weight, F::EmbeddingFuncOptions().padding_idx(padding)).sum().backward();
    CHECK(weight.grad().equal(expected));
    nn::Embedding layer(nn::EmbeddingOptions(4, 2).padding_idx(padding));
    CHECK(layer->weight.detach()[row].equal(zeros({2})));
    layer(indices).sum().backward();
    CHECK(layer->weight.grad().equal(expected));
    auto pretrained = nn::Embedding::from_pretrained(
        randn({4, 2}), nn::EmbeddingFromPretrainedOptions().freeze(false).padding_idx(padding));
    pretrained(indices).sum().backward();
    CHECK(pretrained->weight.grad().equal(expected));
  }
}

TEST_CASE("embeddings take max_norm, norm_type and scale_grad_by_freq, as functions and as layers") {
  namespace F = nn::functional;
  const Tensor table = tensor({{3., 4.}, {0.3, 0.4}, {6., 8.}}), indices = tensor({0, 1, 0});
  const Tensor weight = table.clone();
  CHECK(F::embedding(indices, weight, F::EmbeddingFuncOptions().max_norm(1.0))
            .allclose(tensor({{0.6, 0.8}, {0.3, 0.4}, {0.6, 0.8}})));
  CHECK(weight.allclose(tensor({{0.6, 0.8}, {0.3, 0.4}, {6., 8.}})));  // the rows that were looked up, in place
  CHECK(F::embedding(indices, table.clone(), F::EmbeddingFuncOptions().max_norm(1.0).norm_type(1))[0].allclose(
      tensor({3. / 7, 4. / 7})));
  for (const bool is_matrix : {false, true}) {  // in bags of all indices or of some
    const Tensor of_bags = table.clone(), places = is_matrix ? indices.reshape({1, 3}) : indices;
    F::EmbeddingBagFuncOptions options = F::EmbeddingBagFuncOptions().max_norm(1.0).mode(kSum);
    if (!is_matrix) options.offsets(tensor({0})).include_last_offset(false);
    CHECK(F::embedding_bag(places, of_bags, options).allclose(tensor({{1.5, 2.0}})));
    CHECK(of_bags.allclose(tensor({{0.6, 0.8}, {0.3, 0.4}, {6., 8.}})));
    options.norm_type(1);
    CHECK(F::embedding_bag(places, table.clone(), options).allclose(tensor({{6. / 7 + 0.3, 8. / 7 + 0.4}})));
  }
  nn::Embedding layer(nn::EmbeddingOptions(3, 2).scale_grad_by_freq(true)._weight(table.clone()));
  layer(indices).sum().backward();
  CHECK(layer->weight.grad().equal(tensor({{1., 1.}, {1., 1.}, {0., 0.}})));
  CHECK(printed(layer) == "gradus::nn::Embedding(num_embeddings=3, embedding_dim=2, scale_grad_by_freq=true)");
  nn::Embedding sparse(nn::EmbeddingOptions(3, 2).sparse(true));
  CHECK_THROWS_WITH(sparse(indices), contains("sparse"));
}

TEST_CASE("normalisation layers scale, shift and track each channel, with and without a batch") {
  manual_seed(7);
  const auto fill = [](auto& layer) {
    nn::init::normal_(layer->weight, 1), nn::init::normal_(layer->bias);
    nn::init::normal_(layer->running_mean), nn::init::uniform_(layer->running_var, 0.5, 2);
  };
  const auto by_channel = [](const Tensor& values, int dims) {
    return values.detach().view(dims == 4 ? Shape{1, 3, 1, 1} : Shape{1, 3, 1});
  };
  const auto check = [&](auto layer, const Tensor& x, bool per_image) {
    fill(layer);
    const int dims = x.dim();
    const std::vector<int64_t> pixels = dims == 4 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{2};
    std::vector<int64_t> averaged = pixels;
    if (!per_image) averaged.insert(averaged.begin(), 0);
    const auto wanted = [&](const Tensor& mean, const Tensor& var) {
      return (x - mean) / (var + 1e-5).sqrt() * by_channel(layer->weight, dims) + by_channel(layer->bias, dims);
    };
    layer->eval();
    CHECK(layer(x).allclose(wanted(by_channel(layer->running_mean, dims), by_channel(layer->running_var, dims)), 1e-4,
                            1e-5));
    const Tensor mean = layer->running_mean.clone(), var = layer->running_var.clone();
    layer->train();
    const Tensor own_mean = x.mean(averaged, true), own_var = x.var(averaged, false, true);
    CHECK(layer(x).allclose(wanted(own_mean, own_var), 1e-4, 1e-5));
    const auto average = [&](const Tensor& statistic) { return per_image ? statistic.mean(0) : statistic; };
    CHECK(layer->running_mean.allclose(mean * 0.9 + average(own_mean).reshape({3}) * 0.1, 1e-4, 1e-5));
    const Tensor unbiased = average(x.var(averaged, true, true)).reshape({3});
    CHECK(layer->running_var.allclose(var * 0.9 + unbiased * 0.1, 1e-4, 1e-5));
    layer->eval();
    if (per_image) CHECK(layer(x[1]).allclose(layer(x)[1], 1e-5, 1e-6));
    CHECK(layer->num_batches_tracked.template item<int64_t>() == 1);
    layer->reset_parameters();
    CHECK(layer->weight.detach().equal(ones({3})));
    CHECK(layer->bias.detach().equal(zeros({3})));
    CHECK(layer->running_mean.equal(zeros({3})));
    CHECK(layer->running_var.equal(ones({3})));
    CHECK(layer->num_batches_tracked.template item<int64_t>() == 0);
  };
  check(nn::BatchNorm1d(3), randn({4, 3, 5}), false);
  check(nn::BatchNorm2d(3), randn({4, 3, 2, 5}), false);
  check(nn::InstanceNorm1d(nn::InstanceNorm1dOptions(3).affine(true).track_running_stats(true)), randn({4, 3, 5}),
        true);
  check(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true).track_running_stats(true)), randn({4, 3, 2, 5}),
        true);
  nn::GroupNorm group(2, 4);
  nn::LayerNorm layer(nn::LayerNormOptions({4}));
  for (nn::Module* module : {static_cast<nn::Module*>(group.get()), static_cast<nn::Module*>(layer.get())}) {
    CHECK(module->named_parameters().keys() == Names{"weight", "bias"});
    CHECK(module->parameters()[0].detach().equal(ones({4})));
    CHECK(module->parameters()[1].detach().equal(zeros({4})));
  }
  CHECK(nn::GroupNorm(nn::GroupNormOptions(2, 4).affine(false))->parameters().empty());
}

TEST_CASE("an average over all batches stays as it is in evaluation, also in a fused layer") {
  manual_seed(8);
  nn::BNReLU2d norm(nn::BNReLU2dOptions(2).momentum(std::nullopt));
  const Tensor first = randn({4, 2, 3, 3}), second = randn({4, 2, 3, 3});
  norm(first), norm(second);
  const Tensor mean = (first.mean({0, 2, 3}) + second.mean({0, 2, 3})) / 2;
  CHECK(norm->running_mean.allclose(mean, 1e-4, 1e-5));
  norm->eval();
  norm(first);
  CHECK(norm->running_mean.allclose(mean, 1e-4, 1e-5));
  CHECK(norm->num_batches_tracked.item<int64_t>() == 2);
  CHECK(printed(norm) == "gradus::nn::BNReLU2d(2, eps=1e-05, momentum=None, affine=true, track_running_stats=true)");
  nn::BatchNorm1d untracked(nn::BatchNorm1dOptions(2).momentum(std::nullopt).track_running_stats(false));
  CHECK(untracked(randn({4, 2})).sizes() == Shape({4, 2}));
  CHECK(printed(nn::InstanceNorm1d(2)) ==
        "gradus::nn::InstanceNorm1d(2, eps=1e-05, momentum=0.1, affine=false, track_running_stats=false)");
}

TEST_CASE("embeddings print their options, and draw new values when they are reset") {
  CHECK(printed(nn::Embedding(nn::EmbeddingOptions(5, 3).max_norm(2).norm_type(1))) ==
        "gradus::nn::Embedding(num_embeddings=5, embedding_dim=3, max_norm=2, norm_type=1)");
  CHECK(printed(nn::EmbeddingBag(5, 3)) == "gradus::nn::EmbeddingBag(num_embeddings=5, embedding_dim=3)");
  CHECK(
      printed(nn::EmbeddingBag(nn::EmbeddingBagOptions(5, 3).mode(kMax).include_last_offset(true))).find("mode=kMax") !=
      std::string::npos);
  CHECK(printed(nn::EmbeddingBag(nn::EmbeddingBagOptions(5, 3)
                                     .max_norm(2)
                                     .norm_type(1)
                                     .scale_grad_by_freq(true)
                                     .sparse(true)
                                     .mode(kSum)
                                     .padding_idx(1))) ==
        "gradus::nn::EmbeddingBag(num_embeddings=5, embedding_dim=3, max_norm=2, norm_type=1, scale_grad_by_freq=true, "
        "sparse=true, mode=kSum, padding_idx=1)");
  CHECK_THROWS_WITH(nn::Embedding(nn::EmbeddingOptions(4, 3)._weight(ones({3, 4}))),
                    contains("Embedding of 4 rows with 3 columns has shape (3, 4)"));
  manual_seed(9);
  nn::Embedding table(nn::EmbeddingOptions(40, 30)._weight(ones({40, 30})).padding_idx(3));
  CHECK(table->weight.detach().equal(ones({40, 30})));  // given values are kept, also those of the padding
  table->reset_parameters();
  CHECK(table->weight.detach()[3].equal(zeros({30})));
  CHECK(table->weight.detach().std().item<double>() == Approx(1).epsilon(0.1));
  nn::EmbeddingBag bag = nn::EmbeddingBag::from_pretrained(ones({4, 2}));
  CHECK_FALSE(bag->weight.requires_grad());
  const auto copy = std::dynamic_pointer_cast<nn::EmbeddingBagImpl>(bag->clone());
  CHECK(copy->weight.equal(ones({4, 2})));
  CHECK_FALSE(copy->weight.is_same(bag->weight));
}
