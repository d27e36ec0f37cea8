// Nets with residual and dense joins.
#include <gradus/benchmarks/zoo/nets/blocks.h>
#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace {

// ---- ResNet-18 and ResNeXt ----

/// Returns the way around a block: a 1x1 convolution if the block changes the shape, otherwise nothing.
nn::Sequential shortcut(int64_t in, int64_t out, int64_t stride) {
  return stride == 1 && in == out ? nn::Sequential() : conv_bn(in, out, 1, stride, 1, "");
}

/// relu(f(x) + x), where f ends with batch norm.
struct ResidualBlockImpl : nn::Module {
  ResidualBlockImpl(const nn::Sequential& f, const nn::Sequential& downsample) : f(f), downsample(downsample) {
    register_module("f", f);
    register_module("downsample", downsample);
  }
  Tensor forward(const Tensor& x) { return relu(f(x) + (downsample->is_empty() ? x : downsample(x))); }

  nn::Sequential f, downsample;
};
GRADUS_MODULE(ResidualBlock);

/// Two 3x3 convolutions.
ResidualBlock basic_block(int64_t in, int64_t out, int64_t stride) {
  return ResidualBlock(nn::Sequential(conv_bn(in, out, 3, stride, 1, "relu"), conv_bn(out, out, 3, 1, 1, "")),
                       shortcut(in, out, stride));
}

/// A 3x3 convolution of 8 groups between two of 1x1.
ResidualBlock grouped_block(int64_t in, int64_t width, int64_t out, int64_t stride) {
  return ResidualBlock(nn::Sequential(conv_bn(in, width, 1, 1, 1, "relu"), conv_bn(width, width, 3, stride, 8, "relu"),
                                      conv_bn(width, out, 1, 1, 1, "")),
                       shortcut(in, out, stride));
}

/// Convolutions, then a linear layer of the means of their channels.
struct ResidualNetImpl : nn::Module {
  ResidualNetImpl(const nn::Sequential& features, int64_t channels) : features(features), fc(channels, 10) {
    register_module("features", features);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& images) { return fc(features(images).mean({2, 3})); }

  nn::Sequential features;
  nn::Linear fc;
};
GRADUS_MODULE(ResidualNet);

/// ResNet-18 (He et al., "Deep residual learning for image recognition", 2016) for images of 32x32: the first
/// convolution is 3x3, and no pooling follows it.
ResidualNet resnet18() {
  nn::Sequential features;
  features->push_back(conv_bn(3, 64, 3, 1, 1, "relu"));
  int64_t in = 64;
  for (const int64_t out : {64, 128, 256, 512}) {
    features->push_back(basic_block(in, out, out == in ? 1 : 2));
    features->push_back(basic_block(out, out, 1));
    in = out;
  }
  return ResidualNet(features, 512);
}

/// ResNeXt-29 with 8 groups (Xie et al., "Aggregated residual transformations for deep neural networks", 2017). The
/// grouped convolutions are an eighth as wide as there.
ResidualNet resnext29() {
  nn::Sequential features;
  features->push_back(conv_bn(3, 64, 3, 1, 1, "relu"));
  int64_t in = 64;
  for (const int64_t width : {64, 128, 256})
    for (int i = 0; i < 3; ++i) {
      features->push_back(grouped_block(in, width, 4 * width, i == 0 && width > 64 ? 2 : 1));
      in = 4 * width;
    }
  return ResidualNet(features, 1024);
}

// ---- DenseNet ----

/// Appends `growth` channels to those of the input.
struct DenseLayerImpl : nn::Module {
  DenseLayerImpl(int64_t in, int64_t growth)
      : norm1(in), conv1(conv(in, 4 * growth, 1)), norm2(4 * growth), conv2(conv(4 * growth, growth, 3)) {
    register_module("norm1", norm1);
    register_module("conv1", conv1);
    register_module("norm2", norm2);
    register_module("conv2", conv2);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = conv1(relu(norm1(x)));
    return cat({x, conv2(relu(norm2(y)))}, 1);
  }

