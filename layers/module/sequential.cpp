#include <gradus/layers/module/sequential.h>

#include <algorithm>
#include <ostream>
#include <span>

namespace gradus::nn {

SequentialImpl::SequentialImpl(std::initializer_list<NamedAnyModule> modules) {
  for (const NamedAnyModule& module : modules) push_back(module);
}

Sequential::Sequential() : ModuleHolder() {}
Sequential::Sequential(std::initializer_list<NamedAnyModule> modules)
    : ModuleHolder(std::make_shared<SequentialImpl>(modules)) {}

Tensor SequentialImpl::forward_tensor(const Tensor& x) const {
  if (!std::ranges::all_of(modules_, &AnyModule::maps_tensor)) {
    AnyValue value(x);
    return forward_any({&value, 1}).get<Tensor>();
  }
  if (!parts_.empty()) [[unlikely]]
    return forward_in_parts(x);
  GRADUS_CHECK(!modules_.empty(), ValueError, "cannot call forward of an empty Sequential: push_back modules first");
  Tensor y = x;
  for (const AnyModule& module : modules_) y = module.forward(y);
  return y;
}

AnyValue SequentialImpl::forward_any(std::span<AnyValue> values) const {
  GRADUS_CHECK(!modules_.empty(), ValueError, "cannot call forward of an empty Sequential: push_back modules first");
  AnyValue value = modules_[0].forward_any(values);
  for (size_t i = 1; i < modules_.size(); ++i) value = modules_[i].forward_any({&value, 1});
  return value;
}

Tensor SequentialImpl::forward_in_parts(const Tensor& x) const {
  const auto run = [](std::span<const AnyModule> modules, Tensor y) {
    for (const AnyModule& module : modules) y = module.forward(y);
    return y;
  };
  Tensor y = x;
  size_t next = 0;
  const std::span<const AnyModule> all = modules_;
  for (const auto& [begin, end] : parts_) {
    y = run(all.subspan(next, begin - next), y);
    const std::vector<AnyModule> part(modules_.begin() + static_cast<std::ptrdiff_t>(begin),
                                      modules_.begin() + static_cast<std::ptrdiff_t>(end));
    y = autograd::checkpoint([run, part](const Tensor& input) { return run(part, input); }, y);
    next = end;
  }
  return run(all.subspan(next), y);
}

void SequentialImpl::recompute_part(size_t begin, size_t end) {
  GRADUS_CHECK(end <= modules_.size(), IndexError, "end ", end, " is out of range for a Sequential of ",
               modules_.size());
  GRADUS_CHECK(begin < end, ValueError, "the part of a Sequential to recompute is empty: [", begin, ", ", end, ")");
  const auto behind = std::lower_bound(parts_.begin(), parts_.end(), std::pair(begin, end));
  const bool overlaps = (behind != parts_.end() && behind->first < end) ||
                        (behind != parts_.begin() && std::prev(behind)->second > begin);
  GRADUS_CHECK(!overlaps, ValueError, "modules [", begin, ", ", end, ") of a Sequential overlap with others that are ",
               "recomputed: call keep_all() first");
  parts_.insert(behind, {begin, end});
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
  GRADUS_CHECK(index < modules_.size(), IndexError, "index ", index, " is out of range for a Sequential of ",
               modules_.size());
  return modules_[index].ptr();
}

bool SequentialImpl::rebuild(const Module& original, const std::optional<Device>& device) {
  const std::vector<AnyModule> modules = std::move(modules_);
  modules_.clear(), parts_.clear();
  const std::vector<std::string> names = original.named_children().keys();
  for (size_t i = 0; i < modules.size(); ++i) {
    // A module that occurs twice here is also one module in the copy.
    size_t first = 0;
    while (modules[first].ptr() != modules[i].ptr()) ++first;
    push_back(names[i], first < i ? modules_[first] : modules[i].clone(device));
  }
  return false;
}

void SequentialImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::Sequential"; }

}  // namespace gradus::nn
