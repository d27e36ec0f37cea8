// Nets of convolutions in a row, or side by side and concatenated.
#include <gradus/benchmarks/zoo/nets/blocks.h>
#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace {

/// Appends a convolution with bias, whose padding keeps the size of images, and ReLU.
void push_conv_relu(nn::Sequential& net, int64_t in, int64_t out, int64_t kernel) {
  net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, kernel).padding(kernel / 2)));
  net->push_back(nn::ReLU());
}

nn::MaxPool2d max_pool_3x3() { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).ceil_mode(true)); }

// ---- VGG ----

/// VGG-11 with batch norm (Simonyan, Zisserman: "Very deep convolutional networks for large-scale image recognition",
/// 2015), with linear layers for images of 32x32.
nn::Sequential vgg11_bn() {
  nn::Sequential features;
  int64_t in = 3;
  for (const int64_t out : {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0}) {
    if (out == 0) {
      features->push_back(nn::MaxPool2d(2));
      continue;
    }
    features->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    features->push_back(nn::BatchNorm2d(out));
    features->push_back(nn::ReLU());
    in = out;
  }
  const nn::Sequential classifier(nn::Linear(512, 512), nn::ReLU(), nn::Dropout(0.5), nn::Linear(512, 512), nn::ReLU(),
                                  nn::Dropout(0.5), nn::Linear(512, 10));
  return nn::Sequential({{"features", features}, {"flatten", nn::Flatten()}, {"classifier", classifier}});
}

// ---- Network in network ----

/// Lin et al., "Network in network", 2014, for images of 32x32.
nn::Sequential network_in_network() {
  nn::Sequential net;
  push_conv_relu(net, 3, 192, 5);
  push_conv_relu(net, 192, 160, 1);
  push_conv_relu(net, 160, 96, 1);
  net->push_back(max_pool_3x3());
  net->push_back(nn::Dropout(0.5));
  push_conv_relu(net, 96, 192, 5);
  push_conv_relu(net, 192, 192, 1);
  push_conv_relu(net, 192, 192, 1);
  net->push_back(nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).ceil_mode(true)));
  net->push_back(nn::Dropout(0.5));
  push_conv_relu(net, 192, 192, 3);
  push_conv_relu(net, 192, 192, 1);
  push_conv_relu(net, 192, 10, 1);
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  return net;
}

// ---- SqueezeNet ----

/// Squeezes to few channels, and expands them by convolutions of 1x1 and of 3x3 side by side.
struct FireImpl : nn::Module {
  FireImpl(int64_t in, int64_t squeezed, int64_t expanded)
      : squeeze(nn::Conv2dOptions(in, squeezed, 1)), expand1x1(nn::Conv2dOptions(squeezed, expanded, 1)),
        expand3x3(nn::Conv2dOptions(squeezed, expanded, 3).padding(1)) {
    register_module("squeeze", squeeze);
    register_module("expand1x1", expand1x1);
    register_module("expand3x3", expand3x3);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = relu(squeeze(x));
    return cat({relu(expand1x1(y)), relu(expand3x3(y))}, 1);
  }

  nn::Conv2d squeeze, expand1x1, expand3x3;
};
GRADUS_MODULE(Fire);

/// SqueezeNet 1.1 (Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016).
nn::Sequential squeezenet() {
  const nn::Sequential features(nn::Conv2d(nn::Conv2dOptions(3, 64, 3).stride(2)), nn::ReLU(), max_pool_3x3(),
                                Fire(64, 16, 64), Fire(128, 16, 64), max_pool_3x3(), Fire(128, 32, 128),
                                Fire(256, 32, 128), max_pool_3x3(), Fire(256, 48, 192), Fire(384, 48, 192),
                                Fire(384, 64, 256), Fire(512, 64, 256));
  const nn::Sequential classifier(nn::Dropout(0.5), nn::Conv2d(512, 100, 1), nn::ReLU(), nn::AdaptiveAvgPool2d(1));
  return nn::Sequential({{"features", features}, {"classifier", classifier}, {"flatten", nn::Flatten()}});
}

// ---- Inception ----

struct InceptionOptions {
  int64_t in, of_1x1, before_3x3, of_3x3, before_5x5, of_5x5, after_pool;
  int64_t out() const { return of_1x1 + of_3x3 + of_5x5 + after_pool; }
};

