// Exports each layer as a net for batches of any size, and nets whose outputs are not results of kernels. onnx_test.py
// runs the models.
#include <algorithm>
#include <fstream>
#include <regex>
#include <set>

#include <gradus/core/io/npy.h>
#include <gradus/graph/recorder.h>
#include <gradus/layers/embedding.h>
#include <gradus/onnx/exporter.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/onnx/exporting.h>

using namespace gradus;
using test::contains;
using test::module_of;

namespace {

/// A net and the sizes of its input. The size along batch_axis is the batch size.
struct LayerNet {
  std::string name;
  nn::AnyModule module;
  Shape shape;
  std::optional<int64_t> batch_axis = 0;
  int64_t words = 0;  // if positive, inputs are integers below it
};

/// A layer with two operands: the two halves of the input's channels.
template <class Layer>
struct OfHalves : nn::Module {
  explicit OfHalves(Layer made) : layer(register_module("layer", made)) {}
  Tensor forward(const Tensor& x) {
    const TensorList halves = x.chunk(2, 1);
    return layer(halves[0], halves[1]);
  }
  Layer layer;
};
template <class Layer>
nn::AnyModule of_halves(Layer layer) {
  return nn::AnyModule(std::make_shared<OfHalves<Layer>>(layer));
}

/// A layer that returns a tuple. `pick` makes one tensor of the tuple.
template <class Layer>
struct Picked : nn::Module {
  Picked(Layer made, std::function<Tensor(Layer&, const Tensor&)> pick)
      : layer(register_module("layer", made)), pick(std::move(pick)) {}
  Tensor forward(const Tensor& x) { return pick(layer, x); }
  Layer layer;
  std::function<Tensor(Layer&, const Tensor&)> pick;
};
template <class Layer, class Pick>
nn::AnyModule picked(Layer layer, Pick pick) {
  return nn::AnyModule(std::make_shared<Picked<Layer>>(layer, pick));
}

std::vector<LayerNet> activations() {
  std::vector<LayerNet> nets;
  const auto add = [&](const std::string& name, auto layer) { nets.push_back({name, nn::AnyModule(layer), {0, 6}}); };
  add("ReLU", nn::ReLU());
  add("ReLU6", nn::ReLU6());
  add("LeakyReLU", nn::LeakyReLU());
  add("RReLU", nn::RReLU());
  add("ELU", nn::ELU(nn::ELUOptions().alpha(0.7)));
  add("SELU", nn::SELU());
  add("CELU", nn::CELU(nn::CELUOptions().alpha(0.6)));
  add("CELU.negative", nn::CELU(nn::CELUOptions().alpha(-2)));
  add("GELU", nn::GELU());
  add("SiLU", nn::SiLU());
  add("Mish", nn::Mish());
  add("Softplus", nn::Softplus());
  add("Softsign", nn::Softsign());
  add("Softshrink", nn::Softshrink());
  add("Hardshrink", nn::Hardshrink());
  add("Tanhshrink", nn::Tanhshrink());
  add("Hardtanh", nn::Hardtanh());
  add("Hardsigmoid", nn::Hardsigmoid());
  add("Hardswish", nn::Hardswish());
  add("Threshold", nn::Threshold(0.1, 0.3));
  add("Sigmoid", nn::Sigmoid());
  add("LogSigmoid", nn::LogSigmoid());
  add("Tanh", nn::Tanh());
  add("GLU", nn::GLU());
  add("Softmax", nn::Softmax(1));
  add("Softmin", nn::Softmin(1));
  add("LogSoftmax", nn::LogSoftmax(1));
  add("PReLU", nn::PReLU(nn::PReLUOptions().num_parameters(6)));
  add("Dropout", nn::Dropout());
  add("AlphaDropout", nn::AlphaDropout());
  add("FeatureAlphaDropout", nn::FeatureAlphaDropout());
  add("Identity", nn::Identity());
  add("Linear", nn::Linear(6, 3));
  add("Functional", nn::Functional([](const Tensor& x) { return x * 2; }));
  add("Unflatten", nn::Unflatten(1, std::vector<int64_t>{2, 3}));
  nets.push_back({"Softmax2d", nn::AnyModule(nn::Softmax2d()), {0, 3, 2, 2}});
  nets.push_back({"Dropout2d", nn::AnyModule(nn::Dropout2d()), {0, 3, 2, 2}});
  nets.push_back({"Flatten", nn::AnyModule(nn::Flatten()), {0, 3, 2, 2}});
  return nets;
}

std::vector<LayerNet> image_layers() {
  std::vector<LayerNet> nets;
  const auto images = [&](const std::string& name, auto layer, Shape shape = {0, 4, 7, 6}) {
    nets.push_back({name, nn::AnyModule(layer), shape});
  };
  const auto sequences = [&](const std::string& name, auto layer, Shape shape = {0, 4, 7}) {
    nets.push_back({name, nn::AnyModule(layer), shape});
  };
  using Transposed1d = nn::ConvTranspose1dOptions;
  using Transposed2d = nn::ConvTranspose2dOptions;
  sequences("Conv1d", nn::Conv1d(nn::Conv1dOptions(4, 6, 3).stride(2).padding(1)));
  sequences("Conv1d.same", nn::Conv1d(nn::Conv1dOptions(4, 6, 4).padding(kSame)));
  sequences("Conv1d.circular", nn::Conv1d(nn::Conv1dOptions(4, 6, 3).padding(1).padding_mode(kCircular)));
  images("Conv2d", nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 2}).stride({2, 1}).padding({0, 1}).groups(2)));
  images("Conv2d.same", nn::Conv2d(nn::Conv2dOptions(4, 6, {4, 2}).padding(kSame)));
  images("Conv2d.same_dilated", nn::Conv2d(nn::Conv2dOptions(4, 6, {2, 3}).dilation(3).padding(kSame)));
  images("Conv2d.same_odd", nn::Conv2d(nn::Conv2dOptions(4, 6, {3, 5}).padding(kSame)));
  images("Conv2d.reflect", nn::Conv2d(nn::Conv2dOptions(4, 6, 4).padding(kSame).padding_mode(kReflect)));
  images("Conv2d.replicate", nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(2).padding_mode(kReplicate)));
  images("Conv2d.circular", nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(2).padding_mode(kCircular)));
  images("Conv2d.far_apart", nn::Conv2d(nn::Conv2dOptions(4, 6, 2).stride(70).dilation(100)), {0, 4, 250, 200});
  images("ConvReLU2d", nn::ConvReLU2d(4, 6, 3));
  sequences("ConvTranspose1d", nn::ConvTranspose1d(4, 6, 3));
  sequences("ConvTranspose1d.all",
            nn::ConvTranspose1d(Transposed1d(4, 6, 3).stride(3).padding(1).output_padding(2).groups(2).dilation(2)));
  images("ConvTranspose2d", nn::ConvTranspose2d(4, 6, 3));
  images("ConvTranspose2d.strided",
         nn::ConvTranspose2d(
             Transposed2d(4, 6, {3, 2}).stride({2, 3}).padding({1, 0}).output_padding({1, 2}).bias(false)));
  images("ConvTranspose2d.dilated",
         nn::ConvTranspose2d(Transposed2d(4, 6, {3, 2}).dilation({2, 3}).groups(2).output_padding({1, 2})));
  images("ConvTranspose2d.point", nn::ConvTranspose2d(Transposed2d(4, 6, 1).dilation(3).output_padding(2)));
  images("ConvTranspose2d.far_apart", nn::ConvTranspose2d(Transposed2d(4, 6, 2).stride(70).dilation(100)),
         {0, 4, 3, 2});
  images("BatchNorm2d", nn::BatchNorm2d(4));
  images("BatchNorm2d.of_batch", nn::BatchNorm2d(nn::BatchNorm2dOptions(4).track_running_stats(false)));
  images("BNReLU2d", nn::BNReLU2d(4));
  sequences("BatchNorm1d", nn::BatchNorm1d(4));
  sequences("InstanceNorm1d", nn::InstanceNorm1d(nn::InstanceNorm1dOptions(4).affine(true)));
  images("InstanceNorm2d", nn::InstanceNorm2d(4));
  images("InstanceNorm2d.tracked", nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).track_running_stats(true)));
  images("LayerNorm", nn::LayerNorm(nn::LayerNormOptions({7, 6})));
  images("LayerNorm.plain", nn::LayerNorm(nn::LayerNormOptions({6}).elementwise_affine(false)));
  images("GroupNorm", nn::GroupNorm(2, 4));
  images("LocalResponseNorm", nn::LocalResponseNorm(3));
  sequences("MaxPool1d", nn::MaxPool1d(nn::MaxPool1dOptions(3).stride(2).ceil_mode(true)));
  images("MaxPool2d.ceil_width", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).ceil_mode(true)));
  images("MaxPool2d.ceil_height", nn::MaxPool2d(nn::MaxPool2dOptions(2).ceil_mode(true)));
  images("MaxPool2d", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1).dilation(2)));
  sequences("AvgPool1d", nn::AvgPool1d(nn::AvgPool1dOptions(3).padding(1).count_include_pad(false)));
  images("AvgPool2d", nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).ceil_mode(true)));
  sequences("AdaptiveAvgPool1d", nn::AdaptiveAvgPool1d(3));
  images("AdaptiveAvgPool2d", nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 4})));
  sequences("AdaptiveMaxPool1d", nn::AdaptiveMaxPool1d(3));
  images("AdaptiveMaxPool2d", nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({3, 4})));
  sequences("ConstantPad1d", nn::ConstantPad1d(nn::ConstantPad1dOptions({2, 1}, 0.5)));
  images("ConstantPad2d", nn::ConstantPad2d(nn::ConstantPad2dOptions({2, 1, 0, 3}, -1.5)));
  images("ConstantPad2d.negative", nn::ConstantPad2d(nn::ConstantPad2dOptions({-1, 2, 1, -2}, 3)));
  images("ConstantPad2d.cut", nn::ConstantPad2d(nn::ConstantPad2dOptions({-1, -2, -1, 0}, 3)));
  images("ZeroPad2d", nn::ZeroPad2d(2));
  sequences("ReflectionPad1d", nn::ReflectionPad1d(2));
  images("ReflectionPad2d", nn::ReflectionPad2d(nn::ReflectionPad2dOptions({2, 1, 0, 3})));
  sequences("ReplicationPad1d", nn::ReplicationPad1d(2));
  images("ReplicationPad2d", nn::ReplicationPad2d(nn::ReplicationPad2dOptions({2, 1, -1, 3})));
  images("Upsample", nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 3})));
  images("PixelShuffle", nn::PixelShuffle(2));
  images("PixelUnshuffle", nn::PixelUnshuffle(2), {0, 4, 6, 4});
  images("Unfold", nn::Unfold(nn::UnfoldOptions({3, 2}).padding(1).stride(2)));
  images("Fold", nn::Fold(nn::FoldOptions({4, 5}, {2, 2}).padding(1)), {0, 8, 30});
  return nets;
}

