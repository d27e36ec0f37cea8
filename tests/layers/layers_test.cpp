// Results of layers, Sequential, Functional and options, and errors that name the layer.
#include <gradus/autograd/autograd.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/layers/printed.h>

#include <algorithm>

using namespace gradus;
namespace F = gradus::nn::functional;
using test::contains;

namespace {

Tensor twice(const Tensor& x) { return x * 2; }

struct AffineImpl : nn::Module {
  Tensor forward(Tensor x) { return x * 2 + 1; }
};

}  // namespace

TEST_CASE("layers compute what their operators do") {
  const Tensor x = randn({2, 4, 6, 6});
  nn::Conv2d conv(nn::Conv2dOptions(4, 6, 3).stride(2).padding({1, 0}).dilation(1).groups(2));
  CHECK(conv(x).equal(conv2d(x, conv->weight, conv->bias, 2, Pair(1, 0), 1, 2)));
  nn::ConvReLU2d conv_relu(4, 6, 3);
  CHECK(conv_relu(x).allclose(relu(conv2d(x, conv_relu->weight, conv_relu->bias)), 1e-5, 1e-6));
  nn::Linear linear(6, 5);
  CHECK(linear(x).equal(gradus::linear(x, linear->weight, linear->bias)));
  CHECK(nn::MaxPool2d(2)(x).equal(max_pool2d(x, 2)));
  CHECK(nn::MaxPool2d(nn::MaxPool2dOptions({3, 2}).stride({2, 1}).padding(1).ceil_mode(true))(x).equal(
      max_pool2d(x, Pair(3, 2), Pair(2, 1), 1, 1, true)));
  CHECK(nn::ReLU()(x).equal(relu(x)));
  CHECK(nn::Sigmoid()(x).equal(sigmoid(x)));
  CHECK(nn::Tanh()(x).equal(tanh(x)));
  CHECK(nn::Softmax(1)(x).equal(softmax(x, 1)));
  CHECK(nn::LogSoftmax(-1)(x).equal(log_softmax(x, -1)));
  CHECK(nn::Flatten()(x).sizes() == Shape({2, 144}));
  CHECK(nn::Flatten(nn::FlattenOptions().start_dim(2).end_dim(3))(x).sizes() == Shape({2, 4, 36}));

  Tensor y = x.clone();
  CHECK(nn::ReLU(true)(y).is_same(y));
  CHECK(y.equal(relu(x)));
}

TEST_CASE("pooling layers use all their options, also with indices") {
  const Tensor x = randn({2, 3, 9, 8}), line = randn({2, 3, 11});
  nn::MaxPool2d images(nn::MaxPool2dOptions({3, 2}).stride({2, 1}).padding({1, 0}).dilation({1, 3}).ceil_mode(true));
  CHECK(images(x).equal(max_pool2d(x, Pair(3, 2), Pair(2, 1), Pair(1, 0), Pair(1, 3), true)));
  const auto [maxima, places] = images->forward_with_indices(x);
  const auto [wanted, wanted_places] = max_pool2d_with_indices(x, Pair(3, 2), Pair(2, 1), Pair(1, 0), Pair(1, 3), true);
  CHECK((maxima.equal(wanted) && places.equal(wanted_places)));
  nn::MaxPool1d lines(nn::MaxPool1dOptions(3).stride(2).padding(1).dilation(3).ceil_mode(true));
  CHECK(lines(line).equal(max_pool1d(line, 3, 2, 1, 3, true)));
  const auto [line_maxima, line_places] = lines->forward_with_indices(line);
  const auto [wanted_line, wanted_line_places] = max_pool1d_with_indices(line, 3, 2, 1, 3, true);
  CHECK((line_maxima.equal(wanted_line) && line_places.equal(wanted_line_places)));
  CHECK(
      nn::AvgPool1d(nn::AvgPool1dOptions(4).stride(3).padding(2).ceil_mode(true).count_include_pad(false))(line).equal(
          avg_pool1d(line, 4, 3, 2, true, false)));
  nn::AvgPool2d means(nn::AvgPool2dOptions({3, 4}).stride({2, 3}).padding({1, 2}).ceil_mode(true).divisor_override(5));
  CHECK(means(x).equal(avg_pool2d(x, Pair(3, 4), Pair(2, 3), Pair(1, 2), true, true, 5)));
}

