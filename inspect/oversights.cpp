#include <gradus/inspect/oversights.h>

#include <iostream>
#include <set>

#include <gradus/autograd/diagnosis.h>
#include <gradus/core/error.h>

namespace gradus::training {

std::vector<std::string> find_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer) {
  GRADUS_CHECK(loss.requires_grad(), AutogradError, "[find_oversights] the loss has no graph: nothing in it requires ",
               "a gradient");
  std::set<const TensorImpl*> registered, optimized;
  if (optimizer)
    for (const optim::OptimizerParamGroup& group : optimizer->param_groups())
      for (const Tensor& parameter : group.params()) optimized.insert(parameter.impl());
  std::vector<std::string> lines;
  for (const auto& item : net.named_parameters()) {
    const Tensor& parameter = item.value();
    registered.insert(parameter.impl());
    if (!parameter.requires_grad()) continue;
    if (!parameter.grad().defined())
      lines.push_back("parameter '" + item.key() + "' got no gradient: does forward() use it?");
    if (optimizer && !optimized.contains(parameter.impl()))
      lines.push_back("parameter '" + item.key() + "' is not in the optimizer, so it will not change");
  }
  for (const Tensor& leaf : autograd::leaves_behind(loss))
    if (!registered.contains(leaf.impl()))
      lines.push_back("a tensor of shape " + to_string(leaf.array().shape()) +
                      " gets a gradient but is not a parameter of the net: "
                      "was its layer registered (register_module)?");
  return lines;
}

void warn_of_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer) {
  warn_of_oversights(net, loss, optimizer, std::cerr);
}

void warn_of_oversights(const nn::Module& net, const Tensor& loss, const optim::Optimizer* optimizer,
                        std::ostream& stream) {
  for (const std::string& line : find_oversights(net, loss, optimizer)) stream << "warning: " << line << '\n';
}

}  // namespace gradus::training