std::vector<LayerNet> sequence_layers() {
  std::vector<LayerNet> nets;
  const auto add = [&](const std::string& name, nn::AnyModule net, Shape shape, int64_t batch_axis, int64_t words = 0) {
    nets.push_back({name, std::move(net), shape, batch_axis, words});
  };
  const auto first = [](auto& layer, const Tensor& x) { return std::get<0>(layer(x)); };
  add("RNN", picked(nn::RNN(nn::RNNOptions(5, 4).num_layers(2).bidirectional(true)), first), {3, 0, 5}, 1);
  add("LSTM", picked(nn::LSTM(nn::LSTMOptions(5, 4).batch_first(true)), first), {0, 3, 5}, 0);
  for (const int64_t projected : {0, 3})
    add("LSTM.cell" + std::to_string(projected),
        picked(nn::LSTM(nn::LSTMOptions(5, 4).proj_size(projected)),
               [](nn::LSTM& layer, const Tensor& x) {
                 const auto [y, states] = layer(x);
                 return std::get<1>(states) + y.sum();
               }),
        {3, 0, 5}, 1);
  add("GRU", picked(nn::GRU(nn::GRUOptions(5, 4).num_layers(2).bidirectional(true)), first), {3, 0, 5}, 1);
  nn::GRU double_gru(nn::GRUOptions(5, 4).bias(false));
  double_gru->to(kDouble);
  add("GRU.double",
      picked(double_gru, [](nn::GRU& layer, const Tensor& x) { return std::get<0>(layer(x.to(kDouble))); }), {3, 0, 5},
      1);
  add("RNNCell", nn::AnyModule(nn::RNNCell(5, 4)), {0, 5}, 0);
  add("LSTMCell",
      picked(nn::LSTMCell(5, 4),
             [](nn::LSTMCell& cell, const Tensor& x) {
               const auto [h, c] = cell(x, cell(x.flip(1)));
               return h + c;
             }),
      {0, 5}, 0);
  add("GRUCell", nn::AnyModule(nn::GRUCell(5, 4)), {0, 5}, 0);
  add("Embedding", nn::AnyModule(nn::Embedding(10, 4)), {0, 3}, 0, 10);
  add("EmbeddingBag", nn::AnyModule(nn::EmbeddingBag(10, 4)), {0, 3}, 0, 10);
  add("MultiheadAttention",
      picked(nn::MultiheadAttention(8, 2),
             [](nn::MultiheadAttention& layer, const Tensor& x) {
               const auto [y, weights] = layer(x, x, x);
               return y + weights.sum();
             }),
      {3, 0, 8}, 1);
  const auto encoder = nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12);
  const auto decoder = nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12);
  const auto with_itself = [](auto& layer, const Tensor& x) { return layer(x, x * 0.5); };
  const auto alone = [](auto& layer, const Tensor& x) { return layer(x); };
  add("TransformerEncoderLayer", picked(nn::TransformerEncoderLayer(encoder), alone), {3, 0, 8}, 1);
  add("TransformerEncoder", picked(nn::TransformerEncoder(nn::TransformerEncoderLayer(encoder), 2), alone), {3, 0, 8},
      1);
  add("TransformerDecoderLayer", picked(nn::TransformerDecoderLayer(decoder), with_itself), {3, 0, 8}, 1);
  add("TransformerDecoder", picked(nn::TransformerDecoder(nn::TransformerDecoderLayer(decoder), 2), with_itself),
      {3, 0, 8}, 1);
  add("Transformer", picked(nn::Transformer(nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(12)), with_itself),
      {3, 0, 8}, 1);
  return nets;
}

