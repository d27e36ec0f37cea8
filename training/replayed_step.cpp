#include <gradus/training/replayed_step.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <sstream>

#include <gradus/autograd/engine.h>
#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/mixed_precision/autocast.h>
#include <gradus/autograd/node.h>
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
    if (const Array* bound = bound_grad(*meta)) on_storage(bound->storage());
    meta->hooks.for_each_id(on_number);
    meta->post_hooks.for_each_id(on_number);
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

// Collects all numbers except the learning rates, which replays read from device memory.
class NumberCollector final : public optim::NumberVisitor {
 public:
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override {
    if (name != "lr") numbers.push_back(value);
  }
  std::vector<double> numbers;
};

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

// ---- ReplayedStep ----

ReplayedStep::ReplayedStep(const char* name, Device device, std::vector<optim::Optimizer*> optimizers, Function step,
                           int warm_up, bool wanted)
    : device_(device), warm_up_(warm_up), wanted_(wanted), step_(std::move(step)), optimizers_(std::move(optimizers)) {
  const OpContext context(name);
  GRADUS_CHECK(warm_up >= 1, ValueError, "warm_up must be at least 1, got ", warm_up);
  for (const optim::Optimizer* optimizer : optimizers_)
    GRADUS_CHECK(optimizer && optimizer->has_rule(), ValueError,
                 "a replayed step needs optimizers with a rule, which read their scalars from device memory "
                 "(Optimizer::has_rule)");
}

void ReplayedStep::give_up() {
  reset();
  wanted_ = false;
}

ReplayedStep::Signature ReplayedStep::signature_of(const TensorList& batch) {
  Signature signature;
  for (const Tensor& tensor : batch) signature.emplace_back(tensor.sizes(), tensor.strides(), tensor.dtype());
  return signature;
}

void ReplayedStep::record(Recording& recording, const TensorList& batch, const Recorder& recorder) const {
  upload_learning_rates();
  recording.signature = signature_of(batch), recording.options = options_of_optimizers();
  for (const Tensor& tensor : batch)
    recording.inputs.push_back(tensor.to(device_, /*non_blocking=*/false, /*copy=*/true));
  recording.half_copies = amp::detail::RecordedHalfCopies(parameters());
  try {
    StepPartsCollector collector;
    recorder([&] {
      recording.outputs = step_(recording.inputs);
      recording.half_copies.end_recording();
    });
    recording.parts = collector.finish();
  } catch (...) {
    drop_gradients();
    throw;
  }
  recording.conditions = StepConditions(optimizers_, recording.parts);
}

bool ReplayedStep::is_valid(Recording& recording) const {
  return recording.conditions.hold(optimizers_, recording.parts);
}

bool ReplayedStep::has_current_options(const Recording& recording) const {
  return recording.options == options_of_optimizers();
}

const TensorList& ReplayedStep::replay(const Recording& recording, const TensorList& batch,
                                       const std::function<void()>& run) const {
  for (size_t i = 0; i < batch.size(); ++i) recording.inputs[i].copy_(batch[i], batch[i].array().storage().pinned());
  upload_learning_rates();
  recording.half_copies.replay(run);
  return recording.outputs;
}

TensorList ReplayedStep::run_eagerly(const TensorList& batch) const {
  TensorList here;
  for (const Tensor& tensor : batch) here.push_back(tensor.to(device_, tensor.array().storage().pinned()));
  return step_(here);
}

void ReplayedStep::upload_learning_rates() const {
  for (optim::Optimizer* optimizer : optimizers_) optimizer->upload_learning_rates();
}

std::vector<Tensor> ReplayedStep::parameters() const {
  std::vector<Tensor> all;
  for (optim::Optimizer* optimizer : optimizers_)
    for (const Tensor& parameter : optimizer->parameters()) all.push_back(parameter);
  return all;
}

std::vector<const void*> ReplayedStep::gradient_addresses() const {
  std::vector<const void*> addresses;
  for (const Tensor& parameter : parameters())
    if (parameter.grad().defined()) addresses.push_back(parameter.grad().data_ptr());
  return addresses;
}

void ReplayedStep::drop_gradients() const {
  for (optim::Optimizer* optimizer : optimizers_) optimizer->zero_grad();
}

std::vector<double> ReplayedStep::options_of_optimizers() const {
  NumberCollector collector;
  for (optim::Optimizer* optimizer : optimizers_)
    for (optim::OptimizerParamGroup& group : optimizer->param_groups()) group.options().visit(collector);
  return collector.numbers;
}

}  // namespace gradus::training