/// Convolutions of three sizes and a pooling side by side.
struct InceptionImpl : nn::Module {
  explicit InceptionImpl(const InceptionOptions& o)
      : branch1(conv_bn(o.in, o.of_1x1, 1, 1, 1, "relu")),
        branch2(conv_bn(o.in, o.before_3x3, 1, 1, 1, "relu"), conv_bn(o.before_3x3, o.of_3x3, 3, 1, 1, "relu")),
        branch3(conv_bn(o.in, o.before_5x5, 1, 1, 1, "relu"), conv_bn(o.before_5x5, o.of_5x5, 5, 1, 1, "relu")),
        branch4(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(1).padding(1)),
                conv_bn(o.in, o.after_pool, 1, 1, 1, "relu")) {
    register_module("branch1", branch1);
    register_module("branch2", branch2);
    register_module("branch3", branch3);
    register_module("branch4", branch4);
  }
  Tensor forward(const Tensor& x) { return cat({branch1(x), branch2(x), branch3(x), branch4(x)}, 1); }

  nn::Sequential branch1, branch2, branch3, branch4;
};
GRADUS_MODULE(Inception);

/// GoogLeNet (Szegedy et al., "Going deeper with convolutions", 2015) with batch norm, narrower and with five of its
/// nine modules, for images of 32x32.
nn::Sequential inception() {
  nn::Sequential net;
  net->push_back(conv_bn(3, 64, 3, 1, 1, "relu"));
  int64_t modules = 0;
  for (const InceptionOptions& options : {InceptionOptions{64, 32, 48, 64, 8, 16, 16},
                                          {128, 64, 64, 96, 16, 48, 32},
                                          {240, 96, 48, 104, 8, 24, 32},
                                          {256, 80, 56, 112, 12, 32, 32},
                                          {256, 128, 80, 160, 16, 64, 64}}) {
    net->push_back(Inception(options));
    if (++modules % 2 == 0) net->push_back(max_pool_3x3());
  }
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(416, 10));
  return net;
}

// ---- Dilated convolutions ----

/// The context module of Yu, Koltun, "Multi-scale context aggregation by dilated convolutions", 2016: logits of 21
/// classes for each pixel.
nn::Sequential dilated_context() {
  const int64_t width = 24;
  nn::Sequential net;
  push_conv_relu(net, 3, width, 3);
  for (const int64_t dilation : {1, 1, 2, 4, 8, 16, 1}) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(width, width, 3).padding(dilation).dilation(dilation)));
    net->push_back(nn::ReLU());
  }
  net->push_back(nn::Conv2d(width, 21, 1));
  return net;
}

// ---- Sound ----

/// M5 (Dai et al., "Very deep convolutional neural networks for raw waveforms", 2017): classifies a second of sound of
/// 8 kHz, (N, 1, 8000).
nn::Sequential m5_audio() {
  nn::Sequential net;
  const std::pair<int64_t, int64_t> layers[] = {{1, 128}, {128, 128}, {128, 256}, {256, 512}};  // channels in, out
  for (const auto& [in, out] : layers) {
    net->push_back(nn::Conv1d(in == 1 ? nn::Conv1dOptions(1, out, 80).stride(4) : nn::Conv1dOptions(in, out, 3)));
    net->push_back(nn::BatchNorm1d(out));
    net->push_back(nn::ReLU());
    net->push_back(nn::MaxPool1d(4));
  }
  net->push_back(nn::AdaptiveAvgPool1d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(512, 35));
  return net;
}

}  // namespace

std::vector<Entry> plain_nets() {
  const auto make_segmentation = [] { return classifier(nn::AnyModule(dilated_context())); };
  const auto pixels = [](int64_t batch) {
    return std::vector<Input>{{"normal", {batch, 3, 64, 64}}, {"integers", {batch, 64, 64}, 21}};
  };
  return {image_classifier("vgg11_bn", 32, {3, 32, 32}, 10, vgg11_bn),
          image_classifier("network_in_network", 32, {3, 32, 32}, 10, network_in_network),
          image_classifier("squeezenet", 64, {3, 64, 64}, 100, squeezenet),
          image_classifier("inception", 32, {3, 32, 32}, 10, inception),
          {"dilated_context", 32, make_segmentation, pixels},
          image_classifier("m5_audio", 64, {1, 8000}, 35, m5_audio)};
}

}  // namespace gradus::zoo