/// Layers with two or more inputs of shape (N, 6), including losses.
std::vector<LayerNet> layers_of_two() {
  std::vector<LayerNet> nets;
  const auto add = [&](const std::string& name, nn::AnyModule net) { nets.push_back({name, std::move(net), {0, 6}}); };
  add("Bilinear", of_halves(nn::Bilinear(3, 3, 4)));
  add("CosineSimilarity", of_halves(nn::CosineSimilarity()));
  add("PairwiseDistance", of_halves(nn::PairwiseDistance()));
  add("MSELoss", of_halves(nn::MSELoss()));
  add("L1Loss", of_halves(nn::L1Loss()));
  add("SmoothL1Loss", of_halves(nn::SmoothL1Loss()));
  add("HuberLoss", of_halves(nn::HuberLoss()));
  add("PoissonNLLLoss", of_halves(nn::PoissonNLLLoss()));
  add("BCEWithLogitsLoss", of_halves(nn::BCEWithLogitsLoss()));
  add("KLDivLoss", of_halves(nn::KLDivLoss()));
  add("SoftMarginLoss", of_halves(nn::SoftMarginLoss()));
  add("MultiLabelSoftMarginLoss", of_halves(nn::MultiLabelSoftMarginLoss()));
  add("HingeEmbeddingLoss", of_halves(nn::HingeEmbeddingLoss()));
  const auto loss = [&](const std::string& name, std::function<Tensor(const Tensor&)> f) { add(name, module_of(f)); };
  loss("MarginRankingLoss", [](const Tensor& x) { return nn::MarginRankingLoss()(x, x * x, x.sign()); });
  loss("TripletMarginLoss", [](const Tensor& x) { return nn::TripletMarginLoss()(x, x * x, x.exp()); });
  loss("CosineEmbeddingLoss",
       [](const Tensor& x) { return nn::CosineEmbeddingLoss()(x, x * x, x.select(1, 0).sign()); });
  loss("MultiMarginLoss", [](const Tensor& x) { return nn::MultiMarginLoss()(x, x.argmin(1)); });
  loss("NLLLoss", [](const Tensor& x) { return nn::NLLLoss()(x.log_softmax(1), x.argmin(1)); });
  loss("CrossEntropyLoss", [](const Tensor& x) { return nn::CrossEntropyLoss()(x, x.argmin(1)); });
  return nets;
}

