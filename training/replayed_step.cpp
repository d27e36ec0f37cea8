#include <gradus/training/replayed_step.h>

namespace gradus::training {
namespace {

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

ReplayedStep::ReplayedStep(const char* name, Device device, const std::vector<optim::Optimizer*>& optimizers,
                           Function step)
    : device_(device), step_(std::move(step)), optimizers_(optimizers) {
  const OpContext context(name);
  for (optim::Optimizer* optimizer : optimizers)
    GRADUS_CHECK(optimizer && optimizer->has_rule(), ValueError,
                 "a replayed step needs optimizers with a rule, which read their scalars from device memory "
                 "(Optimizer::has_rule)");
}

ReplayedStep::Signature ReplayedStep::signature_of(const TensorList& batch) {
  Signature signature;
  for (const Tensor& tensor : batch) signature.emplace_back(tensor.sizes(), tensor.strides(), tensor.dtype());
  return signature;
}

TensorList ReplayedStep::run_eagerly(const TensorList& batch) const {
  TensorList here;
  for (const Tensor& tensor : batch) here.push_back(tensor.to(device_, tensor.array().storage().pinned()));
  return step_(here);
}

TensorList ReplayedStep::make_inputs(const TensorList& batch) const {
  TensorList inputs;
  for (const Tensor& tensor : batch) inputs.push_back(tensor.to(device_, /*non_blocking=*/false, /*copy=*/true));
  return inputs;
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

void copy_batch(const TensorList& batch, const TensorList& inputs) {
  for (size_t i = 0; i < batch.size(); ++i) inputs[i].copy_(batch[i], batch[i].array().storage().pinned());
}

}  // namespace gradus::training
