#include <gradus/distributed/parallel/data_parallel.h>

#include <algorithm>
#include <exception>
#include <thread>

#include <gradus/autograd/engine.h>
#include <gradus/autograd/mixed_precision/autocast.h>
#include <gradus/autograd/node.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/random.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus::nn::parallel {

TensorList scatter(const Tensor& x, const std::vector<Device>& devices, int64_t dim) {
  GRADUS_CHECK(!devices.empty(), ValueError, "scatter needs at least one device");
  TensorList parts = x.chunk(static_cast<int64_t>(devices.size()), dim);
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i].to(devices[i]);
  return parts;
}

Tensor gather(const TensorList& parts, Device device, int64_t dim) {
  TensorList there;
  for (const Tensor& part : parts) there.push_back((part.dim() == 0 ? part.reshape({1}) : part).to(device));
  return cat(there, dim);
}

namespace detail {

std::vector<std::shared_ptr<Module>> replicate(const Module& module, const std::vector<Device>& devices) {
  const TensorList parameters = module.parameters();
  std::vector<std::shared_ptr<Module>> replicas;
  for (const Device device : devices) {
    const bool is_first = replicas.empty();
    Module& replica = *replicas.emplace_back(module.clone(device));
    const TensorList copies = replica.parameters();
    for (size_t i = 0; i < copies.size(); ++i) {
      copies[i].set_requires_grad(false);
      copies[i].copy_(parameters[i]);  // recorded by autograd, so the copy is not a leaf any more
    }
    if (!is_first) continue;
    auto own = replica.named_buffers();
    for (const auto& buffer : module.named_buffers())
      if (buffer->device() == settled(device)) own[buffer.key()].set_data(*buffer);
  }
  return replicas;
}

TensorList run_replicas(const std::vector<Device>& devices, const std::function<Tensor(size_t)>& forward) {
  GRADUS_CHECK(!SavedKeeper::current(), AutogradError,
               "parallel_apply cannot run again inside of a checkpointed function: call checkpoint() in the modules");
  // These settings are thread-local, so the threads of the replicas must copy them from the caller.
  const bool inference_enabled = InferenceMode::is_enabled(), grad_enabled = GradMode::is_enabled(),
             anomaly_enabled = AnomalyGuard::is_enabled();
  const amp::AutocastSettings autocast_settings = amp::Autocast::settings();
  const std::string_view cpu_name = current_backend(kCPU).name();
  const RandomState random = default_generator().next();
  TensorList outputs(devices.size());
  std::vector<std::exception_ptr> errors(devices.size());
  {
    std::vector<std::jthread> threads;  // joined at the end of the scope
    for (size_t i = 0; i < devices.size(); ++i) {
      const Device device = settled(devices[i]);
      const std::string_view name = current_backend(device.type()).name();
      const Stream caller_stream = runtime(device.type()).current_stream(device.index());
      threads.emplace_back([&, i, device, name, caller_stream] {
        try {
          const InferenceMode inference(inference_enabled);
          const AutoGradMode grad_mode(grad_enabled);
          const AnomalyGuard anomaly(anomaly_enabled);
          const amp::Autocast autocast(autocast_settings);
          const BackendGuard cpu_backend(cpu_name), backend(name);
          const DeviceGuard current(device);
          const StreamGuard stream(caller_stream);
          Generator generator(random_bits64(random.seed, random.offset, i));
          const GeneratorGuard generator_guard(generator);
          outputs[i] = forward(i);
        } catch (...) { errors[i] = std::current_exception(); }
      });
    }
  }
  for (size_t i = 0; i < errors.size(); ++i) {
    if (!errors[i]) continue;
    try {
      std::rethrow_exception(errors[i]);
    } catch (const std::exception&) {
      rethrow_with_prefix("replica " + std::to_string(i) + " on " + devices[i].str() + ": ");
    }
  }
  return outputs;
}

std::vector<Device> devices_for(Module& module, std::optional<std::vector<Device>> devices) {
  if (!devices) {
    devices.emplace();
    for (int i = 0; i < cuda::device_count(); ++i) devices->push_back(Device(kCUDA, i));
  }
  GRADUS_CHECK(!devices->empty(), DeviceError, "data_parallel found no GPU: name devices, such as {kCPU, kCPU}");
  for (Device& device : *devices) device = settled(device);
  const auto is_elsewhere = [&](const Tensor& tensor) { return tensor.device() != devices->front(); };
  if (std::ranges::any_of(module.parameters(), is_elsewhere) || std::ranges::any_of(module.buffers(), is_elsewhere))
    module.to(devices->front());
  return *std::move(devices);
}

}  // namespace detail
}  // namespace gradus::nn::parallel
