// The nets of the experiments. benchmarks/nets.py has the same nets for PyTorch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/examples/common/resnet.h>
#include <gradus/gradus.h>

namespace gradus::benchmarks {

/// A net with logits of 10 classes, the shape of its input for a batch size, and the batch sizes at which it is
/// measured. The larger sizes are only for GPUs.
struct Workload {
  std::string name;
  std::function<Shape(int64_t batch)> input;
  std::vector<int64_t> batches;
  std::function<nn::AnyModule()> make;
  std::vector<int64_t> larger_batches = {};
};

inline auto images(int64_t channels, int64_t height, int64_t width) {
  return [=](int64_t batch) { return Shape{batch, channels, height, width}; };
}

inline auto sequences(int64_t length, int64_t features) {
  return [=](int64_t batch) { return Shape{length, batch, features}; };
}

/// 784-100-10
inline nn::Sequential pure_linear() {
  return nn::Sequential(nn::Flatten(), nn::Linear(784, 100), nn::ReLU(), nn::Linear(100, 10));
}

/// `depth` fused 3x3 convolutions with ReLU and `channels` channels on images of 28x28, and a linear layer.
inline nn::Sequential conv_net(int64_t depth, int64_t channels) {
  nn::Sequential net;
  for (int64_t i = 0; i < depth; ++i)
    net->push_back(nn::ConvReLU2d(nn::Conv2dOptions(i == 0 ? 1 : channels, channels, 3).padding(1)));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(channels * 28 * 28, 10));
  return net;
}

/// LeNet-5 (LeCun et al. 1998) with ReLU and max pooling.
inline nn::Sequential lenet() {
  return nn::Sequential(nn::ConvReLU2d(nn::Conv2dOptions(1, 6, 5).padding(2)), nn::MaxPool2d(2),
                        nn::ConvReLU2d(nn::Conv2dOptions(6, 16, 5)), nn::MaxPool2d(2), nn::Flatten(),
                        nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84), nn::ReLU(), nn::Linear(84, 10));
}

/// Three blocks of conv3x3, ReLU and maxpool2 (32, 64, 128 channels) on images of 96x96, then linear 512, dropout,
/// linear 10.
inline nn::Sequential stl10_net() {
  nn::Sequential net;
  int64_t in = 3;
  for (int64_t out : {32, 64, 128}) {
    net->push_back(nn::ConvReLU2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    net->push_back(nn::MaxPool2d(2));
    in = out;
  }
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(128 * 12 * 12, 512));
  net->push_back(nn::Dropout(0.5));
  net->push_back(nn::Linear(512, 10));
  return net;
}

/// An LSTM layer, and a linear layer on its last output.
struct LstmNet : nn::Module {
  nn::LSTM lstm = register_module("lstm", nn::LSTM(128, 128));
  nn::Linear fc = register_module("fc", nn::Linear(128, 10));

  Tensor forward(const Tensor& x) { return fc(std::get<0>(lstm(x))[-1]); }
};

/// An encoder layer of a transformer (4 heads, 2048 features between its linear layers), and a linear layer on the mean
/// of its outputs.
struct AttentionNet : nn::Module {
  nn::TransformerEncoderLayer encoder = register_module("encoder", nn::TransformerEncoderLayer(128, 4));
  nn::Linear fc = register_module("fc", nn::Linear(128, 10));

  Tensor forward(const Tensor& x) { return fc(encoder(x).mean({0})); }
};

inline std::vector<Workload> workloads() {
  const auto of = [](auto make) { return [=] { return nn::AnyModule(make()); }; };
  const auto convolutions = [&](int64_t depth, int64_t channels) {
    return of([=] { return conv_net(depth, channels); });
  };
  return {{"pure_linear", images(1, 28, 28), {128}, of(pure_linear)},
          {"conv2_c1", images(1, 28, 28), {128}, convolutions(2, 1)},
          {"conv10_c1", images(1, 28, 28), {128}, convolutions(10, 1)},
          {"conv2_c32", images(1, 28, 28), {128}, convolutions(2, 32)},
          {"conv10_c32", images(1, 28, 28), {128}, convolutions(10, 32)},
          {"lenet", images(1, 28, 28), {64, 1024}, of(lenet)},
          {"stl10_net", images(3, 96, 96), {32, 128}, of(stl10_net), {512}},
          {"resnet18", images(3, 32, 32), {32}, of([] { return ResNet18(); }), {128}},
          {"lstm", sequences(64, 128), {32}, of([] { return std::make_shared<LstmNet>(); })},
          {"attention", sequences(64, 128), {16}, of([] { return std::make_shared<AttentionNet>(); })}};
}

}  // namespace gradus::benchmarks