/// Nets whose outputs are views of the input or of an intermediate result, or do not depend on the input.
std::vector<LayerNet> views_as_outputs() {
  std::vector<LayerNet> nets;
  const auto add = [&](const std::string& name, std::function<Tensor(const Tensor&)> f) {
    nets.push_back({"view." + name, module_of(f), {0, 3, 4}});
  };
  add("identity", [](const Tensor& x) { return x; });
  add("flatten", [](const Tensor& x) { return x.flatten(1); });
  add("reshape", [](const Tensor& x) { return x.reshape({-1, 2, 6}); });
  add("transpose", [](const Tensor& x) { return x.transpose(1, 2); });
  add("batch_last", [](const Tensor& x) { return x.permute({1, 2, 0}); });
  add("slice", [](const Tensor& x) { return x.slice(1, 1, 3).slice(2, 0, 4, 2); });
  add("select", [](const Tensor& x) { return x.select(1, 2); });
  add("expand", [](const Tensor& x) { return x.unsqueeze(1).expand({-1, 2, -1, -1}); });
  add("diagonal", [](const Tensor& x) { return x.diagonal(0, 1, 2); });
  add("windows", [](const Tensor& x) { return x.unfold(2, 2, 1); });
  add("select_transposed", [](const Tensor& x) { return x.select(2, 1).t(); });
  add("windows_transposed", [](const Tensor& x) { return x.unfold(2, 2, 1).transpose(1, 2); });
  add("of_intermediate", [](const Tensor& x) { return x.relu().transpose(1, 2).slice(1, 1, 3); });
  add("beside_a_used_part", [](const Tensor& x) { return x.slice(1, 0, 1).relu(), x.slice(1, 2, 3); });
  add("in_place", [](const Tensor& x) { return x.clone().flatten(1).mul_(2).view({-1, 3, 4}).transpose(1, 2); });
  add("detached", [](const Tensor& x) { return x.detach().squeeze(); });
  const Tensor outside = randn({2, 3});
  add("of_outside", [outside](const Tensor&) { return outside.t(); });
  add("constant", [](const Tensor&) { return tensor({1.5, 2.5}); });
  add("made_of_nothing", [](const Tensor&) { return full({2, 2}, 3.0); });
  add("arange", [](const Tensor&) { return arange(4, TensorOptions(kLong)); });
  nn::Linear linear(3, 2);
  nets.push_back({"view.parameter", picked(linear, [](nn::Linear& l, const Tensor&) { return l->weight; }), {0, 3}});
  nets.push_back(
      {"view.of_parameter", picked(linear, [](nn::Linear& l, const Tensor&) { return l->weight.t(); }), {0, 3}});
  nets.push_back({"view.scalar", module_of([](const Tensor& x) { return x.squeeze(); }), {1}, std::nullopt});
  return nets;
}

