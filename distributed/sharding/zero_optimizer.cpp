#include <gradus/distributed/sharding/zero_optimizer.h>

#include <map>
#include <utility>

#include <gradus/core/ops/elementwise.h>
#include <gradus/distributed/sharding/state_entry.h>

namespace gradus::dist {
namespace {

OrderedDict<std::string, Tensor> trained(const nn::Module& module) {
  OrderedDict<std::string, Tensor> parameters("Parameter");
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) parameters.insert(item.key(), item.value());
  return parameters;
}

}  // namespace

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(nn::Module& module, std::shared_ptr<ProcessGroup> group,
                                                 const Make& make)
    : flat_(trained(module), std::move(group), {.keep_whole = true}), local_(make({flat_.shard()})) {
  GRADUS_CHECK(local_ && local_->size() == 1, ValueError,
               "ZeroRedundancyOptimizer: `make` has to give the shard, and nothing else, to an optimizer");
}

void ZeroRedundancyOptimizer::step() {
  const OpContext context("ZeroRedundancyOptimizer::step");
  flat_.take_gradients();
  local_->step();
  flat_.shard().mutable_grad() = Tensor();
  flat_.gather();
}

void ZeroRedundancyOptimizer::zero_grad() {
  for (const Tensor& parameter : flat_.parameters()) parameter.zero_grad();
}

optim::StateDict ZeroRedundancyOptimizer::state_dict() const {
  const OpContext context("ZeroRedundancyOptimizer::state_dict");
  const optim::StateDict own = local_->state_dict();
  std::map<std::string, std::vector<Array>> whole;  // of what is as long as the shard
  for (const auto& item : own)
    if (const auto entry = state_entry(item.key()); entry && item->sizes() == flat_.shard().sizes())
      whole[entry->name] = flat_.gather_like(item->array());
  optim::StateDict state("Key");
  for (size_t i = 0; i < flat_.names().size(); ++i)
    for (const auto& item : own) {
      const auto entry = state_entry(item.key());
      if (!entry) continue;
      const auto found = whole.find(entry->name);
      const Array& x = found == whole.end() ? item->array() : found->second[i];
      state.insert("state." + std::to_string(i) + "." + entry->name, Tensor(ops::clone(ops::to_device(x, Device()))));
    }
  for (const auto& item : own)
    if (!state_entry(item.key())) state.insert(item.key(), *item);
  return state;
}

void ZeroRedundancyOptimizer::load_state_dict(const optim::StateDict& state) {
  const OpContext context("ZeroRedundancyOptimizer::load_state_dict");
  const size_t count = flat_.names().size();
  std::map<std::string, std::vector<Array>> entries;
  optim::StateDict own("Key");
  for (const auto& item : state) {
    const auto entry = state_entry(item.key());
    if (!entry) {
      own.insert(item.key(), *item);
      continue;
    }
    GRADUS_CHECK(entry->parameter < count, ValueError, "the state has '", item.key(), "', but there are ", count,
                 " parameters");
    std::vector<Array>& arrays = entries[entry->name];
    arrays.resize(count);
    arrays[entry->parameter] = item->array();
  }
  for (const auto& [name, arrays] : entries) {
    bool is_whole = true;
    for (size_t i = 0; i < count; ++i) {
      GRADUS_CHECK(arrays[i].defined(), ValueError, "the state has no 'state.", i, ".", name, "', of '",
                   flat_.names()[i], "'");
      is_whole = is_whole && arrays[i].shape() == flat_.places()[i].shape;
    }
    own.insert("state.0." + name, Tensor(is_whole ? flat_.part_like(arrays) : arrays[0]));
  }
  local_->load_state_dict(own);
}

}  // namespace gradus::dist