TEST_CASE("a transposed convolution produces the requested output_size") {
  const Tensor x = randn({1, 2, 4, 5});
  nn::ConvTranspose2d conv(nn::ConvTranspose2dOptions(2, 3, {3, 2}).stride({3, 2}).padding({1, 0}));
  const auto run = [&](std::vector<int64_t> size) { return conv->forward(x, IntArrayRef(size)); };
  // The smallest height is (4 - 1) * 3 - 2 + 3 = 10, the smallest width (5 - 1) * 2 + 2 = 10.
  for (int64_t h : {10, 11, 12}) {
    for (int64_t w : {10, 11}) {
      const Tensor wanted = conv_transpose2d(x, conv->weight, conv->bias, Pair(3, 2), Pair(1, 0), Pair(h - 10, w - 10));
      CHECK(wanted.sizes() == Shape({1, 3, h, w}));
      CHECK(run({h, w}).equal(wanted));
      CHECK(run({1, 3, h, w}).equal(wanted));
    }
  }
  for (const std::vector<int64_t>& size : {std::vector<int64_t>{9, 10}, std::vector<int64_t>{13, 10},
                                           std::vector<int64_t>{10, 9}, std::vector<int64_t>{10, 12}}) {
    CHECK_THROWS_AS(run(size), ValueError);
    CHECK_THROWS_WITH(run(size), contains("is not between"));
  }
  CHECK_THROWS_AS(run({10}), ShapeError);
  nn::ConvTranspose1d line(nn::ConvTranspose1dOptions(2, 3, 2).stride(1).dilation(3));
  const std::vector<int64_t> longest = {10};  // (5 - 1) + 3 + 1 = 8, up to 10
  CHECK(line->forward(x[0].transpose(0, 1)[0].unsqueeze(0), IntArrayRef(longest)).sizes() == Shape({1, 3, 10}));
}

TEST_CASE("activations with inplace print it") {
  using namespace nn;
  CHECK(test::printed(Hardtanh(HardtanhOptions().min_val(-2).max_val(3).inplace(true))) ==
        "gradus::nn::Hardtanh(min_val=-2, max_val=3, inplace=true)");
  CHECK(test::printed(Hardtanh()) == "gradus::nn::Hardtanh(min_val=-1, max_val=1)");
  CHECK(test::printed(Threshold(ThresholdOptions(1, 2).inplace(true))) ==
        "gradus::nn::Threshold(threshold=1, value=2, inplace=true)");
  CHECK(test::printed(Threshold(1, 2)) == "gradus::nn::Threshold(threshold=1, value=2)");
}

TEST_CASE("dropout is active only in training") {
  manual_seed(5);
  nn::Dropout dropout(0.25);
  const Tensor x = ones({10000});
  const Tensor y = dropout(x);
  const double kept = (y != 0).to(kFloat).mean().item<double>();
  CHECK(kept == Approx(0.75).margin(0.02));
  CHECK(y.max().item<float>() == Approx(1 / 0.75f));
  dropout->eval();
  CHECK(dropout(x).equal(x));
  CHECK_THROWS_AS(nn::Dropout(1.5), ValueError);
  CHECK_THROWS_AS(nn::Dropout(-0.1), ValueError);
}

