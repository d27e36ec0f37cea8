#include <gradus/training/captured_step.h>

namespace gradus::training {
namespace {

std::vector<optim::KernelOptimizer*> checked(const std::vector<optim::Optimizer*>& optimizers) {
  std::vector<optim::KernelOptimizer*> found;
  for (optim::Optimizer* optimizer : optimizers) {
    auto* const known = dynamic_cast<optim::KernelOptimizer*>(optimizer);
    GRADUS_CHECK(known, ValueError,
                 "a captured step needs optimizers that read their scalars from device memory (KernelOptimizer)");
    found.push_back(known);
  }
  return found;
}

// All numbers but the learning rates, which replays read from device memory.
class NumberCollector final : public optim::NumberVisitor {
 public:
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override {
    if (name != "lr") numbers.push_back(value);
  }
  std::vector<double> numbers;
};

}  // namespace

CapturedStep::CapturedStep(Device device, std::vector<optim::Optimizer*> optimizers, Function step,
                           CapturedStepOptions options)
    : device_(device), optimizers_(checked(optimizers)), step_(std::move(step)), options_(std::move(options)),
      wanted_(options_.enabled() && device_.is_cuda()) {
  const OpContext context("CapturedStep");
  GRADUS_CHECK(options_.warm_up() >= 1, ValueError, "warm_up must be at least 1, got ", options_.warm_up());
}

TensorList CapturedStep::operator()(const TensorList& batch) {
  const Signature signature = signature_of(batch);
  if (captured_ && signature == signature_ && options_of_optimizers() != captured_options_) capture(batch);
  if (!captured_ && wanted_ && signature == signature_ && eager_steps_ >= options_.warm_up()) capture(batch);
  if (!captured_ || signature != signature_) {
    if (!captured_) {
      eager_steps_ = signature == signature_ ? eager_steps_ + 1 : 1;
      signature_ = signature;
    }
    return run_eagerly(batch);
  }
  for (size_t i = 0; i < batch.size(); ++i) inputs_[i].copy_(batch[i], batch[i].array().storage().pinned());
  for (optim::KernelOptimizer* optimizer : optimizers_) optimizer->upload_learning_rates();
  graph_.replay();
  return outputs_;
}

CapturedStep::Signature CapturedStep::signature_of(const TensorList& batch) {
  Signature signature;
  for (const Tensor& tensor : batch) signature.emplace_back(tensor.sizes(), tensor.strides(), tensor.dtype());
  return signature;
}

TensorList CapturedStep::run_eagerly(const TensorList& batch) {
  TensorList here;
  for (const Tensor& tensor : batch) here.push_back(tensor.to(device_, tensor.array().storage().pinned()));
  return step_(here);
}

void CapturedStep::capture(const TensorList& batch) {
  reset();
  for (optim::KernelOptimizer* optimizer : optimizers_) optimizer->upload_learning_rates();
  for (const Tensor& tensor : batch) inputs_.push_back(tensor.to(device_, /*non_blocking=*/false, /*copy=*/true));
  try {
    graph_.capture([&] { outputs_ = step_(inputs_); });  // runs nothing yet
  } catch (...) {
    for (optim::KernelOptimizer* optimizer : optimizers_) optimizer->zero_grad();  // nothing has computed them
    reset();
    throw;
  }
  captured_options_ = options_of_optimizers();
  signature_ = signature_of(batch);
  captured_ = true;
}

std::vector<double> CapturedStep::options_of_optimizers() const {
  NumberCollector collector;
  for (optim::KernelOptimizer* optimizer : optimizers_)
    for (optim::OptimizerParamGroup& group : optimizer->param_groups()) group.options().visit(collector);
  return collector.numbers;
}

void CapturedStep::reset() {
  captured_ = false;
  eager_steps_ = 0;
  outputs_.clear();
  graph_.reset();
  inputs_.clear();
}

void CapturedStep::give_up() {
  reset();
  wanted_ = false;
}

}  // namespace gradus::training
