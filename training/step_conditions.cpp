#include <gradus/training/step_conditions.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <sstream>

#include <gradus/autograd/autocast.h>
#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/node.h>
#include <gradus/autograd/object_lock.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>

namespace gradus::training {
namespace {

thread_local const char thread_mark = 0;

int64_t address_of(const Storage& storage) { return reinterpret_cast<intptr_t>(storage.data()); }

std::string print(const nn::Module& module) {
  std::ostringstream printed;
  module.pretty_print(printed);
  return std::move(printed).str();
}

// Calls `on_number` and `on_storage` for all conditions except the options of modules.
template <class OnNumber, class OnStorage>
void visit_conditions(const std::vector<optim::Optimizer*>& optimizers, const StepParts& parts,
                      const OnNumber& on_number, const OnStorage& on_storage) {
  const auto on_numbers = [&](std::initializer_list<int64_t> numbers) {
    for (const int64_t number : numbers) on_number(number);
  };
  const auto on_tensor = [&](const Tensor& tensor) {
    on_storage(tensor.array().storage());
    on_numbers({tensor.requires_grad(), tensor.storage_offset(), tensor.numel(),
                reinterpret_cast<intptr_t>(&current_backend(tensor.device().type()))});
    const AutogradMeta* const meta = tensor.impl()->meta.get();
    if (!meta) return;
    if (meta->bound_grad.defined()) on_storage(meta->bound_grad.storage());
    if (!meta->has_hooks) return;
    const gradus::detail::ObjectLock lock(meta);
    for (const auto& hook : meta->hooks) on_number(hook.id);
    for (const auto& hook : meta->post_hooks) on_number(hook.id);
  };
  const amp::AutocastSettings& autocast = amp::Autocast::settings();
  for (int device = 0; device < kDeviceTypeCount; ++device)
    if (autocast.enabled[device])
      on_numbers({device, static_cast<int64_t>(autocast.dtype[device]), autocast.cache_enabled});
  on_numbers({GradMode::is_enabled(), InferenceMode::is_enabled(), static_cast<int64_t>(get_default_dtype()),
              cuda::matmul_allow_tf32(), cudnn::allow_tf32(), cudnn::deterministic(), cudnn::small_convolutions()});
  for (optim::Optimizer* optimizer : optimizers) {
    for (const auto& group : optimizer->param_groups())
      for (const Tensor& parameter : group.params()) on_tensor(parameter);
    for (const Array& block : optimizer->step_blocks()) on_storage(block.storage());
  }
  for (const Tensor& tensor : parts.tensors) on_tensor(tensor);
  for (const auto& entry : parts.modules)
    if (const std::shared_ptr<const nn::Module> module = entry.lock())
      on_numbers({module->is_training(), module->has_hooks(), module->is_recomputed()});
}

}  // namespace

StepPartsCollector::StepPartsCollector() : thread_(&thread_mark) { add_observer(this); }
StepPartsCollector::~StepPartsCollector() { remove_observer(this); }

void StepPartsCollector::on_begin(const ObservedEvent&) {
  if (&thread_mark != thread_) return;
  for (const ModuleFrame* frame = ModuleFrame::current(); frame; frame = frame->parent)
    for (const nn::Module* module = nn::Module::of(*frame); module; module = module->parent()) {
      if (std::find(seen_.begin(), seen_.end(), module) != seen_.end()) break;  // modules above it were added, too
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

StepConditions::StepConditions(const std::vector<optim::Optimizer*>& optimizers, const StepParts& parts) {
  visit_conditions(
      optimizers, parts, [&](int64_t number) { numbers_.push_back(number); },
      [&](const Storage& storage) {
        storages_.push_back(storage);
        numbers_.push_back(address_of(storage));
      });
  for (const auto& entry : parts.modules)
    if (const std::shared_ptr<const nn::Module> module = entry.lock()) {
      const std::span<const std::byte> bytes = module->object_bytes();
      options_.push_back({{bytes.begin(), bytes.end()}, print(*module)});
    }
}

bool StepConditions::hold(const std::vector<optim::Optimizer*>& optimizers, const StepParts& parts) {
  size_t visited = 0;
  bool same = true;
  const auto compare = [&](int64_t number) {
    same = same && visited < numbers_.size() && numbers_[visited] == number;
    ++visited;
  };
  visit_conditions(optimizers, parts, compare, [&](const Storage& storage) { compare(address_of(storage)); });
  if (!same || visited != numbers_.size()) return false;
  // All modules still exist, because their numbers were compared above.
  for (size_t i = 0; i < parts.modules.size(); ++i) {
    const std::shared_ptr<const nn::Module> module = parts.modules[i].lock();
    const std::span<const std::byte> bytes = module->object_bytes();
    if (std::ranges::equal(bytes, options_[i].bytes)) continue;
    if (print(*module) != options_[i].printed) return false;
    options_[i].bytes.assign(bytes.begin(), bytes.end());
  }
  return true;
}

}  // namespace gradus::training
