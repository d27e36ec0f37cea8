#include <gradus/training/replayed_step.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <span>
#include <sstream>

#include <gradus/autograd/engine.h>
#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/mixed_precision/autocast.h>
#include <gradus/autograd/node.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/graph/recorder.h>

namespace gradus::training {
namespace {

thread_local const char thread_mark = 0;

std::string print(const nn::Module& module) {
  std::ostringstream printed;
  module.pretty_print(printed);
  return std::move(printed).str();
}

/// Returns a number for each condition (StepConditions), except the options of modules. Memory is represented by its
/// address and, if `storages` is not null, also appended to `storages`.
std::vector<int64_t> numbers_of(const Optimizers& optimizers, const StepParts& parts, std::vector<Storage>* storages) {
  std::vector<int64_t> found;
  const auto add = [&](std::initializer_list<int64_t> numbers) { found.insert(found.end(), numbers); };
  const auto add_id = [&](unsigned id) { found.push_back(id); };
  const auto add_storage = [&](const Storage& storage) {
    found.push_back(reinterpret_cast<intptr_t>(storage.data()));
    if (storages) storages->push_back(storage);
  };
  const auto add_tensor = [&](const Tensor& tensor) {
    add_storage(tensor.array().storage());
    add({tensor.requires_grad(), tensor.storage_offset(), tensor.numel(),
         reinterpret_cast<intptr_t>(&current_backend(tensor.device().type()))});
    const AutogradMeta* const meta = tensor.impl()->meta.get();
    if (!meta) return;
    if (const Array* bound = bound_grad(*meta)) add_storage(bound->storage());
    meta->hooks.for_each_id(add_id);
    meta->post_hooks.for_each_id(add_id);
  };
  const amp::AutocastSettings& autocast = amp::Autocast::settings();
  for (int device = 0; device < kDeviceTypeCount; ++device)
    if (autocast.enabled[device]) add({device, static_cast<int64_t>(autocast.dtype[device]), autocast.cache_enabled});
  add({GradMode::is_enabled(), InferenceMode::is_enabled(), static_cast<int64_t>(get_default_dtype()),
       cuda::matmul_allow_tf32(), cudnn::allow_tf32(), cudnn::deterministic(), cudnn::small_convolutions()});
  for (optim::Optimizer* optimizer : optimizers) {
    for (const auto& group : optimizer->param_groups())
      for (const Tensor& parameter : group.params()) add_tensor(parameter);
    for (const Array& block : optimizer->step_blocks()) add_storage(block.storage());
  }
  for (const Tensor& tensor : parts.tensors) add_tensor(tensor);
  for (const auto& entry : parts.modules)
    if (const std::shared_ptr<const nn::Module> module = entry.lock())
      add({module->is_training(), module->has_hooks(), module->is_recomputed()});
  return found;
}

/// Collects the modules whose forward runs on this thread during a step, and the modules that contain them.
class StepPartsCollector final : public Observer {
 public:
  StepPartsCollector() { add_observer(this); }
  ~StepPartsCollector() override { remove_observer(this); }

  void on_begin(const ObservedEvent&) override {
    if (&thread_mark != thread_) return;
    for (const ModuleFrame* frame = ModuleFrame::current(); frame; frame = frame->parent)
      for (const nn::Module* module = nn::Module::of(*frame); module; module = module->parent()) {
        if (std::find(seen_.begin(), seen_.end(), module) != seen_.end()) break;  // its parents have been seen, too
        seen_.push_back(module);
        modules_.push_back(module->weak_from_this());
      }
  }

  /// Returns the modules that still exist, with their parameters and buffers. Modules that no shared_ptr holds are left
  /// out.
  StepParts finish() const {
    StepParts parts;
    for (const auto& entry : modules_)
      if (const std::shared_ptr<const nn::Module> module = entry.lock()) {
        parts.modules.push_back(entry);
        std::ranges::copy(module->parameters(/*recurse=*/false), std::back_inserter(parts.tensors));
        std::ranges::copy(module->buffers(/*recurse=*/false), std::back_inserter(parts.tensors));
      }
    return parts;
  }

