// One process, several devices: each runs a replica of a module on its part of the batch (torch::nn::parallel).
//
//   Tensor y = nn::parallel::data_parallel(net, x);   // on all GPUs; y and the gradients are those of net(x)
//
// Batch norm sees each part by itself, as in PyTorch. Several processes (DistributedDataParallel) are faster: their
// replicas stay where they are, and nothing is copied but gradients.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <gradus/layers/module.h>

namespace gradus::nn::parallel {

/// Consecutive parts of x along `dim`, one on each device, as even as chunk() makes them: there are fewer where x is
/// short. Differentiable.
TensorList scatter(const Tensor& x, const std::vector<Device>& devices, int64_t dim = 0);
/// The parts joined along `dim` on `device`; scalars become a vector. Differentiable.
Tensor gather(const TensorList& parts, Device device, int64_t dim = 0);

namespace detail {
std::vector<std::shared_ptr<Module>> replicate(const Module& module, const std::vector<Device>& devices);
/// forward(i) for each device in a thread of its own.
TensorList run_replicas(const std::vector<Device>& devices, const std::function<Tensor(size_t)>& forward);
/// `devices`, or all GPUs where there are none given.
std::vector<Device> devices_or_gpus(std::optional<std::vector<Device>> devices);
void move_to(Module& module, Device device);
}  // namespace detail

/// A clone of the module on each device. Its parameters are differentiable copies, so that backward adds their
/// gradients up in the module's own. The first replica shares the module's buffers that are on its device: running
/// statistics are those of its part. Replicas have no hooks; a module that cannot be cloned is a ValueError.
template <class M>
std::vector<std::shared_ptr<M>> replicate(const std::shared_ptr<M>& module, const std::vector<Device>& devices) {
  std::vector<std::shared_ptr<M>> replicas;
  for (const auto& replica : detail::replicate(*module, devices))
    replicas.push_back(std::dynamic_pointer_cast<M>(replica));
  return replicas;
}
template <class M>
std::vector<std::shared_ptr<M>> replicate(const ModuleHolder<M>& module, const std::vector<Device>& devices) {
  return replicate(module.ptr(), devices);
}

/// Calls replicas[i] (holders or shared_ptr of modules) with inputs[i] on devices[i], or where the input is, and brings
/// the results there. Each runs in a thread of its own, with the caller's grad mode, autocast, backends and streams,
/// and draws its random numbers from a generator of its own: they depend on the default generator, from which each call
/// draws once, and on i. An exception names the replica and its device; of several, the first replica's is thrown.
template <class ModuleType>
TensorList parallel_apply(const std::vector<ModuleType>& replicas, const TensorList& inputs,
                          std::optional<std::vector<Device>> devices = std::nullopt) {
  if (!devices) {
    devices.emplace();
    for (const Tensor& input : inputs) devices->push_back(input.device());
  }
  GRADUS_CHECK(replicas.size() == inputs.size() && inputs.size() == devices->size(), ValueError,
               "parallel_apply: ", replicas.size(), " modules, ", inputs.size(), " inputs and ", devices->size(),
               " devices");
  return detail::run_replicas(
      *devices, [&](size_t i) { return call(*replicas[i], inputs[i].to((*devices)[i])).to((*devices)[i]); });
}

/// module(input), the batch (dimension `dim`) being shared out among the devices; the result is on `output_device`, by
/// default the first one. `devices`: all GPUs. A device may be named several times: {kCPU, kCPU} is two threads. The
/// module itself moves to the first device. On one device, or of one sample, this is the plain forward.
template <class M>
Tensor data_parallel(const std::shared_ptr<M>& module, const Tensor& input,
                     std::optional<std::vector<Device>> devices = std::nullopt,
                     std::optional<Device> output_device = std::nullopt, int64_t dim = 0) {
  std::vector<Device> used = detail::devices_or_gpus(std::move(devices));
  detail::move_to(*module, used[0]);
  const TensorList inputs = scatter(input, used, dim);
  const Device output = output_device.value_or(used[0]);
  if (inputs.size() == 1) return call(*module, inputs[0]).to(output);
  used.resize(inputs.size());
  return gather(parallel_apply(replicate(module, used), inputs, used), output, dim);
}
template <class M>
Tensor data_parallel(const ModuleHolder<M>& module, const Tensor& input,
                     std::optional<std::vector<Device>> devices = std::nullopt,
                     std::optional<Device> output_device = std::nullopt, int64_t dim = 0) {
  return data_parallel(module.ptr(), input, std::move(devices), output_device, dim);
}

}  // namespace gradus::nn::parallel