/// Nets that write into parts of arrays, and operators that no layer above uses.
std::vector<LayerNet> other_nets() {
  std::vector<LayerNet> nets;
  const auto add = [&](const std::string& name, std::function<Tensor(const Tensor&)> f, Shape shape = {0, 5}) {
    nets.push_back({"other." + name, module_of(f), shape});
  };
  const auto written = [&](const std::string& name, std::function<void(const Tensor&)> f) {
    add(name, [f](const Tensor& x) {
      const Tensor y = x.exp();
      return f(y), y;
    });
  };
  written("zeroed_column", [](const Tensor& y) { y.select(1, 0).zero_(); });
  written("every_second", [](const Tensor& y) { y.slice(1, 0, 5, 2).mul_(-1); });
  written("copied_columns", [](const Tensor& y) { y.slice(1, 0, 2).copy_(y.slice(1, 3, 5)); });
  written("transposed_part", [](const Tensor& y) { y.t().slice(0, 1, 4).add_(1); });
  written("filled_twice", [](const Tensor& y) { y.slice(1, 1, 4).fill_(2), y.slice(1, 2, 5).add_(y.slice(1, 0, 3)); });
  add("border",
      [](const Tensor& x) {
        const Tensor y = zeros({x.size(0), 4, 4});
        y.slice(1, 1, 3).slice(2, 0, 2).copy_(x.reshape({-1, 2, 2}));
        return y.slice(1, 0, 4, 3).fill_(7), y;
      },
      {0, 4});
  // Parts of a new array that no single slice consists of. None of the elements that no part writes is read.
  const auto of_parts = [&](const std::string& name, Shape whole,
                            std::function<Tensor(const Tensor&, const Tensor&)> f) {
    add(name, [whole, f](const Tensor& x) { return f(empty(whole), x.sum(0)); }, {0, 12});
  };
  add("unwritten_column", [](const Tensor& x) {
    const Tensor y = empty({x.size(0), 8});
    y.slice(1, 0, 3).copy_(x.slice(1, 0, 3));
    y.slice(1, 4, 8).copy_(x.slice(1, 1, 5) * 2);
    return y.slice(1, 2, 7, 2) * 3;
  });
  of_parts("unequal_rows", {12}, [](const Tensor& y, const Tensor& a) {
    y.slice(0, 0, 4).view({2, 2}).copy_(a.slice(0, 0, 4).view({2, 2}));
    y.slice(0, 4, 12).view({2, 4}).copy_(a.slice(0, 3, 11).view({2, 4}));
    return y * 2;
  });
  of_parts("transposed_rows", {8}, [](const Tensor& y, const Tensor& a) {
    y.slice(0, 0, 4).view({2, 2}).copy_(a.slice(0, 0, 4).view({2, 2}));
    y.slice(0, 4, 8).view({2, 2}).t().copy_(a.slice(0, 4, 8).view({2, 2}));
    return y * 2;
  });
  of_parts("row_and_matrix", {8}, [](const Tensor& y, const Tensor& a) {
    y.slice(0, 4, 8).view({2, 2}).copy_(a.slice(0, 4, 8).view({2, 2}));
    y.slice(0, 0, 4).copy_(a.slice(0, 0, 4));
    return y * 2;
  });
  of_parts("row_of_matrices", {2, 2, 3}, [](const Tensor& y, const Tensor& a) {
    y.copy_(a.view({2, 2, 3}));
    return y.select(0, 1).t() * 2;
  });
  of_parts("overlapping_rows", {12}, [](const Tensor& y, const Tensor& a) {
    y.copy_(a);
    return y.as_strided({2, 5}, {4, 1}) * 2;
  });
  of_parts("three_parts", {12}, [](const Tensor& y, const Tensor& a) {
    y.slice(0, 4, 8).copy_(a.slice(0, 0, 4));
    y.slice(0, 0, 4).copy_(a.slice(0, 5, 9));
    y.slice(0, 8, 12).copy_(a.slice(0, 7, 11));
    return y.slice(0, 0, 8).sum() + y.slice(0, 8, 12);
  });
  of_parts("unequal_columns", {3, 4}, [](const Tensor& y, const Tensor& a) {
    y.slice(0, 0, 2).slice(1, 0, 2).copy_(a.slice(0, 0, 4).view({2, 2}));
    y.slice(1, 2, 4).copy_(a.slice(0, 5, 11).view({3, 2}));
    return y.slice(0, 0, 2) * 2;
  });
  add("every_second_column_first", [](const Tensor& x) {
    const Tensor y = x.t().exp();
    return y.slice(0, 0, 5, 2).mul_(-1), y;
  });
  add("every_second_of_8d",
      [](const Tensor& x) {
        return x.view({-1, 2, 1, 2, 2, 2, 2, 4}).slice(7, 0, 4, 2) * 2;
      },
      {0, 128});
  add("every_second_of_long_8d",
      [](const Tensor& x) {
        return x.view({-1, 2, 2, 2, 2, 2, 2, 4}).slice(7, 0, 4, 2) * 2;
      },
      {0, 256});
  add("padded_5d", [](const Tensor& x) { return pad(x.view({-1, 1, 2, 1, 2}), {1, 1, 0, 2, 1, 0, 0, 1}); }, {0, 4});
  add("topk", [](const Tensor& x) {
    const auto [values, indices] = topk(x, 2);
    return values + indices.to(kFloat);
  });
  add("topk.smallest", [](const Tensor& x) {
    const auto [values, indices] = topk(x.t(), 3, 0, false);
    return values.t() + indices.t().to(kFloat);
  });
  add("sort", [](const Tensor& x) { return std::get<0>(x.sort(1, true)) + x.argsort(1).to(kFloat); });
  add("median", [](const Tensor& x) { return std::get<0>(median(x, 1)); });
  add("kthvalue", [](const Tensor& x) { return std::get<0>(kthvalue(x, 2, 1)); });
  add("scatter", [](const Tensor& x) { return x.scatter(1, x.argsort(1).slice(1, 0, 2), -1.0); });
  add("scatter_add", [](const Tensor& x) { return x.scatter_add(1, x.argsort(1), x * 2); });
  add("pool_indices",
      [](const Tensor& x) {
        const auto [y, places] = max_pool2d_with_indices(x.view({-1, 3, 4, 4}), 2);
        return y + places.to(kFloat);
      },
      {0, 48});
  add("atan", [](const Tensor& x) { return x.atan() + atan2(x, x.flip(1)) + asin(x.tanh()) + acos(x.tanh()); });
  add("hyperbolic", [](const Tensor& x) { return x.sinh() + x.cosh() + x.asinh() + (x.abs() + 1.5).acosh(); });
  add("einsum", [](const Tensor& x) { return einsum("ni,nj->nij", {x, x}); });
  add("unused_random", [](const Tensor& x) { return rand({3}), x + 1; });
  return nets;
}

}  // namespace

TEST_CASE("each layer for onnxruntime", "[onnxruntime]") {
  const test::RuntimeFolder folder;
  manual_seed(11);
  std::set<std::string> exported;
  for (const auto& nets :
       {activations(), image_layers(), sequence_layers(), layers_of_two(), views_as_outputs(), other_nets()})
    for (const LayerNet& net : nets) {
      CAPTURE(net.name);
      exported.insert(net.name.substr(0, net.name.find('.')));
      const auto input = [&](int64_t batch) {
        Shape shape = net.shape;
        if (net.batch_axis) shape[static_cast<int>(*net.batch_axis)] = batch;
        return net.words > 0 ? randint(0, net.words, shape, kLong) : randn(shape);
      };
      const NoGradGuard no_grad;
      net.module.ptr()->eval();
      CHECK_NOTHROW(
          export_onnx(net.module, input(1), folder / (net.name + ".onnx"), OnnxOptions().batch_axis(net.batch_axis)));
      const auto file = test::ModelFile::read(folder / (net.name + ".onnx"));
      for (int64_t batch : {2, 5}) {
        const Tensor x = input(batch), y = net.module.forward(x);
        CHECK(difference(file, {x}, {y}) == "");
        folder.save(net.name, batch, "input", x.array());
        folder.save(net.name, batch, "output", y.array());
      }
    }
  // Every layer must have a net here and be listed in docs/guide/export.md. Containers have no forward of their own.
  std::ifstream page_file("docs/guide/export.md");
  const std::string page{std::istreambuf_iterator<char>(page_file), {}};
  const std::regex declared("\nGRADUS_MODULE\\((\\w+)\\);");
  for (const auto& entry : std::filesystem::directory_iterator("layers")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    const std::string header{std::istreambuf_iterator<char>(file), {}};
    for (std::sregex_iterator found(header.begin(), header.end(), declared), end; found != end; ++found) {
      const std::string layer = (*found)[1];
      CAPTURE(layer);
      if (layer.ends_with("List") || layer.ends_with("Dict")) continue;
      CHECK((exported.contains(layer) || layer == "BCELoss"));  // BCELoss reads numbers to check their range
      CHECK(page.find("`" + layer + "`") != std::string::npos);
    }
  }
}

