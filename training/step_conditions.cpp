#include <gradus/training/step_conditions.h>

#include <algorithm>
#include <sstream>

#include <gradus/autograd/autocast.h>
#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/node.h>
#include <gradus/autograd/object_lock.h>
#include <gradus/core/cuda.h>
#include <gradus/core/cudnn.h>
#include <gradus/core/registry.h>

namespace gradus::training {
namespace {

thread_local const char thread_mark = 0;

}  // namespace

StepPartsCollector::StepPartsCollector() : thread_(&thread_mark) { add_observer(this); }
StepPartsCollector::~StepPartsCollector() { remove_observer(this); }

void StepPartsCollector::on_begin(const ObservedEvent&) {
  if (&thread_mark != thread_) return;
  for (const ModuleFrame* frame = ModuleFrame::current(); frame; frame = frame->parent)
    for (const nn::Module* module = nn::Module::of(*frame); module; module = module->parent()) {
      if (std::find(seen_.begin(), seen_.end(), module) != seen_.end()) break;  // and so are those above it
      seen_.push_back(module);
      modules_.push_back(module->weak_from_this());
    }
}

StepParts StepPartsCollector::finish() const {
  StepParts parts;
  for (const auto& entry : modules_)
    if (const std::shared_ptr<const nn::Module> module = entry.lock()) {
      parts.modules.push_back(entry);
      for (const auto& item : module->named_parameters(/*recurse=*/false)) parts.tensors.push_back(item.value());
      for (const auto& item : module->named_buffers(/*recurse=*/false)) parts.tensors.push_back(item.value());
    }
  return parts;
}

StepConditions::StepConditions(const std::vector<optim::KernelOptimizer*>& optimizers, const StepParts& parts) {
  const amp::AutocastSettings& autocast = amp::Autocast::settings();
  for (int device = 0; device < kDeviceTypeCount; ++device)
    if (autocast.enabled[device])
      numbers_.insert(numbers_.end(), {device, static_cast<int64_t>(autocast.dtype[device]), autocast.cache_enabled});
  numbers_.insert(numbers_.end(), {GradMode::is_enabled(), InferenceMode::is_enabled(),
                                   static_cast<int64_t>(get_default_dtype()), cuda::matmul_allow_tf32(),
                                   cudnn::allow_tf32(), cudnn::deterministic(), cudnn::small_convolutions()});
  for (optim::KernelOptimizer* optimizer : optimizers) {
    for (const Tensor& parameter : optimizer->parameters()) add(parameter);
    for (const Array& block : optimizer->step_blocks()) storages_.push_back(block.storage());
  }
  for (const Tensor& tensor : parts.tensors) add(tensor);
  std::ostringstream printed;
  for (const auto& entry : parts.modules)
    if (const std::shared_ptr<const nn::Module> module = entry.lock()) {
      numbers_.insert(numbers_.end(), {module->is_training(), module->has_hooks(), module->is_recomputed()});
      module->pretty_print(printed);
    }
  printed_ = std::move(printed).str();
}

void StepConditions::add(const Tensor& tensor) {
  storages_.push_back(tensor.array().storage());
  const Backend& backend = current_backend(tensor.device().type());
  numbers_.insert(numbers_.end(), {tensor.requires_grad(), tensor.storage_offset(), tensor.numel(),
                                   reinterpret_cast<intptr_t>(&backend)});
  const AutogradMeta* const meta = tensor.impl()->meta.get();
  if (!meta) return;
  const gradus::detail::ObjectLock lock(meta);
  storages_.push_back(meta->bound_grad.storage());
  for (const auto& hook : meta->hooks) numbers_.push_back(hook.id);
  for (const auto& hook : meta->post_hooks) numbers_.push_back(hook.id);
}

}  // namespace gradus::training
