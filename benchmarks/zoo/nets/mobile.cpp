// Nets for phones: depthwise separable convolutions, squeeze-and-excitation, channel shuffle.
#include <gradus/benchmarks/zoo/nets/blocks.h>
#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace {

/// Convolutions, then a classifier of the means of their channels.
struct MobileNetImpl : nn::Module {
  MobileNetImpl(const nn::Sequential& features, const nn::Sequential& classifier)
      : features(features), classifier(classifier) {
    register_module("features", features);
    register_module("classifier", classifier);
  }
  Tensor forward(const Tensor& images) { return classifier(features(images).mean({2, 3})); }

  nn::Sequential features, classifier;
};
GRADUS_MODULE(MobileNet);

/// Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision applications", 2017.
MobileNet mobilenet_v1() {
  nn::Sequential features;
  features->push_back(conv_bn(3, 32, 3, 2, 1, "relu"));
  int64_t in = 32;
  const std::pair<int64_t, int64_t> blocks[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                                                {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
  for (const auto& [out, stride] : blocks) {
    features->push_back(conv_bn(in, in, 3, stride, in, "relu"));
    features->push_back(conv_bn(in, out, 1, 1, 1, "relu"));
    in = out;
  }
  return MobileNet(features, nn::Sequential(nn::Linear(1024, 100)));
}

// ---- Inverted residuals: MobileNetV2, MobileNetV3 and EfficientNet ----

/// Weighs each channel by a function of the means of all channels (Hu et al., "Squeeze-and-excitation networks", 2018).
struct SqueezeExcitationImpl : nn::Module {
  SqueezeExcitationImpl(int64_t channels, int64_t squeezed, bool hard)
      : fc1(nn::Conv2dOptions(channels, squeezed, 1)), fc2(nn::Conv2dOptions(squeezed, channels, 1)), hard(hard) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) {
    const Tensor means = nn::functional::adaptive_avg_pool2d(x, nn::functional::AdaptiveAvgPool2dFuncOptions(1));
    const Tensor gates = hard ? hardsigmoid(fc2(relu(fc1(means)))) : sigmoid(fc2(silu(fc1(means))));  // (N, C, 1, 1)
    return x * gates;
  }

  nn::Conv2d fc1, fc2;
  bool hard;  // MobileNetV3's functions, else EfficientNet's
};
GRADUS_MODULE(SqueezeExcitation);

struct InvertedResidualOptions {
  int64_t in, expanded, out, kernel, stride;
  std::string activation;
  int64_t squeezed = 0;  // channels within squeeze-and-excitation, or 0 if there is none
};

/// Expands the channels by a 1x1 convolution, applies a depthwise one, and projects to few channels.
struct InvertedResidualImpl : nn::Module {
  explicit InvertedResidualImpl(const InvertedResidualOptions& o) : is_residual(o.stride == 1 && o.in == o.out) {
    if (o.expanded != o.in) block->push_back(conv_bn(o.in, o.expanded, 1, 1, 1, o.activation));
    block->push_back(conv_bn(o.expanded, o.expanded, o.kernel, o.stride, o.expanded, o.activation));
    if (o.squeezed > 0) block->push_back(SqueezeExcitation(o.expanded, o.squeezed, o.activation != "silu"));
    block->push_back(conv_bn(o.expanded, o.out, 1, 1, 1, ""));
    register_module("block", block);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = block(x);
    return is_residual ? x + y : y;
  }

  nn::Sequential block;
  bool is_residual;
};
GRADUS_MODULE(InvertedResidual);

/// Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018.
MobileNet mobilenet_v2() {
  struct Stage {
    int64_t factor, out, blocks, stride;
  };
  const Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                          {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  nn::Sequential features;
  features->push_back(conv_bn(3, 32, 3, 2, 1, "relu6"));
  int64_t in = 32;
  for (const Stage& stage : stages)
    for (int64_t i = 0; i < stage.blocks; ++i) {
      features->push_back(InvertedResidual(
          InvertedResidualOptions{in, in * stage.factor, stage.out, 3, i == 0 ? stage.stride : 1, "relu6"}));
      in = stage.out;
    }
  features->push_back(conv_bn(in, 1280, 1, 1, 1, "relu6"));
  return MobileNet(features, nn::Sequential(nn::Dropout(0.2), nn::Linear(1280, 100)));
}

/// The small net of Howard et al., "Searching for MobileNetV3", 2019.
MobileNet mobilenet_v3_small() {
  const InvertedResidualOptions blocks[] = {
      {16, 16, 16, 3, 2, "relu", 8},         {16, 72, 24, 3, 2, "relu"},           {24, 88, 24, 3, 1, "relu"},
      {24, 96, 40, 5, 2, "hardswish", 24},   {40, 240, 40, 5, 1, "hardswish", 64}, {40, 240, 40, 5, 1, "hardswish", 64},
      {40, 120, 48, 5, 1, "hardswish", 32},  {48, 144, 48, 5, 1, "hardswish", 40}, {48, 288, 96, 5, 2, "hardswish", 72},
      {96, 576, 96, 5, 1, "hardswish", 144}, {96, 576, 96, 5, 1, "hardswish", 144}};
  nn::Sequential features;
  features->push_back(conv_bn(3, 16, 3, 2, 1, "hardswish"));
  for (const InvertedResidualOptions& block : blocks) features->push_back(InvertedResidual(block));
  features->push_back(conv_bn(96, 576, 1, 1, 1, "hardswish"));
  return MobileNet(features,
                   nn::Sequential(nn::Linear(576, 1024), nn::Hardswish(), nn::Dropout(0.2), nn::Linear(1024, 100)));
}

/// EfficientNet-B0 (Tan, Le: "EfficientNet: rethinking model scaling for convolutional neural networks", 2019) without
/// stochastic depth.
MobileNet efficientnet_b0() {
  struct Stage {
    int64_t factor, kernel, out, blocks, stride;
  };
  const Stage stages[] = {{1, 3, 16, 1, 1},  {6, 3, 24, 2, 2},  {6, 5, 40, 2, 2}, {6, 3, 80, 3, 2},
                          {6, 5, 112, 3, 1}, {6, 5, 192, 4, 2}, {6, 3, 320, 1, 1}};
  nn::Sequential features;
  features->push_back(conv_bn(3, 32, 3, 2, 1, "silu"));
  int64_t in = 32;
  for (const Stage& stage : stages)
    for (int64_t i = 0; i < stage.blocks; ++i) {
      features->push_back(InvertedResidual(InvertedResidualOptions{in, in * stage.factor, stage.out, stage.kernel,
                                                                   i == 0 ? stage.stride : 1, "silu", in / 4}));
      in = stage.out;
    }
  features->push_back(conv_bn(in, 1280, 1, 1, 1, "silu"));
  return MobileNet(features, nn::Sequential(nn::Dropout(0.2), nn::Linear(1280, 100)));
}

// ---- ShuffleNetV2 ----

/// Interleaves the channels of two groups.
Tensor channel_shuffle(const Tensor& x) {
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
  return x.view({n, 2, c / 2, h, w}).transpose(1, 2).contiguous().view({n, c, h, w});
}

/// A unit of stride 1 transforms half of the channels. One of stride 2 transforms all of them in two branches.
struct ShuffleUnitImpl : nn::Module {
  ShuffleUnitImpl(int64_t in, int64_t out, int64_t stride) : stride(stride) {
    const int64_t half = out / 2;
    if (stride == 2) {
      branch1->push_back(conv_bn(in, in, 3, 2, in, ""));
      branch1->push_back(conv_bn(in, half, 1, 1, 1, "relu"));
    }
    branch2->push_back(conv_bn(stride == 2 ? in : half, half, 1, 1, 1, "relu"));
    branch2->push_back(conv_bn(half, half, 3, stride, half, ""));
    branch2->push_back(conv_bn(half, half, 1, 1, 1, "relu"));
    register_module("branch1", branch1);
    register_module("branch2", branch2);
  }
  Tensor forward(const Tensor& x) {
    if (stride == 2) return channel_shuffle(cat({branch1(x), branch2(x)}, 1));
    const TensorList halves = x.chunk(2, 1);
    return channel_shuffle(cat({halves[0], branch2(halves[1])}, 1));
  }

  int64_t stride;
  nn::Sequential branch1, branch2;
};
GRADUS_MODULE(ShuffleUnit);

/// Ma et al., "ShuffleNet V2: practical guidelines for efficient CNN architecture design", 2018.
MobileNet shufflenet_v2() {
  nn::Sequential features(conv_bn(3, 24, 3, 2, 1, "relu"), nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  int64_t in = 24;
  const std::pair<int64_t, int> stages[] = {{116, 4}, {232, 8}, {464, 4}};  // channels, units
  for (const auto& [out, units] : stages)
    for (int i = 0; i < units; ++i) {
      features->push_back(ShuffleUnit(in, out, i == 0 ? 2 : 1));
      in = out;
    }
  features->push_back(conv_bn(in, 1024, 1, 1, 1, "relu"));
  return MobileNet(features, nn::Sequential(nn::Linear(1024, 100)));
}

}  // namespace

std::vector<Entry> mobile_nets() {
  return {image_classifier("mobilenet_v1", 32, {3, 64, 64}, 100, mobilenet_v1),
          image_classifier("mobilenet_v2", 32, {3, 64, 64}, 100, mobilenet_v2),
          image_classifier("mobilenet_v3_small", 64, {3, 96, 96}, 100, mobilenet_v3_small),
          image_classifier("efficientnet_b0", 32, {3, 64, 64}, 100, efficientnet_b0),
          image_classifier("shufflenet_v2", 64, {3, 64, 64}, 100, shufflenet_v2)};
}

}  // namespace gradus::zoo
