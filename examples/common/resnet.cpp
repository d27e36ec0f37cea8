#include <gradus/examples/common/resnet.h>

using namespace gradus;

namespace {

nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride, bool bias) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(bias));
}

/// Returns relu(bn(x)), or relu(x) if `bn` is empty.
Tensor activated(const nn::BNReLU2d& bn, const Tensor& x) { return bn ? bn(x) : relu(x); }
Tensor activated(const nn::BNReLU2d& bn, const Tensor& x, const Tensor& residual) {
  return bn ? bn(x, residual) : relu(x + residual);
}

/// Two convolutions f and a shortcut around them: relu(f(x) + x). If f changes the shape, the shortcut is a 1 x 1
/// convolution with the same stride.
struct BasicBlockImpl : nn::Cloneable<BasicBlockImpl> {
  BasicBlockImpl(int64_t in, int64_t out, int64_t stride, bool batch_norm)
      : in(in), out(out), stride(stride), batch_norm(batch_norm) {
    BasicBlockImpl::reset();
  }

  void reset() override {
    conv1 = register_module("conv1", convolution(in, out, 3, stride, !batch_norm));
    if (batch_norm) bn1 = register_module("bn1", nn::BNReLU2d(out));
    conv2 = register_module("conv2", convolution(out, out, 3, 1, !batch_norm));
    if (batch_norm) bn2 = register_module("bn2", nn::BNReLU2d(out));
    downsample = nn::Sequential();
    if (stride == 1 && in == out) return;
    downsample->push_back(convolution(in, out, 1, stride, !batch_norm));
    if (batch_norm) downsample->push_back(nn::BatchNorm2d(out));
    register_module("downsample", downsample);
  }

  Tensor forward(const Tensor& x) {
    const Tensor h = activated(bn1, conv1(x));
    return activated(bn2, conv2(h), downsample->is_empty() ? x : downsample(x));
  }

  int64_t in, out, stride;
  bool batch_norm;
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BNReLU2d bn1{nullptr}, bn2{nullptr};
  nn::Sequential downsample{nullptr};
};
GRADUS_MODULE(BasicBlock);

nn::Sequential stage(int64_t in, int64_t out, int64_t stride, bool batch_norm) {
  return nn::Sequential(BasicBlock(in, out, stride, batch_norm), BasicBlock(out, out, 1, batch_norm));
}

}  // namespace

ResNet18Impl::ResNet18Impl(const ResNet18Options& options) : options(options) { ResNet18Impl::reset(); }

void ResNet18Impl::reset() {
  const int64_t width = options.width();
  const bool norm = options.batch_norm();
  const bool imagenet = options.imagenet_stem();
  conv1 =
      register_module("conv1", convolution(3, width, imagenet ? 7 : 3, imagenet ? 2 : options.stem_stride(), !norm));
  if (norm) bn1 = register_module("bn1", nn::BNReLU2d(width));
  layer1 = register_module("layer1", stage(width, width, 1, norm));
  layer2 = register_module("layer2", stage(width, 2 * width, 2, norm));
  layer3 = register_module("layer3", stage(2 * width, 4 * width, 2, norm));
  layer4 = register_module("layer4", stage(4 * width, 8 * width, 2, norm));
  dropout = register_module("dropout", nn::Dropout(options.dropout()));
  fc = register_module("fc", nn::Linear(8 * width, options.classes()));
}

Tensor ResNet18Impl::features(const Tensor& images) {
  Tensor x = activated(bn1, conv1(images));  // (N, width, H, W), where the stem's stride has divided H and W
  if (options.imagenet_stem()) x = max_pool2d(x, 3, 2, 1);
  x = layer2(layer1(x));  // (N, 2 width, H / 2, W / 2)
  x = layer4(layer3(x));  // (N, 8 width, H / 8, W / 8)
  return x.mean({2, 3});  // (N, 8 width)
}

Tensor ResNet18Impl::forward(const Tensor& images) { return fc(dropout(features(images))); }
