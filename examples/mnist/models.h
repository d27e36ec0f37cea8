// The three nets of this example. Parameters have the names that the same nets have in PyTorch.
#pragma once

#include <memory>
#include <string>

#include <gradus/autograd/autograd.h>
#include <gradus/layers/layers.h>

/// Images (N, 1, 28, 28) in, logits (N, 10) out.
struct Classifier : gradus::nn::Module {
  virtual gradus::Tensor forward(const gradus::Tensor& images) = 0;
};

/// Two linear layers: what can be had without looking at neighbourhoods.
struct PureLinear : Classifier {
  gradus::nn::Linear f1 = register_module("f1", gradus::nn::Linear(784, 100));
  gradus::nn::Linear f2 = register_module("f2", gradus::nn::Linear(100, 10));

  gradus::Tensor forward(const gradus::Tensor& images) override {
    gradus::Tensor x = images.flatten(1);  // (N, 784)
    x = relu(f1(x));                       // (N, 100)
    return f2(x);                          // (N, 10)
  }
};

/// One convolution and two linear layers.
struct SimpleConv : Classifier {
  gradus::nn::ConvReLU2d c1 = register_module("c1", gradus::nn::ConvReLU2d(1, 16, 5));
  gradus::nn::Linear f1 = register_module("f1", gradus::nn::Linear(16 * 12 * 12, 64));
  gradus::nn::Linear f2 = register_module("f2", gradus::nn::Linear(64, 10));

  gradus::Tensor forward(const gradus::Tensor& images) override {
    gradus::Tensor x = max_pool2d(c1(images), 2);  // (N, 16, 12, 12)
    x = relu(f1(x.flatten(1)));                    // (N, 64)
    return f2(x);                                  // (N, 10)
  }
};

/// LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998: LeNet-5, with ReLU
/// and maximum pooling as it is taught today.
struct LeNet : Classifier {
  gradus::nn::ConvReLU2d c1 =
      register_module("c1", gradus::nn::ConvReLU2d(gradus::nn::ConvReLU2dOptions(1, 6, 5).padding(2)));
  gradus::nn::ConvReLU2d c2 = register_module("c2", gradus::nn::ConvReLU2d(6, 16, 5));
  gradus::nn::Linear f1 = register_module("f1", gradus::nn::Linear(400, 120));
  gradus::nn::Linear f2 = register_module("f2", gradus::nn::Linear(120, 84));
  gradus::nn::Linear f3 = register_module("f3", gradus::nn::Linear(84, 10));

  gradus::Tensor forward(const gradus::Tensor& images) override {
    gradus::Tensor x = max_pool2d(c1(images), 2);  // (N, 6, 14, 14)
    x = max_pool2d(c2(x), 2);                      // (N, 16, 5, 5)
    x = relu(f1(x.flatten(1)));                    // (N, 120)
    x = relu(f2(x));                               // (N, 84)
    return f3(x);                                  // (N, 10)
  }
};

inline std::shared_ptr<Classifier> make_model(const std::string& name) {
  if (name == "pure_linear") return std::make_shared<PureLinear>();
  if (name == "simple_conv") return std::make_shared<SimpleConv>();
  if (name == "lenet") return std::make_shared<LeNet>();
  GRADUS_FAIL(ValueError, "no model '", name, "'; there are pure_linear, simple_conv and lenet");
}