namespace {

using NamedArrays = graph::ForwardPass::Arrays;

/// Records `f`, which returns the outputs, and exports it.
std::string onnx_of(const NamedArrays& inputs, const NamedArrays& weights,
                    const std::function<std::vector<Array>()>& f) {
  graph::ForwardPass pass;
  graph::Recorder recorder;
  const std::vector<Array> outputs = f();
  pass.graph = recorder.finish();
  pass.inputs = inputs, pass.weights = weights;
  for (const Array& output : outputs) pass.outputs.emplace_back("output" + std::to_string(pass.outputs.size()), output);
  return graph::to_onnx(pass);
}

/// What is wrong with the exported form of `f`, or "".
std::string difference_of(const NamedArrays& inputs, const std::function<std::vector<Array>()>& f) {
  TensorList values, expected;
  for (const auto& [name, array] : inputs) values.emplace_back(array);
  const std::string bytes = onnx_of(inputs, {}, f);
  for (const Array& output : f()) expected.emplace_back(output);
  return difference(test::ModelFile(bytes), values, expected);
}

Array random_array(const Shape& shape) { return randn(shape).array(); }

}  // namespace

TEST_CASE("outputs of a recorded pass may be views of its input, and two outputs may be the same array", "[onnx]") {
  const Tensor x = randn({2, 3}), weight = randn({3});
  graph::Recorder recorder;
  const Tensor product = x * 2, view = x.t();
  graph::ForwardPass pass;
  pass.graph = recorder.finish();
  pass.inputs = {{"x", x.array()}};
  pass.weights = {{"weight", weight.array()}};
  pass.outputs = {{"view", view.array()},
                  {"product", product.array()},
                  {"again", product.array()},
                  {"weight_again", weight.array()}};
  const test::ModelFile model(graph::to_onnx(pass));
  CHECK(difference(model, {x}, {view, x * 2, x * 2, weight}) == "");
  for (const test::ModelFile::Node& node : model.nodes) CHECK(node.name == node.outputs[0]);  // they are in no module
  graph::Recorder nothing;
  pass.graph = nothing.finish();
  pass.outputs.erase(pass.outputs.begin() + 1, pass.outputs.begin() + 3);
  CHECK(difference(test::ModelFile(graph::to_onnx(pass)), {x}, {view, weight}) == "");
}

TEST_CASE("values of weights are found by their addresses", "[onnx]") {
  const Array numbers = random_array({24});
  const auto view = [&](int64_t offset, const Shape& shape, const Strides& strides) {
    return Array(numbers.storage(), offset, shape, strides, DType::f32);
  };
  const auto twice = [](const Array& x) { return ops::binary_scalar(BinaryOp::mul, x, 2); };
  const auto evaluated = [](const std::string& bytes) { return test::evaluate(test::ModelFile(bytes), {}); };
  const Array left = view(0, {4}, {1}), right = view(4, {4}, {1}), one = view(8, {1}, {1});
  const NamedArrays weights = {
      {"empty", view(5, {0}, {1})}, {"left", left}, {"right", right}, {"one", one}, {"again", one}};
  const std::string bytes = onnx_of({}, weights, [&] {
    return std::vector<Array>{twice(right), left, right, twice(one)};
  });
  for (const char* name : {"left", "right", "one"}) CHECK(test::ModelFile(bytes).weights.contains(name));
  const TensorList found = evaluated(bytes);
  CHECK(found[0].equal(Tensor(right) * 2));
  CHECK(found[1].equal(Tensor(left)));
  CHECK(found[2].equal(Tensor(right)));
  CHECK(found[3].equal(Tensor(one) * 2));

  const std::string partly = "of which only a part is known";
  const auto of_both = [&](const Array& first, const Array& second) {
    return onnx_of({}, {{"first", first}, {"second", second}}, [&] {
      return std::vector<Array>{twice(first), twice(second)};
    });
  };
  // A repeated row of which the call reads two columns.
  CHECK_THROWS_WITH(of_both(view(0, {2, 3}, {0, 1}), view(1, {2, 2}, {0, 1})), contains(partly));
  // Rows of elements 4 apart: their third elements are the first ones of later rows.
  CHECK_THROWS_WITH(of_both(view(0, {2, 3}, {4, 2}), view(8, {2, 3}, {4, 2})), contains(partly));
  // The same rows, of which the other weight has only the first column.
  CHECK_THROWS_WITH(of_both(view(0, {2, 3}, {4, 2}), view(8, {2, 1}, {4, 2})), contains(partly));
  CHECK_THROWS_WITH(of_both(view(0, {2, 1}, {4, 2}), view(2, {2, 3}, {4, 2})), contains(partly));
  const Array reversed = view(9, {4}, {-1});
  CHECK_THROWS_WITH(onnx_of({}, {{"weight", reversed}}, [&] { return std::vector<Array>{reversed}; }),
                    contains(partly));
  CHECK_THROWS_WITH(onnx_of({}, {}, [&] { return std::vector<Array>{left}; }),
                    contains("no call and no input or weight"));
}

