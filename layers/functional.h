// nn::functional: layers as functions, with options structs (torch::nn::functional).
//
//   namespace F = gradus::nn::functional;
//   x = F::max_pool2d(F::relu(conv1(x)), F::MaxPool2dFuncOptions(2));
#pragma once

#include <gradus/autograd/ops/dropout.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/loss.h>
#include <gradus/autograd/ops/matmul.h>
#include <gradus/autograd/ops/pool.h>
#include <gradus/layers/activation.h>
#include <gradus/layers/loss.h>
#include <gradus/layers/pool.h>

namespace gradus::nn::functional {

using ReLUFuncOptions = ReLUOptions;
using MaxPool2dFuncOptions = MaxPool2dOptions;
using SoftmaxFuncOptions = SoftmaxOptions;
using LogSoftmaxFuncOptions = SoftmaxOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using NLLLossFuncOptions = NLLLossOptions;

struct Conv2dFuncOptions {
  GRADUS_ARG(Tensor, bias) = {};
  GRADUS_ARG(Pair, stride) = 1;
  GRADUS_ARG(Pair, padding) = 0;
  GRADUS_ARG(Pair, dilation) = 1;
  GRADUS_ARG(int64_t, groups) = 1;
};

struct DropoutFuncOptions {
  GRADUS_ARG(double, p) = 0.5;
  GRADUS_ARG(bool, training) = true;
};

inline Tensor relu(const Tensor& x, const ReLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? x.relu_(where) : gradus::relu(x, where);
}
inline Tensor sigmoid(const Tensor& x, Loc where = Loc::current()) { return gradus::sigmoid(x, where); }
inline Tensor tanh(const Tensor& x, Loc where = Loc::current()) { return gradus::tanh(x, where); }
inline Tensor softmax(const Tensor& x, const SoftmaxFuncOptions& options, Loc where = Loc::current()) {
  return gradus::softmax(x, options.dim(), where);
}
inline Tensor log_softmax(const Tensor& x, const LogSoftmaxFuncOptions& options, Loc where = Loc::current()) {
  return gradus::log_softmax(x, options.dim(), where);
}
inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Loc where = Loc::current()) {
  return gradus::linear(x, weight, bias, where);
}
inline Tensor conv2d(const Tensor& x, const Tensor& weight, const Conv2dFuncOptions& options = {},
                     Loc where = Loc::current()) {
  return gradus::conv2d(x, weight, options.bias(), options.stride(), options.padding(), options.dilation(),
                        options.groups(), where);
}
inline Tensor max_pool2d(const Tensor& x, const MaxPool2dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::max_pool2d(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                            options.ceil_mode(), where);
}
inline Tensor dropout(const Tensor& x, const DropoutFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::dropout(x, options.p(), options.training(), where);
}
inline Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyFuncOptions& options = {},
                            Loc where = Loc::current()) {
  return gradus::cross_entropy(x, target, options.weight(), options.reduction(), options.ignore_index(), 0, where);
}
inline Tensor nll_loss(const Tensor& x, const Tensor& target, const NLLLossFuncOptions& options = {},
                       Loc where = Loc::current()) {
  return gradus::nll_loss(x, target, options.weight(), options.reduction(), options.ignore_index(), where);
}

}  // namespace gradus::nn::functional