TEST_CASE("losses use their options") {
  const Tensor x = randn({4, 3}), target = tensor({0, 2, 1, -100});
  CHECK(nn::CrossEntropyLoss()(x, target).equal(cross_entropy(x, target)));
  CHECK(nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().reduction(kNone))(x, target).sizes() == Shape({4}));
  CHECK(nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().reduction(kSum).ignore_index(1))(x.slice(0, 0, 3),
                                                                                            target.slice(0, 0, 3))
            .equal(cross_entropy(x.slice(0, 0, 3), target.slice(0, 0, 3), {}, kSum, 1)));
  CHECK(nn::NLLLoss()(log_softmax(x, 1), target).allclose(cross_entropy(x, target)));
  CHECK(nn::NLLLoss(nn::NLLLossOptions().reduction(kSum))(log_softmax(x, 1), target)
            .allclose(cross_entropy(x, target, {}, kSum)));
}

TEST_CASE("functions with options equal the operators") {
  const Tensor x = randn({2, 4, 6, 6}), w = randn({3, 4, 3, 3}), b = randn({3});
  CHECK(F::relu(x).equal(relu(x)));
  CHECK(F::conv2d(x, w, F::Conv2dFuncOptions().bias(b).padding(1)).equal(conv2d(x, w, b, 1, 1)));
  CHECK(F::conv2d(x, w).equal(conv2d(x, w)));
  CHECK(F::max_pool2d(x, F::MaxPool2dFuncOptions(2)).equal(max_pool2d(x, 2)));
  CHECK(F::log_softmax(x, 1).equal(log_softmax(x, 1)));
  CHECK(F::softmax(x, 1).equal(softmax(x, 1)));
  CHECK(F::dropout(x, F::DropoutFuncOptions().p(0.5).training(false)).equal(x));
  CHECK(F::sigmoid(x).equal(sigmoid(x)));
  CHECK(F::tanh(x).equal(tanh(x)));
  const Tensor logits = randn({4, 3}), target = tensor({0, 2, 1, 1});
  CHECK(F::cross_entropy(logits, target).equal(cross_entropy(logits, target)));
  CHECK(F::nll_loss(log_softmax(logits, 1), target, F::NLLLossFuncOptions().reduction(kSum))
            .equal(nll_loss(log_softmax(logits, 1), target, {}, kSum)));
  CHECK(F::linear(logits, randn({2, 3}), randn({2})).sizes() == Shape({4, 2}));
}

TEST_CASE("Sequential calls, names, lists and finds its modules") {
  nn::Linear first(3, 4);
  nn::Sequential net(first, nn::Functional(relu), std::make_shared<AffineImpl>(), nn::Linear(4, 2));
  const Tensor x = randn({5, 3});
  CHECK(net->size() == 4);
  CHECK(net(x).equal(net->at<nn::Linear>(3).forward(relu(first(x)) * 2 + 1)));
  CHECK(net->ptr(0) == first.ptr());
  CHECK((*net)[0] == first.ptr());
  CHECK(net->named_children().keys() == std::vector<std::string>{"0", "1", "2", "3"});
  CHECK_THROWS_AS(net->ptr(4), IndexError);
  CHECK_THROWS_AS(net->at<nn::Conv2d>(0), ValueError);

  net->push_back(nn::Linear(2, 2));
  net->push_back("last", nn::Tanh());
  CHECK(net->named_children().keys() == std::vector<std::string>{"0", "1", "2", "3", "4", "last"});
  Tensor y = x;
  for (const nn::AnyModule& module : *net) y = module(y);
  CHECK(net(x).equal(y));

  nn::Sequential named({{"fc", nn::Linear(3, 4)}, {"act", nn::ReLU()}}), both;
  both->extend(*named);
  both->push_back(AffineImpl());
  CHECK(both->named_children().keys() == std::vector<std::string>{"0", "1", "2"});
  CHECK(both(x).equal(relu(named->at<nn::Linear>(0).forward(x)) * 2 + 1));
  nn::Sequential copy(both), nested(both, nn::ReLU());
  CHECK(copy.ptr() == both.ptr());
  CHECK(nested->size() == 2);
  CHECK(nn::Sequential()->is_empty());
  CHECK_THROWS_AS(nn::Sequential()->forward(x), ValueError);
}