TEST_CASE("an input that the pass changes in separate parts is no output", "[onnx]") {
  const Array x = random_array({12});
  const auto of_parts = [&](bool first, bool second, int64_t begin, int64_t end) {
    return onnx_of({{"x", x}}, {}, [&] {
      Backend& cpu = current_backend(DeviceType::cpu);
      const Array left = x.slice(0, 2, 5), right = x.slice(0, 7, 10);
      if (first) cpu.fill(left, 1);
      if (second) cpu.fill(right, 2);
      return std::vector<Array>{ops::clone(left), ops::clone(right), x.slice(0, begin, end)};
    });
  };
  const auto check = [&](const std::string& bytes, const Array& output) {
    const TensorList found = test::evaluate(test::ModelFile(bytes), {Tensor(x)});
    CHECK(found.at(2).equal(Tensor(output)));
  };
  check(of_parts(false, false, 2, 12), x.slice(0, 2, 12));
  check(of_parts(false, true, 2, 7), x.slice(0, 2, 7));
  check(of_parts(true, false, 7, 12), x.slice(0, 7, 12));
  for (const bool first : {false, true})
    CHECK_THROWS_WITH(of_parts(first, !first, 2, 8), contains("that no call and no input or weight has"));
}

TEST_CASE("an input that the pass changes is an output with its new values", "[onnx]") {
  const Tensor x = randn({2, 3}), before = x.clone();
  const std::string bytes = onnx_of({{"x", x.array()}}, {}, [&] {
    x.mul_(2);
    return std::vector<Array>{x.array()};
  });
  REQUIRE(x.equal(before));
  CHECK(difference(test::ModelFile(bytes), {x}, {x * 2}) == "");
}

TEST_CASE("exported kernels have the results that no layer reads", "[onnx]") {
  const Array x = random_array({3, 2, 5}), h0 = random_array({2, 4}), c0 = random_array({2, 4});
  const Array w_ih = random_array({16, 5}), w_hh = random_array({16, 4}), none;
  const auto lstm = [&] {
    return ops::recurrent(RecurrentCell::lstm, x, h0, c0, {w_ih, w_hh, none, none, none}, false);
  };
  const NamedArrays inputs = {{"x", x}, {"h0", h0}, {"c0", c0}, {"w_ih", w_ih}, {"w_hh", w_hh}};
  CHECK(difference_of(inputs, [&] {
          const ops::RecurrentStates states = lstm();
          return std::vector<Array>{states.hidden, states.cells.slice(0, 2, 3)};
        }) == "");
  const std::string unknown = "has no counterpart in ONNX here; its result is used by the model's";
  CHECK_THROWS_WITH(onnx_of(inputs, {}, [&] { return std::vector<Array>{lstm().gates}; }), contains(unknown));
  CHECK_THROWS_WITH(onnx_of(inputs, {}, [&] { return std::vector<Array>{lstm().cells.slice(0, 0, 1)}; }),
                    contains("that no call has written"));
  CHECK_THROWS_WITH(
      onnx_of(inputs, {},
              [&] {
                const Array gates = ops::full({3, 2, 16}, 0.5, DType::f32);
                const Array hidden = Array::empty({3, 2, 4}, DType::f32), cells = Array::empty_like(hidden);
                RecurrentArgs args;
                args.gates = gates, args.w_hh = w_hh, args.h0 = h0, args.c0 = c0;
                args.cells = cells, args.outputs = hidden, args.hidden = hidden;
                current_backend(DeviceType::cpu).recurrent_sequence(args);
                return std::vector<Array>{hidden};
              }),
      contains("a sequence whose gates are no product"));

  // The states of an RNN that are a part of a larger array.
  const Array w_in = random_array({4, 5}), w_state = random_array({4, 4});
  CHECK(difference_of({{"x", x}, {"h0", h0}, {"w_in", w_in}, {"w_state", w_state}}, [&] {
          const Array larger = Array::empty({6, 2, 4}, DType::f32), states = larger.slice(0, 3, 6);
          Backend& cpu = current_backend(DeviceType::cpu);
          cpu.copy(ops::linear(x, w_in, none), states);
          RecurrentArgs args;
          args.cell = RecurrentCell::rnn_tanh;
          args.gates = states, args.w_hh = w_state, args.h0 = h0, args.c0 = h0;
          args.cells = states, args.outputs = states, args.hidden = states;
          cpu.recurrent_sequence(args);
          return std::vector<Array>{states};
        }) == "");

  const Array q = random_array({2, 2, 3, 4}), k = random_array({2, 2, 5, 4}), v = random_array({2, 2, 5, 6});
  CHECK(difference_of({{"q", q}, {"k", k}, {"v", v}}, [&] {
          AttentionRule rule;
          rule.scale = 0.5;
          const ops::AttentionResult result = ops::attention(q, k, v, none, rule);
          return std::vector<Array>{result.y, result.weights};
        }) == "");
}

