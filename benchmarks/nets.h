// The nets of the experiments, by name; benchmarks/vs_pytorch.py has the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/gradus.h>

namespace gradus::benchmarks {

/// A net, the size of its images and the batch sizes at which it is measured.
struct Workload {
  std::string name;
  Shape image;  // (C, H, W)
  std::vector<int64_t> batches;
  std::function<nn::Sequential()> make;
};

/// 784-100-10
inline nn::Sequential pure_linear() {
  return nn::Sequential(nn::Flatten(), nn::Linear(784, 100), nn::ReLU(), nn::Linear(100, 10));
}

/// `depth` fused 3x3 convolutions with ReLU of `channels` channels on 28x28, then one linear layer.
inline nn::Sequential conv_net(int64_t depth, int64_t channels) {
  nn::Sequential net;
  for (int64_t i = 0; i < depth; ++i)
    net->push_back(nn::ConvReLU2d(nn::Conv2dOptions(i == 0 ? 1 : channels, channels, 3).padding(1)));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(channels * 28 * 28, 10));
  return net;
}

/// LeCun et al. 1998, with ReLU and max pooling.
inline nn::Sequential lenet() {
  return nn::Sequential(nn::ConvReLU2d(nn::Conv2dOptions(1, 6, 5).padding(2)), nn::MaxPool2d(2),
                        nn::ConvReLU2d(nn::Conv2dOptions(6, 16, 5)), nn::MaxPool2d(2), nn::Flatten(),
                        nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84), nn::ReLU(), nn::Linear(84, 10));
}

/// Three blocks conv3x3 + ReLU + maxpool2 (32, 64, 128 channels) on 96x96, linear 512, dropout, linear 10.
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

inline std::vector<Workload> workloads() {
  return {{"pure_linear", {1, 28, 28}, {128}, pure_linear},
          {"conv2_c1", {1, 28, 28}, {128}, [] { return conv_net(2, 1); }},
          {"conv10_c1", {1, 28, 28}, {128}, [] { return conv_net(10, 1); }},
          {"conv2_c32", {1, 28, 28}, {128}, [] { return conv_net(2, 32); }},
          {"conv10_c32", {1, 28, 28}, {128}, [] { return conv_net(10, 32); }},
          {"lenet", {1, 28, 28}, {64, 1024}, lenet},
          {"stl10_net", {3, 96, 96}, {32, 128}, stl10_net}};
}

}  // namespace gradus::benchmarks
