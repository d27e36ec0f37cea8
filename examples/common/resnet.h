// ResNet-18 (He, Zhang, Ren, Sun: "Deep residual learning for image recognition", 2016) for small images.
//
// As usual for CIFAR, the first convolution is 3 x 3 and no pooling follows it; the paper's own is an option.
// Parameters have torchvision's names (conv1, bn1, layer1.0.conv1, …, fc), so that weights travel to and from a
// model made in PyTorch.
#pragma once

#include <gradus/layers/layers.h>

struct ResNet18Options {
  GRADUS_ARG(int64_t, classes) = 10;
  /// Channels of the first stage; the others have 2, 4 and 8 times as many. The paper's are 64.
  GRADUS_ARG(int64_t, width) = 64;
  /// Stride of the first convolution: 2 for images larger than CIFAR's.
  GRADUS_ARG(int64_t, stem_stride) = 1;
  /// The paper's first layers, as in torchvision: a 7 x 7 convolution and 3 x 3 pooling, both of stride 2.
  GRADUS_ARG(bool, imagenet_stem) = false;
  /// Without it the convolutions have biases instead.
  GRADUS_ARG(bool, batch_norm) = true;
  /// Probability of dropout before the last layer.
  GRADUS_ARG(double, dropout) = 0;
};

/// Images (N, 3, H, W) in, logits (N, classes) out.
struct ResNet18Impl : gradus::nn::Cloneable<ResNet18Impl> {
  explicit ResNet18Impl(const ResNet18Options& options = {});
  void reset() override;
  gradus::Tensor forward(const gradus::Tensor& images);
  /// What the last layer gets: (N, 8 width).
  gradus::Tensor features(const gradus::Tensor& images);

  ResNet18Options options;
  gradus::nn::Conv2d conv1{nullptr};
  gradus::nn::BNReLU2d bn1{nullptr};
  gradus::nn::Sequential layer1, layer2, layer3, layer4;
  gradus::nn::Dropout dropout{nullptr};
  gradus::nn::Linear fc{nullptr};
};
GRADUS_MODULE(ResNet18);