TEST_CASE("Functional takes operators, further arguments and lambdas") {
  const Tensor x = randn({3, 4});
  CHECK(nn::Functional(relu)(x).equal(relu(x)));
  CHECK(nn::Functional(twice)(x).equal(x * 2));
  CHECK(nn::Functional(log_softmax, 1)(x).equal(log_softmax(x, 1)));
  CHECK(nn::Functional([](Tensor y) { return y + 1; })(x).equal(x + 1));
  CHECK(nn::Functional(flatten, 0, -1)(x).sizes() == Shape({12}));
  nn::Sequential net(nn::Functional(twice), nn::Functional(softmax, -1));
  CHECK(net(x).equal(softmax(x * 2, -1)));
}

TEST_CASE("messages name the layer by its path") {
  struct NetImpl : nn::Module {
    nn::Sequential features = register_module(
        "features",
        nn::Sequential(nn::ReLU(), nn::ReLU(), nn::ReLU(), nn::Conv2d(3, 4, 3), nn::Flatten(), nn::Linear(7, 2)));
    Tensor forward(const Tensor& x) { return features(x); }
  };
  nn::ModuleHolder<NetImpl> net;
  CHECK_THROWS_WITH(net(randn({8, 4, 32, 32})),
                    "[conv2d] layer 'features.3': weight expects 3 input channels, got x of shape (8, 4, 32, 32)");
  CHECK_THROWS_WITH(net(randn({8, 3, 3, 3})), contains("[linear] layer 'features.5': "));
  CHECK_THROWS_AS(net(randn({8, 4, 32, 32})), ShapeError);
  // Outside of a layer the message names the source line instead.
  CHECK_THROWS_WITH(conv2d(randn({1, 4, 8, 8}), randn({1, 3, 3, 3})), contains("layers_test.cpp"));
}

TEST_CASE("recorded operators know the layer that they ran in") {
  nn::Sequential net({{"fc", nn::Linear(3, 4)}, {"act", nn::ReLU()}});
  const Tensor y = net(randn({2, 3}));
  CHECK(y.grad_fn()->module_path() == "act");
  CHECK(y.grad_fn()->edges()[0].node->module_path() == "fc");
}

TEST_CASE("layers with invalid options are errors") {
  CHECK_THROWS_AS(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).groups(2)), ValueError);
  CHECK_THROWS_AS(nn::Conv2d(3, 4, 0), ValueError);
  CHECK_THROWS_AS(nn::Conv2d(0, 4, 3), ValueError);
  CHECK_THROWS_AS(nn::Linear(3, -1), ValueError);
  CHECK_THROWS_AS(nn::Linear(-1, 3), ValueError);
}

TEST_CASE("a linear layer may have 0 inputs or outputs") {
  nn::Linear from_nothing(0, 3), to_nothing(3, 0);
  const Tensor y = from_nothing(ones({2, 0}));
  CHECK(y.equal(zeros({2, 3})));  // y is the bias, which was set to 0
  y.sum().backward();
  CHECK(from_nothing->bias.grad().equal(full({3}, 2.0)));
  const Tensor x = ones({2, 3}, requires_grad());
  to_nothing(x).sum().backward();
  CHECK(x.grad().equal(zeros({2, 3})));
}

