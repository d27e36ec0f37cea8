#include <gradus/layers/sequential.h>

#include <ostream>

namespace gradus::nn {

SequentialImpl::SequentialImpl(std::initializer_list<NamedAnyModule> modules) {
  for (const NamedAnyModule& module : modules) push_back(module);
}

Tensor SequentialImpl::forward(const Tensor& x) {
  GRADUS_CHECK(!modules_.empty(), ValueError, "forward of an empty Sequential: push_back modules first");
  Tensor y = x;
  for (const AnyModule& module : modules_) y = module.forward(y);
  return y;
}

void SequentialImpl::push_back(std::string name, AnyModule module) {
  register_module(std::move(name), module.ptr());
  modules_.push_back(std::move(module));
}

void SequentialImpl::extend(const SequentialImpl& other) {
  const std::vector<AnyModule> modules = other.modules_;
  for (const AnyModule& module : modules) push_back(module);
}

const std::shared_ptr<Module>& SequentialImpl::ptr(size_t index) const {
  GRADUS_CHECK(index < modules_.size(), IndexError, "module ", index, " of a Sequential of ", modules_.size());
  return modules_[index].ptr();
}

bool SequentialImpl::rebuild(const Module& original, const std::optional<Device>& device) {
  const std::vector<AnyModule> modules = std::move(modules_);
  modules_.clear();
  const std::vector<std::string> names = original.named_children().keys();
  for (size_t i = 0; i < modules.size(); ++i) {
    // A module that stands here twice is one module in the copy too.
    size_t first = 0;
    while (modules[first].ptr() != modules[i].ptr()) ++first;
    push_back(names[i], first < i ? modules_[first] : modules[i].clone(device));
  }
  return false;
}

void SequentialImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::Sequential"; }

}  // namespace gradus::nn