TEST_CASE("normalisations over any axes are exported", "[onnx]") {
  const Array x = random_array({2, 3, 4}), all = random_array({2, 3, 4});
  const auto parameter = [&](std::vector<int> axes) {
    Array p = all;
    for (int axis = 0; axis < 3; ++axis)
      if (std::ranges::count(axes, axis) == 0) p = p.slice(axis, 0, 1);
    return ops::clone(p, MemoryFormat::contiguous);
  };
  const auto check = [&](uint32_t axes, const std::vector<int>& weight, const std::vector<int>& bias, bool fixed) {
    CAPTURE(axes, weight, bias, fixed);
    std::vector<int> kept;
    for (int axis = 0; axis < 3; ++axis)
      if (!(axes >> axis & 1)) kept.push_back(axis);
    const Array mean = fixed ? parameter(kept) : Array(), w = parameter(weight), b = parameter(bias);
    const Array variance = fixed ? ops::binary_scalar(BinaryOp::add, ops::unary(UnaryOp::square, mean), 0.5) : Array();
    NamedArrays inputs = {{"x", x}, {"w", w}, {"b", b}};
    if (fixed) inputs.insert(inputs.end(), {{"mean", mean}, {"variance", variance}});
    CHECK(difference_of(
              inputs, [&] { return std::vector<Array>{ops::normalize(x, axes, w, b, 1e-3, mean, variance).y}; }) == "");
  };
  for (const bool fixed : {false, true})
    for (const uint32_t axes : {1u, 2u, 4u, 5u, 6u, 7u})
      for (const std::vector<int>& varying : {std::vector<int>{0}, {1}, {2}, {0, 1}, {1, 2}, {}}) {
        check(axes, varying, varying, fixed);
        check(axes, {1}, varying, fixed);
        check(axes, varying, {2}, fixed);
      }
  // A parameter's stride along an axis of size 1 does not matter.
  const Array row = random_array({2, 1, 4}), scale = random_array({1, 1, 4});
  const std::string norm = onnx_of({{"x", row}, {"w", scale}, {"b", scale}}, {}, [&] {
    return std::vector<Array>{ops::normalize(row, 4, scale, scale, 1e-3, Array(), Array()).y};
  });
  CHECK(std::ranges::count(test::ModelFile(norm).ops(), "LayerNormalization") == 1);
}

TEST_CASE("two recordings of a pass must be of two batches", "[onnx]") {
  const auto recorded = [](int64_t batch, size_t outputs = 1) {
    graph::ForwardPass pass;
    const Tensor x = ones({4, batch}), other = ones({2});
    graph::Recorder recorder;
    const Tensor y = x * 2 + other.sum() * ones({batch});
    pass.graph = recorder.finish();
    pass.inputs = {{"x", x.array()}, {"other", other.array()}};
    for (size_t i = 0; i < outputs; ++i) pass.outputs.emplace_back("y" + std::to_string(i), y.array());
    return pass;
  };
  const auto dynamic = [&](int64_t batch, int64_t larger, int64_t axis = 1) {
    return to_strings(test::ModelFile(graph::to_onnx(recorded(batch), recorded(larger), axis)).outputs);
  };
  const Tensor x = randn({4, 7}), other = randn({2});
  CHECK(difference(test::ModelFile(graph::to_onnx(recorded(2), recorded(3), 1)), {x, other}, {x * 2 + other.sum()}) ==
        "");
  CHECK(dynamic(2, 3) == std::vector<std::string>{"y0 (4, batch)"});
  CHECK(dynamic(3, 5, -1) == std::vector<std::string>{"y0 (4, batch)"});
  CHECK_THROWS_WITH(dynamic(1, 2), contains("needs a larger batch") && contains("got 1 and 2"));
  CHECK_THROWS_WITH(dynamic(3, 3), contains("got 3 and 3"));
  CHECK_THROWS_WITH(dynamic(3, 2), contains("got 3 and 2"));
  CHECK_THROWS_WITH(dynamic(2, 3, 0), contains("got 4 and 4"));
  CHECK_THROWS_AS(dynamic(2, 3, 2), IndexError);
  const auto with_weights = [](int64_t batch, const Tensor& a, const Tensor& b, bool reversed) {
    graph::ForwardPass pass;
    const Tensor x = ones({batch});
    graph::Recorder recorder;
    const Tensor y = x * a + b;
    pass.graph = recorder.finish();
    pass.inputs = {{"x", x.array()}}, pass.outputs = {{"y", y.array()}};
    pass.weights = {{"a", a.array()}, {"b", b.array()}};
    if (reversed) std::swap(pass.weights[0], pass.weights[1]);
    return pass;
  };
  const Tensor a = full({1}, 2.5), b = full({1}, 2.5), c = full({1}, 3.5);
  CHECK_NOTHROW(graph::to_onnx(with_weights(2, a, b, false), with_weights(3, b, a, false)));
  CHECK_THROWS_WITH(graph::to_onnx(with_weights(2, a, b, false), with_weights(3, a, b, true)), contains("differs"));
  CHECK_THROWS_WITH(graph::to_onnx(with_weights(2, a, b, false), with_weights(3, a, c, false)), contains("differs"));
  const std::string same = "both recordings need the same inputs and outputs";
  CHECK_THROWS_WITH(graph::to_onnx(recorded(2, 1), recorded(3, 2), 1), contains(same));
  graph::ForwardPass one = recorded(2), larger = recorded(3);
  one.inputs.pop_back();
  CHECK_THROWS_WITH(graph::to_onnx(one, larger, 1), contains(same));
  larger.inputs.clear(), one.inputs.clear();
  CHECK_THROWS_WITH(graph::to_onnx(one, larger, 1), contains(same));
}