TEST_CASE("an ordered dictionary keeps its order and rejects duplicate keys") {
  OrderedDict<std::string, int> dict{{"b", 1}, {"a", 2}};
  dict.insert("c", 3);
  CHECK(dict.keys() == std::vector<std::string>{"b", "a", "c"});
  CHECK(dict.values() == std::vector<int>{1, 2, 3});
  CHECK(dict["a"] == 2);
  CHECK(dict[2].value() == 3);
  CHECK(dict.front().key() == "b");
  CHECK(dict.back().key() == "c");
  CHECK(dict.contains("c"));
  CHECK(dict.find("d") == nullptr);
  CHECK_THROWS_WITH(dict["d"], contains("'d' is not defined"));
  CHECK_THROWS_WITH(dict.insert("a", 0), contains("'a' already defined"));
  dict.erase("a");
  CHECK(dict.size() == 2);
  CHECK_THROWS_AS(dict.erase("a"), IndexError);
  OrderedDict<std::string, int> more{{"x", 9}};
  dict.update(more);
  CHECK(dict.pairs().back() == std::pair<std::string, int>("x", 9));
  dict.clear();
  CHECK(dict.is_empty());
}

TEST_CASE("invalid options are errors when the layer is made or reset") {
  CHECK_THROWS_AS(nn::Conv2d(nn::Conv2dOptions(1, 2, 3).stride(2).padding(kSame)), ValueError);
  CHECK_THROWS_AS(nn::Conv1d(nn::Conv1dOptions(1, 2, 3).stride(2).padding(kSame)), ValueError);
  nn::Hardtanh hardtanh;
  hardtanh->options.max_val() = -2;
  CHECK_THROWS_AS(hardtanh->reset(), ValueError);
  CHECK(nn::Unfold(IntArrayRef({2, 4}))->options.kernel_size().w == 4);
  CHECK(test::printed(nn::Embedding(nn::EmbeddingOptions(4, 2).sparse(true))) ==
        "gradus::nn::Embedding(num_embeddings=4, embedding_dim=2, sparse=true)");
}

TEST_CASE("a transposed convolution of a line, of a given output size, with a large dilation or stride") {
  for (const auto& [stride, dilation, padding] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 0}, {3, 1, 1}, {1, 3, 2}, {2, 2, 0}}) {
    nn::ConvTranspose1d conv(nn::ConvTranspose1dOptions(2, 3, 4).stride(stride).dilation(dilation).padding(padding));
    const Tensor x = randn({1, 2, 5});
    const int64_t least = 4 * stride - 2 * padding + 3 * dilation + 1, most = least + std::max(stride, dilation) - 1;
    for (int64_t size = least; size <= most; ++size) {
      const Tensor y = conv->forward(x, IntArrayRef({size}));
      CHECK(y.sizes() == Shape({1, 3, size}));
      CHECK(y.equal(conv->forward(x, IntArrayRef({1, 3, size}))));
      CHECK(y.narrow(-1, 0, least).allclose(conv(x), 1e-5, 1e-5));
    }
    CHECK_THROWS_WITH(conv->forward(x, IntArrayRef({least - 1})),
                      contains("is not between " + std::to_string(least) + " and " + std::to_string(most)));
    CHECK_THROWS_AS(conv->forward(x, IntArrayRef({most + 1})), ValueError);
  }
}

TEST_CASE("padding 'same' keeps the size, with the odd pixel at the end") {
  for (const auto& [kernel, dilation] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {3, 1}, {4, 1}, {2, 3}, {3, 2}}) {
    const int64_t total = dilation * (kernel - 1), before = total / 2;
    nn::Conv1d line(
        nn::Conv1dOptions(1, 1, kernel).padding(kSame).dilation(dilation).padding_mode(kReplicate).bias(false));
    nn::Conv2d rows(nn::Conv2dOptions(1, 1, {1, kernel})
                        .padding(kSame)
                        .dilation({1, dilation})
                        .padding_mode(kCircular)
                        .bias(false));
    const Tensor x = arange(0, 7, kFloat).view({1, 1, 7});
    for (int64_t tap = 0; tap < kernel; ++tap) {
      for (const Tensor& weight : {line->weight, rows->weight}) {
        nn::init::zeros_(weight);
        weight.detach().view({-1})[tap].fill_(1);
      }
      const Tensor y = line(x), z = rows(x.view({1, 1, 1, 7}));
      for (int64_t i = 0; i < 7; ++i) {
        const int64_t at = i + tap * dilation - before;
        CHECK(y[0][0][i].item<int64_t>() == std::clamp<int64_t>(at, 0, 6));
        CHECK(z[0][0][0][i].item<int64_t>() == (at + 7) % 7);
      }
    }
  }
}

