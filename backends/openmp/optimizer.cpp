// Optimizer steps over all parameters at once, g the gradient times gradient_scale (negated to maximize):
//   SGD   g += weight_decay p;  buffer = momentum buffer + (1 - dampening) g (first step: g);
//         p -= lr (nesterov ? g + momentum buffer : buffer)                                    (torch.optim.SGD)
//   Adam  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g²;
//         p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)                      (torch.optim.Adam, AdamW)
// Dense float and double parameters are cut into chunks that the threads share; others are NaiveBackend's.
#include <cmath>
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp;

// Elements [begin, begin + count) of a parameter's memory.
struct Chunk {
  const ParameterViews* views;
  int64_t begin, count;
};

// True if all views of a parameter walk through memory in the same order, without gaps.
bool is_flat(const ParameterViews& views) {
  const DType dtype = views.parameter.dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return false;
  const Strides &p = views.parameter.strides, &g = views.gradient.strides;
  const Strides &m = views.state1.data ? views.state1.strides : p, &v = views.state2.data ? views.state2.strides : p;
  return StridedLoop<4>(views.parameter.shape, {&p, &g, &m, &v}).all_contiguous();
}

std::vector<Chunk> chunks_of(std::span<const ParameterViews> parameters) {
  std::vector<Chunk> chunks;
  for (const ParameterViews& views : parameters) {
    if (!is_flat(views)) continue;
    const int64_t total = views.parameter.numel();
    for (int64_t begin = 0; begin < total; begin += kGrain)
      chunks.push_back({&views, begin, std::min(kGrain, total - begin)});
  }
  return chunks;
}

template <class F>
void for_each_chunk(std::span<const ParameterViews> parameters, F&& f) {
  const std::vector<Chunk> chunks = chunks_of(parameters);
  parallel_for(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk& chunk = chunks[static_cast<size_t>(i)];
      if (chunk.views->parameter.dtype == DType::f32) f.template operator()<float>(chunk);
      else f.template operator()<double>(chunk);
    }
  });
}

double entry(const View& block, int i) { return block.as<double>()[i * block.strides[0]]; }

}  // namespace

void OpenmpBackend::sgd_step(std::span<const ParameterViews> parameters, const View& block, const SgdOptions& options) {
  for (const ParameterViews& views : parameters)
    if (!is_flat(views)) NaiveBackend::sgd_step({&views, 1}, block, options);
  EventScope event("sgd_step", "openmp", "loops", {&block});
  if (entry(block, StepBlock::found_inf) != 0) return;
  const bool first = entry(block, StepBlock::step) <= 1;  // the step being made is counted already
  for_each_chunk(parameters, [&]<class T>(const Chunk& chunk) {
    const T lr = static_cast<T>(entry(block, StepBlock::learning_rate));
    const T scale = static_cast<T>(entry(block, StepBlock::gradient_scale) * (options.maximize ? -1 : 1));
    const T decay = static_cast<T>(options.weight_decay);
    // On the first step the buffer is not read: it may hold anything.
    const T keep = static_cast<T>(options.momentum), take = first ? T(1) : static_cast<T>(1 - options.dampening);
    T* __restrict p = chunk.views->parameter.as<T>() + chunk.begin;
    const T* __restrict gradient = chunk.views->gradient.as<T>() + chunk.begin;
    if (options.momentum == 0) {
      for (int64_t i = 0; i < chunk.count; ++i) p[i] -= lr * (gradient[i] * scale + decay * p[i]);
      return;
    }
    T* __restrict buffer = chunk.views->state1.as<T>() + chunk.begin;
    if (first) std::fill_n(buffer, chunk.count, T(0));
    for (int64_t i = 0; i < chunk.count; ++i) {
      const T g = gradient[i] * scale + decay * p[i], b = keep * buffer[i] + take * g;
      buffer[i] = b;
      p[i] -= lr * (options.nesterov ? g + keep * b : b);
    }
  });
}

void OpenmpBackend::adam_step(std::span<const ParameterViews> parameters, const View& block,
                              const AdamOptions& options) {
  for (const ParameterViews& views : parameters)
    if (!is_flat(views)) NaiveBackend::adam_step({&views, 1}, block, options);
  EventScope event("adam_step", "openmp", kernel_table().vectors, {&block});
  if (entry(block, StepBlock::found_inf) != 0) return;
  const double lr = entry(block, StepBlock::learning_rate);
  const double bias1 = 1 - std::pow(options.beta1, entry(block, StepBlock::step));
  const double bias2 = 1 - std::pow(options.beta2, entry(block, StepBlock::step));
  for_each_chunk(parameters, [&]<class T>(const Chunk& chunk) {
    kernels_of<T>(kernel_table())
        .adam({.count = chunk.count,
               .parameter = chunk.views->parameter.as<T>() + chunk.begin,
               .moment1 = chunk.views->state1.as<T>() + chunk.begin,
               .moment2 = chunk.views->state2.as<T>() + chunk.begin,
               .gradient = chunk.views->gradient.as<T>() + chunk.begin,
               .gradient_scale = static_cast<T>(entry(block, StepBlock::gradient_scale) * (options.maximize ? -1 : 1)),
               .weight_decay = static_cast<T>(options.decoupled ? 0 : options.weight_decay),
               .shrink = static_cast<T>(options.decoupled ? 1 - lr * options.weight_decay : 1),
               .one_minus_beta1 = static_cast<T>(1 - options.beta1),
               .beta2 = static_cast<T>(options.beta2),
               .one_minus_beta2 = static_cast<T>(1 - options.beta2),
               .step_size = static_cast<T>(lr / bias1),
               .inverse_root_bias2 = static_cast<T>(1 / std::sqrt(bias2)),
               .eps = static_cast<T>(options.eps)});
  });
}

}  // namespace gradus