  nn::BatchNorm2d norm1;
  nn::Conv2d conv1;
  nn::BatchNorm2d norm2;
  nn::Conv2d conv2;
};
GRADUS_MODULE(DenseLayer);

/// DenseNet-BC of depth 40 with growth rate 12 (Huang et al., "Densely connected convolutional networks", 2017).
ResidualNet densenet_bc() {
  const int64_t growth = 12;
  int64_t channels = 2 * growth;
  nn::Sequential features(conv(3, channels, 3));
  for (int block = 0; block < 3; ++block) {
    if (block > 0) {
      features->push_back(nn::BatchNorm2d(channels));
      features->push_back(nn::ReLU());
      features->push_back(conv(channels, channels / 2, 1));
      features->push_back(nn::AvgPool2d(2));
      channels /= 2;
    }
    for (int i = 0; i < 6; ++i, channels += growth) features->push_back(DenseLayer(channels, growth));
  }
  features->push_back(nn::BatchNorm2d(channels));
  features->push_back(nn::ReLU());
  return ResidualNet(features, channels);
}

// ---- ConvNeXt ----

/// Layer norm over the channels of images.
struct ChannelNormImpl : nn::Module {
  explicit ChannelNormImpl(int64_t channels) : norm(nn::LayerNormOptions({channels}).eps(1e-6)) {
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& x) { return norm(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2}); }

  nn::LayerNorm norm;
};
GRADUS_MODULE(ChannelNorm);

/// A depthwise 7x7 convolution and two linear layers, which see channels last.
struct ConvNeXtBlockImpl : nn::Module {
  explicit ConvNeXtBlockImpl(int64_t channels)
      : dwconv(nn::Conv2dOptions(channels, channels, 7).padding(3).groups(channels)),
        norm(nn::LayerNormOptions({channels}).eps(1e-6)), pwconv1(channels, 4 * channels),
        pwconv2(4 * channels, channels) {
    register_module("dwconv", dwconv);
    register_module("norm", norm);
    register_module("pwconv1", pwconv1);
    register_module("pwconv2", pwconv2);
    gamma = register_parameter("gamma", full({channels}, 1e-2));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = norm(dwconv(x).permute({0, 2, 3, 1}));  // (N, H, W, C)
    y = gamma * pwconv2(gelu(pwconv1(y)));
    return x + y.permute({0, 3, 1, 2});
  }

  nn::Conv2d dwconv;
  nn::LayerNorm norm;
  nn::Linear pwconv1, pwconv2;
  Tensor gamma;
};
GRADUS_MODULE(ConvNeXtBlock);

/// ConvNeXt (Liu et al., "A ConvNet for the 2020s", 2022) with half the channels and two thirds of the blocks of
/// ConvNeXt-T, for images of 64x64: the first convolution has stride 2.
ResidualNet convnext() {
  nn::Sequential features;
  int64_t in = 3;
  for (const int64_t channels : {48, 96, 192, 384}) {
    if (in > 3) features->push_back(ChannelNorm(in));
    features->push_back(nn::Conv2d(nn::Conv2dOptions(in, channels, 2).stride(2)));
    if (in == 3) features->push_back(ChannelNorm(channels));
    for (int i = 0; i < (channels == 192 ? 6 : 2); ++i) features->push_back(ConvNeXtBlock(channels));
    in = channels;
  }
  return ResidualNet(features, 384);
}

}  // namespace

std::vector<Entry> residual_nets() {
  return {image_classifier("resnet18", 32, {3, 32, 32}, 10, resnet18),
          image_classifier("resnext29", 32, {3, 32, 32}, 10, resnext29),
          image_classifier("densenet_bc", 32, {3, 32, 32}, 10, densenet_bc),
          image_classifier("convnext", 32, {3, 64, 64}, 10, convnext)};
}

}  // namespace gradus::zoo
