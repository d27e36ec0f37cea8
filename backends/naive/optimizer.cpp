// Optimizer steps, in double, with g the gradient times gradient_scale (negated to maximize):
//   SGD   g += weight_decay p;  buffer = momentum buffer + (1 - dampening) g (first step: g);
//         p -= lr (nesterov ? g + momentum buffer : buffer)                                    (torch.optim.SGD)
//   Adam  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g²;
//         p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)                      (torch.optim.Adam, AdamW)
#include <cmath>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/observer.h>
#include <gradus/core/scalar_ops.h>

namespace gradus {

using naive::for_each;
using scalar::convert;

void NaiveBackend::sgd_step(std::span<const ParameterViews> parameters, const View& block, const SgdOptions& options) {
  EventScope event("sgd_step", "naive", "loops", {&block});
  auto entry = [&](int i) { return block.as<double>()[i * block.strides[0]]; };
  if (entry(StepBlock::found_inf) != 0) return;
  const double lr = entry(StepBlock::learning_rate), scale = entry(StepBlock::gradient_scale);
  const bool first = entry(StepBlock::step) <= 1;  // the step being made is counted already
  for (const ParameterViews& views : parameters) {
    const Strides& state_strides = views.state1.data ? views.state1.strides : views.parameter.strides;
    visit_floating(views.parameter.dtype, [&]<class T> {
      for_each(views.parameter.shape, {&views.parameter.strides, &views.gradient.strides, &state_strides},
               [&](const int64_t* at) {
                 T& p = views.parameter.as<T>()[at[0]];
                 double g = static_cast<double>(views.gradient.as<T>()[at[1]]) * scale;
                 if (options.maximize) g = -g;
                 g += options.weight_decay * static_cast<double>(p);
                 if (options.momentum != 0) {
                   T& buffer = views.state1.as<T>()[at[2]];
                   const double b =
                       first ? g : options.momentum * static_cast<double>(buffer) + (1 - options.dampening) * g;
                   buffer = convert<T>(b);
                   g = options.nesterov ? g + options.momentum * b : b;
                 }
                 p = convert<T>(static_cast<double>(p) - lr * g);
               });
    });
  }
}

void NaiveBackend::adam_step(std::span<const ParameterViews> parameters, const View& block,
                             const AdamOptions& options) {
  EventScope event("adam_step", "naive", "loops", {&block});
  auto entry = [&](int i) { return block.as<double>()[i * block.strides[0]]; };
  if (entry(StepBlock::found_inf) != 0) return;
  const double lr = entry(StepBlock::learning_rate), scale = entry(StepBlock::gradient_scale);
  const double bias1 = 1 - std::pow(options.beta1, entry(StepBlock::step));
  const double bias2 = 1 - std::pow(options.beta2, entry(StepBlock::step));
  for (const ParameterViews& views : parameters) {
    visit_floating(views.parameter.dtype, [&]<class T> {
      for_each(views.parameter.shape,
               {&views.parameter.strides, &views.gradient.strides, &views.state1.strides, &views.state2.strides},
               [&](const int64_t* at) {
                 T &p = views.parameter.as<T>()[at[0]], &m = views.state1.as<T>()[at[2]];
                 T& v = views.state2.as<T>()[at[3]];
                 double g = static_cast<double>(views.gradient.as<T>()[at[1]]) * scale, w = static_cast<double>(p);
                 if (options.maximize) g = -g;
                 if (options.decoupled) w *= 1 - lr * options.weight_decay;
                 else g += options.weight_decay * w;
                 const double moment1 = static_cast<double>(m) + (1 - options.beta1) * (g - static_cast<double>(m));
                 const double moment2 = options.beta2 * static_cast<double>(v) + (1 - options.beta2) * g * g;
                 m = convert<T>(moment1), v = convert<T>(moment2);
                 const double denominator = std::sqrt(moment2) / std::sqrt(bias2) + options.eps;
                 p = convert<T>(w - lr / bias1 * moment1 / denominator);
               });
    });
  }
}

}  // namespace gradus
