// A small net to train over ranks, its batches, and a measure of the difference between two trainings.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <vector>

#include <gradus/distributed/parallel/distributed_data_parallel.h>
#include <gradus/gradus.h>

namespace gradus::test {

/// A net with a convolution, a layer that is used twice and a frozen one. Its parameters need several small buckets.
struct NetImpl : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(1, 3, 3));
  nn::Linear twice = register_module("twice", nn::Linear(12, 12));
  nn::Linear frozen = register_module("frozen", nn::Linear(12, 12));
  nn::Linear out = register_module("out", nn::Linear(12, 4));
  NetImpl() {
    for (const Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  Tensor forward(const Tensor& images) {  // (N, 1, 4, 4)
    Tensor x = conv(images).flatten(1).tanh();
    x = twice(twice(x).tanh());
    return out(frozen(x).tanh());  // (N, 4)
  }
};
using Net = nn::ModuleHolder<NetImpl>;

inline std::mutex generator_mutex;  // the threads of the ranks share the default generator

inline Net make_net(uint64_t seed, DType dtype) {
  const std::lock_guard lock(generator_mutex);
  manual_seed(seed);
  Net net;
  net->to(dtype);
  return net;
}

struct Batch {
  Tensor images, labels;
};

/// Rows rank, rank + ranks, … of a batch.
inline Batch share(const Batch& batch, int rank, int ranks) {
  const auto part = [&](const Tensor& x) { return Tensor(x.array().slice(0, rank, x.size(0), ranks)).contiguous(); };
  return {part(batch.images), part(batch.labels)};
}

inline std::vector<Batch> make_batches(int count, int64_t samples, DType dtype) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i)
    batches.push_back({randn({samples, 1, 4, 4}, dtype), randint(0, 4, {samples}, kLong)});
  return batches;
}

inline Tensor loss_of(const Net& net, const Batch& batch) { return cross_entropy(net(batch.images), batch.labels); }

inline std::vector<Tensor> numbers_of(nn::Module& net) {
  std::vector<Tensor> copies;
  for (const Tensor& parameter : net.parameters()) copies.push_back(parameter.detach().clone());
  return copies;
}

/// The largest |a - b| of two lists of tensors, each relative to 1 + its largest |b|. Infinity if the lists are empty
/// or have different lengths or shapes, or if a number is not finite.
inline double difference_of(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double worst = a.empty() || a.size() != b.size() ? INFINITY : 0;
  for (size_t i = 0; i < a.size() && std::isfinite(worst); ++i) {
    if (!(a[i].sizes() == b[i].sizes())) return INFINITY;
    const double difference =
        (a[i] - b[i]).abs().max().to(kDouble).item<double>() / (1 + b[i].abs().max().to(kDouble).item<double>());
    worst = std::isfinite(difference) ? std::max(worst, difference) : INFINITY;  // std::max would ignore a NaN
  }
  return worst;
}

/// Options with which even this small net has several buckets.
inline dist::DistributedDataParallelOptions small_buckets() {
  return dist::DistributedDataParallelOptions().first_bucket_mb(1e-4).bucket_cap_mb(5e-4);
}

/// Trains over the ranks of `group` by steps of SGD with this rank's share of one batch. Calls `after_step` after each
/// step.
inline void train(dist::ProcessGroup& group, int steps, const std::function<void(int step, Net& net)>& after_step = {},
                  Device device = {}) {
  Net net = make_net(1, kFloat);
  net->to(device);
  Batch own = share({ones({8, 1, 4, 4}), arange(8).remainder(4)}, group.rank(), group.size());
  own = {own.images.to(device), own.labels.to(device)};
  dist::DistributedDataParallel ddp(net, {std::shared_ptr<void>(), &group}, small_buckets());
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.01));
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    loss_of(net, own).backward();
    sgd.step();
    if (after_step) after_step(step, net);
  }
}

}  // namespace gradus::test
