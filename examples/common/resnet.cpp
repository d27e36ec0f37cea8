#include <gradus/examples/common/resnet.h>

using namespace gradus;

namespace {

nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride, bool bias) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(bias));
}

nn::AnyModule normalisation(int64_t channels, bool wanted) {
  if (wanted) return nn::AnyModule(nn::BatchNorm2d(channels));
  return nn::AnyModule(nn::Identity());
}

/// Two convolutions and a way around them: relu(f(x) + x). Where f changes the shape, the way around is a 1 x 1
/// convolution with the same stride.
struct BasicBlockImpl : nn::Module {
  BasicBlockImpl(int64_t in, int64_t out, int64_t stride, bool batch_norm)
      : bn1(normalisation(out, batch_norm)), bn2(normalisation(out, batch_norm)) {
    conv1 = register_module("conv1", convolution(in, out, 3, stride, !batch_norm));
    register_module("bn1", bn1.ptr());
    conv2 = register_module("conv2", convolution(out, out, 3, 1, !batch_norm));
    register_module("bn2", bn2.ptr());
    if (stride == 1 && in == out) return;
    downsample->push_back(convolution(in, out, 1, stride, !batch_norm));
    downsample->push_back(normalisation(out, batch_norm));
    register_module("downsample", downsample);
  }

  Tensor forward(const Tensor& x) {
    const Tensor f = bn2.forward(conv2(relu(bn1.forward(conv1(x)))));
    return relu(f + (downsample->is_empty() ? x : downsample(x)));
  }

  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::AnyModule bn1, bn2;
  nn::Sequential downsample;
};
GRADUS_MODULE(BasicBlock);

nn::Sequential stage(int64_t in, int64_t out, int64_t stride, bool batch_norm) {
  return nn::Sequential(BasicBlock(in, out, stride, batch_norm), BasicBlock(out, out, 1, batch_norm));
}

}  // namespace

ResNet18Impl::ResNet18Impl(const ResNet18Options& options) : bn1(normalisation(options.width(), options.batch_norm())) {
  const int64_t width = options.width();
  const bool norm = options.batch_norm();
  conv1 = register_module("conv1", convolution(3, width, 3, 1, !norm));
  register_module("bn1", bn1.ptr());
  layer1 = register_module("layer1", stage(width, width, 1, norm));
  layer2 = register_module("layer2", stage(width, 2 * width, 2, norm));
  layer3 = register_module("layer3", stage(2 * width, 4 * width, 2, norm));
  layer4 = register_module("layer4", stage(4 * width, 8 * width, 2, norm));
  dropout = register_module("dropout", nn::Dropout(options.dropout()));
  fc = register_module("fc", nn::Linear(8 * width, options.classes()));
}

Tensor ResNet18Impl::forward(const Tensor& images) {
  Tensor x = relu(bn1.forward(conv1(images)));  // (N, width, H, W)
  x = layer2(layer1(x));                        // (N, 2 width, H / 2, W / 2)
  x = layer4(layer3(x));                        // (N, 8 width, H / 8, W / 8)
  x = x.mean({2, 3});                           // (N, 8 width)
  return fc(dropout(x));
}
