// Hooks of modules: registration, and the two nodes that observe a module's backward pass.
#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include <gradus/autograd/op_scope.h>
#include <gradus/core/ops/ops.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

namespace detail {

struct ModuleHooks {
  template <class Function>
  using List = std::vector<std::pair<unsigned, Function>>;
  List<ForwardPreHook> forward_pre;
  List<ForwardHook> forward;
  List<BackwardHook> backward;
  bool recompute = false;

  bool empty() const { return forward_pre.empty() && forward.empty() && backward.empty() && !recompute; }
  template <class Function>
  unsigned add(List<Function> ModuleHooks::*list, Function hook) {
    GRADUS_CHECK(hook, ValueError, "a hook needs a function");
    return (this->*list).emplace_back(gradus::detail::new_hook_id(), std::move(hook)).first;
  }
};

/// Calls call(hook) for each hook and checks that it leaves the number of `tensors` unchanged.
template <class Function, class Call>
void run_hooks(const ModuleHooks::List<Function>& hooks, const Module& module, const char* kind, const char* what,
               const TensorList& tensors, const Call& call) {
  for (const auto& [id, hook] : hooks) {
    const size_t expected = tensors.size();
    call(hook);
    GRADUS_CHECK(tensors.size() == expected, ValueError, "a ", kind, "hook of ", module.name(), " left ",
                 tensors.size(), " of ", expected, " ", what);
  }
}

/// State of one call of a module, shared by the nodes that observe the call's outputs and its inputs.
struct HookedCall::BackwardCall {
  Module* module;
  std::shared_ptr<const Module> alive;  // keeps the module alive; null if no shared_ptr owns it
  ModuleHooks::List<BackwardHook> hooks;
  size_t inputs = 0;
  bool inputs_recorded = false;
  std::mutex mutex;
  std::map<std::thread::id, TensorList> grad_outputs;  // of running backward passes, by the thread that runs them

  void keep(const TensorList& gradients) {
    const std::lock_guard lock(mutex);
    grad_outputs[std::this_thread::get_id()] = gradients;
  }
  TensorList take() {
    const std::lock_guard lock(mutex);
    auto taken = grad_outputs.extract(std::this_thread::get_id());
    return taken ? std::move(taken.mapped()) : TensorList();
  }
  TensorList run(TensorList grad_inputs) {
    const TensorList grad_outputs = take();
    run_hooks(hooks, *module, "backward ", "gradients of inputs", grad_inputs,
              [&](const BackwardHook& hook) { hook(*module, grad_inputs, grad_outputs); });
    return grad_inputs;
  }
};

namespace {

/// Observes the gradients of a module's inputs or outputs, and passes on what the function returns.
struct GradientObserver final : Node {
  std::function<TensorList(TensorList)> observe;
  Grads backward_all(const Grads& dys) override {
    Grads gradients;
    for (const Tensor& gradient : observe(TensorList(dys.begin(), dys.end()))) gradients.push_back(gradient);
    return gradients;
  }
};

bool any_recorded(const TensorList& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& x) { return x.defined() && x.requires_grad(); });
}

/// Inserts a node into the autograd graph: makes the tensors its inputs, and replaces them by its outputs. The array of
/// each output is array_of(array of the tensor).
template <class ArrayOf>
void record(const char* name, std::function<TensorList(TensorList)> observe, TensorList& tensors,
            const ArrayOf& array_of) {
  auto node = make_ref<GradientObserver>();
  node->set_name(name);
  node->observe = std::move(observe);
  for (const Tensor& tensor : tensors) node->edges().push_back(tensor.defined() ? gradient_edge(tensor) : Edge{});
  for (Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_floating_point()) {
      node->add_output(tensor.defined() ? tensor.array() : Array());
      continue;
    }
    tensor = gradus::detail::finish_output(node, array_of(tensor.array()));
  }
}

}  // namespace

HookedCall::HookedCall(Module& module) : module_(module), hooks_(module.hooks_) {}
HookedCall::~HookedCall() = default;

void HookedCall::before(TensorList inputs) {
  inputs_ = std::move(inputs);
  const auto forward_pre = hooks_->forward_pre;  // a copy, because a hook may add or remove hooks
  run_hooks(forward_pre, module_, "forward pre-", "inputs", inputs_,
            [&](const ForwardPreHook& hook) { hook(module_, inputs_); });
  if (hooks_->backward.empty() || !GradMode::is_enabled()) return;
  backward_ = std::make_shared<BackwardCall>();
  backward_->module = &module_;
  backward_->alive = module_.weak_from_this().lock();
  backward_->hooks = hooks_->backward;
  backward_->inputs = inputs_.size();
  backward_->inputs_recorded = any_recorded(inputs_);
  if (!backward_->inputs_recorded) return;
  const auto observe = [call = backward_](TensorList gradients) { return call->run(std::move(gradients)); };
  // The inputs are copied, so that in-place operators of the module do not replace the recorded inputs.
  record("ModuleInputs", observe, inputs_, [](const Array& array) { return ops::clone(array); });
}

void HookedCall::after(TensorList& outputs) {
  const auto forward = hooks_->forward;
  run_hooks(forward, module_, "forward ", "outputs", outputs,
            [&](const ForwardHook& hook) { hook(module_, inputs_, outputs); });
  if (!backward_ || !any_recorded(outputs)) return;
  const auto observe = [call = backward_](TensorList gradients) {
    call->keep(gradients);
    if (!call->inputs_recorded) call->run(TensorList(call->inputs));
    return gradients;
  };
  record("ModuleOutputs", observe, outputs, [](const Array& array) { return array; });
}

Tensor call_hooked_tensor(Module& module, const Tensor& x, Tensor (*forward)(Module& module, const Tensor& x)) {
  HookedCall call(module);
  call.before({x});
  const auto run = [&module, forward, alive = module.weak_from_this().lock()](const Tensor& input) {
    return forward(module, input);
  };
  const Tensor input = call.inputs()[0];
  TensorList outputs = {module.is_recomputed() ? autograd::checkpoint(run, input) : run(input)};
  call.after(outputs);
  return outputs[0];
}

}  // namespace detail

detail::ModuleHooks& Module::need_hooks() {
  if (!hooks_) hooks_ = std::make_shared<detail::ModuleHooks>();
  return *hooks_;
}

unsigned Module::register_forward_pre_hook(ForwardPreHook hook) {
  return need_hooks().add(&detail::ModuleHooks::forward_pre, std::move(hook));
}

unsigned Module::register_forward_hook(ForwardHook hook) {
  return need_hooks().add(&detail::ModuleHooks::forward, std::move(hook));
}

unsigned Module::register_backward_hook(BackwardHook hook) {
  return need_hooks().add(&detail::ModuleHooks::backward, std::move(hook));
}

void Module::remove_hook(unsigned id) {
  const auto erase = [id](auto& list) {
    return std::erase_if(list, [id](const auto& entry) { return entry.first == id; });
  };
  const size_t erased =
      hooks_ ? erase(hooks_->forward_pre) + erase(hooks_->forward) + erase(hooks_->backward) : size_t{0};
  GRADUS_CHECK(erased > 0, IndexError, name(), " has no hook with id ", id);
  if (hooks_->empty()) hooks_.reset();
}

void Module::recompute(bool on) {
  if (on || hooks_) need_hooks().recompute = on;
  if (hooks_ && hooks_->empty()) hooks_.reset();
}

bool Module::is_recomputed() const { return hooks_ && hooks_->recompute; }

}  // namespace gradus::nn