 private:
  const void* const thread_ = &thread_mark;  // the address of a thread-local variable identifies the thread
  std::vector<const nn::Module*> seen_;
  std::vector<std::weak_ptr<const nn::Module>> modules_;
};

}  // namespace

StepConditions::StepConditions(const Optimizers& optimizers, const StepParts& parts) {
  numbers_ = numbers_of(optimizers, parts, &storages_);
  for (const auto& entry : parts.modules)
    if (const std::shared_ptr<const nn::Module> module = entry.lock()) {
      const std::span<const std::byte> bytes = module->object_bytes();
      options_.push_back({{bytes.begin(), bytes.end()}, print(*module)});
    }
}

bool StepConditions::hold(const Optimizers& optimizers, const StepParts& parts) {
  if (numbers_of(optimizers, parts, /*storages=*/nullptr) != numbers_) return false;
  // All modules still exist: numbers_of() skips destroyed modules, so there would have been fewer numbers above.
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

ReplayedStep::ReplayedStep(const char* name, Device device, Optimizers optimizers, Function step, int warm_up,
                           bool wanted)
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
  recording.signature = signature_of(batch);
  recording.options = options_of_optimizers();
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

TensorList ReplayedStep::parameters() const {
  TensorList all;
  for (optim::Optimizer* optimizer : optimizers_) std::ranges::copy(optimizer->parameters(), std::back_inserter(all));
  return all;
}

void ReplayedStep::drop_gradients() const {
  for (optim::Optimizer* optimizer : optimizers_) optimizer->zero_grad();
}

std::vector<double> ReplayedStep::options_of_optimizers() const {
  std::vector<double> numbers;
  optim::NumberVisitor collect([&](const std::string& name, double value) {
    if (name != "lr") numbers.push_back(value);  // replays read the learning rates from device memory
  });
  for (optim::Optimizer* optimizer : optimizers_)
    for (optim::OptimizerParamGroup& group : optimizer->param_groups()) group.options().visit(collect);
  return numbers;
}

// ---- CapturedStep ----

CapturedStep::CapturedStep(Device device, Optimizers optimizers, Function step, CapturedStepOptions options)
    : ReplayedStep("CapturedStep", device, std::move(optimizers), std::move(step), options.warm_up(),
                   options.enabled() && device.is_cuda()) {}

TensorList CapturedStep::operator()(const TensorList& batch) {
  const Signature signature = signature_of(batch);
  const bool fits = signature == recording_.signature;
  if (captured_ && fits && !is_valid(recording_)) reset();
  if (captured_ && fits && !has_current_options(recording_)) capture(batch);
  if (!captured_ && wanted_ && fits && eager_steps_ >= warm_up_) capture(batch);
  if (captured_ && fits) {
    return replay(recording_, batch, [&] { graph_.replay(); });
  }
  if (!captured_) {
    eager_steps_ = fits ? eager_steps_ + 1 : 1;
    recording_.signature = signature;
  }
  return run_eagerly(batch);
}

void CapturedStep::capture(const TensorList& batch) {
  reset();
  try {
    record(recording_, batch, [&](const auto& work) { graph_.capture(work); });  // capturing runs no kernels
  } catch (...) {
    reset();
    throw;
  }
  captured_ = true;
}

void CapturedStep::reset() {
  captured_ = false;
  eager_steps_ = 0;
  recording_.outputs.clear();  // cleared before the graph, whose memory they use
  graph_.reset();
  recording_ = {};
}

// ---- StaticStep ----

struct StaticStep::RecordedGraph : Recording {
  std::unique_ptr<graph::Executor> executor;
};

StaticStep::StaticStep(Device device, const Optimizers& optimizers, Function step, StaticStepOptions options)
    : ReplayedStep("StaticStep", device, optimizers, std::move(step), options.warm_up(), options.enabled()),
      options_(std::move(options)) {
  const OpContext context("StaticStep");
  GRADUS_CHECK(options_.recordings() >= 1, ValueError, "recordings must be at least 1, got ", options_.recordings());
}

StaticStep::~StaticStep() = default;

TensorList StaticStep::operator()(const TensorList& batch) {
  RecordedGraph* const recording = recording_of(batch);
  if (!recording) {
    ++eager_steps_;
    return run_eagerly(batch);
  }
  last_ = recording->executor.get();
  return replay(*recording, batch, [&] { recording->executor->run(); });
}

StaticStep::RecordedGraph* StaticStep::recording_of(const TensorList& batch) {
  if (!wanted_ || eager_steps_ < warm_up_) return nullptr;
  const Signature signature = signature_of(batch);
  const auto known = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const auto& recording) { return recording->signature == signature; });
  if (known == recordings_.end()) {
    if (recordings_.size() == static_cast<size_t>(options_.recordings())) return nullptr;
    return recordings_.emplace_back(record_graph(batch)).get();
  }
  if (!is_valid(**known)) {
    if (last_ == (*known)->executor.get()) last_ = nullptr;
    recordings_.erase(known);
    return nullptr;  // this step is eager and creates the state that the recording of the next step needs
  }
  if (!has_current_options(**known)) *known = record_graph(batch);
  return known->get();
}

std::unique_ptr<StaticStep::RecordedGraph> StaticStep::record_graph(const TensorList& batch) const {
  auto recording = std::make_unique<RecordedGraph>();
  std::vector<const void*> gradients;  // the addresses of those from before the step
  for (const Tensor& parameter : parameters())
    if (parameter.grad().defined()) gradients.push_back(parameter.grad().data_ptr());
  record(*recording, batch, [&](const auto& work) {
    graph::Recorder recorder(device_);
    work();
    graph::Graph graph = recorder.finish();
    for (const void* gradient : gradients)
      GRADUS_CHECK(!graph.buffer_of(gradient), ValueError, "the step uses gradients from before it, which a recorded ",
                   "step does not have: call optimizer.zero_grad() in the step, before backward()");
    for (size_t i = 0; i < recording->inputs.size(); ++i)
      graph.set_name(recording->inputs[i].array(), "input " + std::to_string(i));
    for (const Tensor& result : recording->outputs) graph.set_result(result.array());
    graph::run_passes(graph, options_.fuse_relu());
    recording->executor = std::make_unique<graph::Executor>(std::move(graph));
    for (Tensor& result : recording->outputs) result = Tensor(recording->executor->result(result.array()));
  });
  drop_gradients();
  recording->executor->graph().check_released();
  return recording;
}

void StaticStep::reset() {
  recordings_.clear();
  last_ = nullptr;
  eager_steps_ = 0;
}

}  // namespace gradus::training
