// Blocks that nets of several families use.
#pragma once

#include <gradus/gradus.h>

namespace gradus::zoo {

/// Returns a convolution without bias whose padding keeps the size of images, apart from the stride.
inline nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false));
}

/// Returns a 3x3 convolution with bias, which keeps the size of images, apart from the stride.
inline nn::Conv2d conv_3x3(int64_t in, int64_t out, int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1));
}

/// Returns a layer by the name of its function.
inline nn::AnyModule activation(const std::string& name) {
  if (name == "relu") return nn::AnyModule(nn::ReLU());
  if (name == "relu6") return nn::AnyModule(nn::ReLU6());
  if (name == "silu") return nn::AnyModule(nn::SiLU());
  if (name == "hardswish") return nn::AnyModule(nn::Hardswish());
  throw ValueError("no activation '" + name + "'");
}

/// Returns the convolution conv(…), batch norm, and an activation if it has a name.
inline nn::Sequential conv_bn(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups,
                              const std::string& activation_name) {
  nn::Sequential block(conv(in, out, kernel, stride, groups), nn::BatchNorm2d(out));
  if (!activation_name.empty()) block->push_back(activation(activation_name));
  return block;
}

/// Returns an embedding whose numbers are drawn with a small deviation, because logits are products with it.
inline nn::Embedding small_embedding(int64_t rows, int64_t width, double deviation) {
  const nn::Embedding table(rows, width);
  nn::init::normal_(table->weight, 0, deviation);
  return table;
}

/// x + f(x).
struct ResidualImpl : nn::Module {
  explicit ResidualImpl(const nn::Sequential& f) : f(f) { register_module("f", f); }
  Tensor forward(const Tensor& x) { return x + f(x); }

  nn::Sequential f;
};
GRADUS_MODULE(Residual);

}  // namespace gradus::zoo
