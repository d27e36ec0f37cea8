// ResNet-18 (He, Zhang, Ren, Sun: "Deep residual learning for image recognition", 2016) for small images.
//
// As is usual for CIFAR, the first convolution is 3 x 3 and no pooling follows it; the first layers of the paper are an
// option. Parameters have torchvision's names (conv1, bn1, layer1.0.conv1, …, fc), so that weights can be exchanged
// with PyTorch.
#pragma once

#include <gradus/layers/layers.h>

struct ResNet18Options {
  GRADUS_ARG(int64_t, classes) = 10;
  /// Number of channels in the first stage. The other stages have 2, 4 and 8 times as many. The paper has 64.
  GRADUS_ARG(int64_t, width) = 64;
  /// Stride of the first convolution. Use 2 for images that are larger than CIFAR's.
  GRADUS_ARG(int64_t, stem_stride) = 1;
  /// The paper's first layers, as in torchvision: a 7 x 7 convolution and 3 x 3 pooling, both of stride 2.
  GRADUS_ARG(bool, imagenet_stem) = false;
  /// If false, convolutions have biases instead of batch norm.
  GRADUS_ARG(bool, batch_norm) = true;
  /// Probability of dropout before the last layer.
  GRADUS_ARG(double, dropout) = 0;
};

/// Maps images (N, 3, H, W) to logits (N, classes).
struct ResNet18Impl : gradus::nn::Cloneable<ResNet18Impl> {
  explicit ResNet18Impl(const ResNet18Options& options = {});
  void reset() override;
  gradus::Tensor forward(const gradus::Tensor& images);
  /// Returns the input of the last layer, (N, 8 width).
  gradus::Tensor features(const gradus::Tensor& images);

  ResNet18Options options;
  gradus::nn::Conv2d conv1{nullptr};
  gradus::nn::BNReLU2d bn1{nullptr};
  gradus::nn::Sequential layer1, layer2, layer3, layer4;
  gradus::nn::Dropout dropout{nullptr};
  gradus::nn::Linear fc{nullptr};
};
GRADUS_MODULE(ResNet18);
