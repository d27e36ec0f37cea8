#include <gradus/autograd/function.h>

#include <algorithm>

#include <gradus/autograd/ops/creation.h>

namespace gradus::autograd {

TensorList AutogradContext::get_saved_variables() const {
  TensorList tensors;
  for (const auto& saved : node_->kept_) tensors.push_back((*saved)());
  return tensors;
}

bool AutogradContext::needs_input_grad(size_t input) const {
  const auto& edge = node_->input_of_argument_;
  return input < edge.size() && edge[input] >= 0 && node_->needs_grad(static_cast<size_t>(edge[input]));
}

Grads FunctionNode::backward_all(const Grads& dys) {
  const std::lock_guard lock(mutex_);
  TensorList gradients(dys.begin(), dys.end());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const OutputInfo& info = outputs()[i];
    if (!gradients[i].defined() && context.materialize_ && is_floating(info.dtype))
      gradients[i] = zeros(info.shape, TensorOptions(info.dtype).device(info.device));
  }
  TensorList per_argument = backward_(&context, gradients);
  while (per_argument.size() > input_of_argument_.size() && !per_argument.back().defined()) per_argument.pop_back();
  GRADUS_CHECK(per_argument.size() == input_of_argument_.size(), AutogradError, name(), "::backward returned ",
               per_argument.size(), " gradients for ", input_of_argument_.size(),
               " arguments of forward; return an undefined Tensor for those without one");
  Grads result(edges().size());
  for (size_t i = 0; i < per_argument.size(); ++i) {
    if (input_of_argument_[i] >= 0) result[static_cast<size_t>(input_of_argument_[i])] = per_argument[i];
    else
      GRADUS_CHECK(!per_argument[i].defined(), AutogradError, name(), "::backward returned a gradient for argument ", i,
                   ", which is not a tensor");
  }
  return result;
}

void FunctionNode::release_saved() {
  const std::lock_guard lock(mutex_);
  Node::release_saved();
  context.saved_data.clear();
}

TensorList FunctionNode::run(const Ref<FunctionNode>& node, const TensorList& inputs,
                             std::vector<int> input_of_argument,
                             const std::function<TensorList(AutogradContext*)>& forward) {
  OpScope op(node->name(), Loc{});
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  const bool recording = detail::is_recorded(pointers);
  node->input_of_argument_ = std::move(input_of_argument);
  if (recording) detail::begin_node(*node, pointers, node->name());
  AutogradContext& context = node->context;
  TensorList results;
  {
    NoGradGuard no_grad;
    results = forward(&context);
  }
  if (!recording) return results;

  auto same = [](const Tensor& tensor) {
    return [&tensor](const Tensor& other) { return other.defined() && other.is_same(tensor); };
  };
  auto listed = [&](const TensorList& list, const Tensor& tensor) { return std::ranges::any_of(list, same(tensor)); };
  // forward may have written through data_ptr(), which does not increase the version.
  for (const Tensor& written : context.dirty_) written.array().bump_version();
  const TensorList raw = results;
  for (Tensor& result : results) {
    if (!result.defined() || !is_floating(result.dtype()) || listed(context.non_differentiable_, result)) {
      node->add_output(result.defined() ? result.array() : Array());
      continue;
    }
    if (listed(context.dirty_, result)) {
      detail::check_in_place(result, true);
      detail::finish_in_place(result, node);
      continue;
    }
    // Even an input that forward returns unchanged, or a view that it made, becomes a new tensor, whose history is
    // `node`.
    result = detail::finish_output(node, result.array());
  }
  for (const Tensor& tensor : context.to_save_) {
    node->kept_.push_back(std::make_unique<Saved>(node.get(), "saved"));
    const auto output = std::ranges::find_if(raw, same(tensor));
    if (listed(inputs, tensor) || output == raw.end()) *node->kept_.back() = tensor;
    else *node->kept_.back() = Saved::Own{tensor.array(), static_cast<uint32_t>(output - raw.begin())};
  }
  context.to_save_.clear();
  context.dirty_.clear();
  context.non_differentiable_.clear();
  return results;
}

}  // namespace gradus::autograd