TEST_CASE("layers print the options that differ from their defaults") {
  using namespace nn;
  CHECK(test::printed(Conv1d(Conv1dOptions(4, 8, 3).padding(2).groups(4).bias(false).padding_mode(kReflect))) ==
        "gradus::nn::Conv1d(4, 8, kernel_size=3, stride=1, padding=2, groups=4, bias=false, padding_mode=kReflect)");
  CHECK(test::printed(Conv2d(Conv2dOptions(1, 2, 3).padding(kSame).padding_mode(kCircular))) ==
        "gradus::nn::Conv2d(1, 2, kernel_size=[3, 3], stride=[1, 1], padding='same', padding_mode=kCircular)");
  CHECK(test::printed(Conv2d(Conv2dOptions(1, 2, 3).padding(kValid).padding_mode(kReplicate))) ==
        "gradus::nn::Conv2d(1, 2, kernel_size=[3, 3], stride=[1, 1], padding='valid', padding_mode=kReplicate)");
  CHECK(test::printed(
            ConvTranspose2d(ConvTranspose2dOptions(1, 2, 3).stride(2).output_padding({1, 0}).dilation({1, 2}))) ==
        "gradus::nn::ConvTranspose2d(1, 2, kernel_size=[3, 3], stride=[2, 2], dilation=[1, 2], output_padding=[1, 0])");
  CHECK(test::printed(Conv2d(Conv2dOptions(1, 2, 3).padding({0, 1}))) ==
        "gradus::nn::Conv2d(1, 2, kernel_size=[3, 3], stride=[1, 1], padding=[0, 1])");
  CHECK(test::printed(AdaptiveAvgPool2d(AdaptiveAvgPool2dOptions({3, std::nullopt}))) ==
        "gradus::nn::AdaptiveAvgPool2d(output_size=[3, None])");
  CHECK(test::printed(LSTM(LSTMOptions(3, 4).proj_size(2).dropout(0.5).bidirectional(true))) ==
        "gradus::nn::LSTM(input_size=3, hidden_size=4, num_layers=1, bias=true, batch_first=false, dropout=0.5, "
        "bidirectional=true, proj_size=2)");
  CHECK(test::printed(GRUCell(GRUCellOptions(3, 4).bias(false))) == "gradus::nn::GRUCell(3, 4, bias=false)");
}

TEST_CASE("adaptive maxima of images whose height or width is kept, with their positions") {
  manual_seed(6);
  const Tensor x = randn({2, 4, 6});
  for (const OutputSize& size : {OutputSize(std::nullopt, 2), OutputSize(3, std::nullopt), OutputSize(3, 4)}) {
    const int64_t h = size.h.value_or(4), w = size.w.value_or(6);
    const auto [maxima, places] = F::adaptive_max_pool2d_with_indices(x, size);
    REQUIRE(maxima.sizes() == Shape({2, h, w}));
    for (int64_t i = 0; i < h; ++i)
      for (int64_t j = 0; j < w; ++j) {
        const int64_t top = i * 4 / h, bottom = ((i + 1) * 4 + h - 1) / h, left = j * 6 / w,
                      right = ((j + 1) * 6 + w - 1) / w;
        const Tensor window = x.slice(1, top, bottom).slice(2, left, right).flatten(1);
        CHECK(maxima.select(1, i).select(1, j).equal(window.amax(1)));
      }
    CHECK(x.flatten(1).gather(1, places.flatten(1)).equal(maxima.flatten(1)));
  }
}
