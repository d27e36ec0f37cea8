// One process, several devices: each device runs a replica of a module on its part of the batch (torch::nn::parallel).
//
//   Tensor y = nn::parallel::data_parallel(net, x);   // on all GPUs; y and the gradients are those of net(x)
//
// Batch norm normalises each part separately, as in PyTorch. Training with several processes (DistributedDataParallel)
// is faster, because their replicas stay on the devices and only gradients are copied.
#pragma once

#include <type_traits>

#include <gradus/layers/module/module.h>

namespace gradus::nn::parallel {

/// Splits x along `dim` into consecutive parts, one on each device, as chunk() does. If x is too short, there are fewer
/// parts than devices. Differentiable.
TensorList scatter(const Tensor& x, const std::vector<Device>& devices, int64_t dim = 0);
/// Joins the parts along `dim` on `device`. Scalars become a vector. Differentiable.
Tensor gather(const TensorList& parts, Device device, int64_t dim = 0);

namespace detail {
std::vector<std::shared_ptr<Module>> replicate(const Module& module, const std::vector<Device>& devices);
/// Runs forward(i) for each device i, each on its own thread.
TensorList run_replicas(const std::vector<Device>& devices, const std::function<Tensor(size_t)>& forward);
/// Returns `devices`, by default all GPUs, and moves the module to the first of these.
std::vector<Device> devices_for(Module& module, std::optional<std::vector<Device>> devices);
}  // namespace detail

/// Clones the module, a module holder or a shared pointer, onto each device. The parameters of the clones are
/// differentiable copies, so that backward adds their gradients to the gradients of the module. The first replica
/// shares those buffers of the module that are on its device. Running statistics are therefore updated from the first
/// part of the batch. Replicas have no hooks. Throws a ValueError if the module cannot be cloned.
template <class ModuleType>
auto replicate(const ModuleType& module, const std::vector<Device>& devices) {
  using M = std::remove_reference_t<decltype(*module)>;
  std::vector<std::shared_ptr<M>> replicas;
  for (const auto& replica : detail::replicate(*module, devices))
    replicas.push_back(std::dynamic_pointer_cast<M>(replica));
  return replicas;
}

/// Calls replicas[i] (module holders or shared pointers) with inputs[i] on devices[i], by default the device of the
/// input, and moves the results there. Each replica runs on its own thread with the caller's grad mode, autocast,
/// backends and streams. It has its own random generator, which is seeded from i and from the default generator; each
/// call advances the default generator. An exception names the replica and its device. If several replicas throw, the
/// exception of the first replica is rethrown.
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

/// Computes module(input) with the batch (dimension `dim`) divided among `devices`, by default all GPUs. The result is
/// on `output_device`, by default the first device. A device may be named several times: {kCPU, kCPU} is two threads.
/// The module itself moves to the first device. With one device or one sample this is a normal call of the module.
template <class ModuleType>
Tensor data_parallel(const ModuleType& module, const Tensor& input,
                     std::optional<std::vector<Device>> devices = std::nullopt,
                     std::optional<Device> output_device = std::nullopt, int64_t dim = 0) {
  std::vector<Device> used = detail::devices_for(*module, std::move(devices));
  const TensorList inputs = scatter(input, used, dim);
  const Device output = output_device.value_or(used[0]);
  if (inputs.size() == 1) return call(*module, inputs[0]).to(output);
  used.resize(inputs.size());
  return gather(parallel_apply(replicate(module, used), inputs, used), output, dim);
}

}  // namespace gradus::nn::parallel
