#include <gradus/distributed/sharding/zero_optimizer.h>

#include <map>
#include <utility>

#include <gradus/core/ops/elementwise.h>

namespace gradus::dist {
namespace {

OrderedDict<std::string, Tensor> trained(const nn::Module& module) {
  OrderedDict<std::string, Tensor> parameters("Parameter");
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) parameters.insert(item.key(), item.value());
  return parameters;
}

/// "exp_avg" of "state.3.exp_avg", and 3.
std::pair<std::string, size_t> entry_of(const std::string& key) {
  size_t number = 0;
  int length = 0;
  if (std::sscanf(key.c_str(), "state.%zu.%n", &number, &length) != 1 || length == 0) return {};
  return {key.substr(static_cast<size_t>(length)), number};
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
    if (const auto [entry, number] = entry_of(item.key()); !entry.empty() && item->sizes() == flat_.shard().sizes())
      whole[entry] = flat_.gather_like(item->array());
  optim::StateDict state("Key");
  for (size_t i = 0; i < flat_.names().size(); ++i)
    for (const auto& item : own) {
      const auto [entry, number] = entry_of(item.key());
      if (entry.empty()) continue;
      const auto found = whole.find(entry);
      const Array& x = found == whole.end() ? item->array() : found->second[i];
      state.insert("state." + std::to_string(i) + "." + entry, Tensor(ops::clone(ops::to_device(x, Device()))));
    }
  for (const auto& item : own)
    if (entry_of(item.key()).first.empty()) state.insert(item.key(), *item);
  return state;
}

void ZeroRedundancyOptimizer::load_state_dict(const optim::StateDict& state) {
  const OpContext context("ZeroRedundancyOptimizer::load_state_dict");
  const size_t count = flat_.names().size();
  std::map<std::string, std::vector<Array>> entries;
  optim::StateDict own("Key");
  for (const auto& item : state) {
    const auto [entry, number] = entry_of(item.key());
    if (entry.empty()) own.insert(item.key(), *item);
    else {
      GRADUS_CHECK(number < count, ValueError, "the state has '", item.key(), "', but there are ", count,
                   " parameters");
      entries[entry].resize(count);
      entries[entry][number] = item->array();
    }
  }
  for (const auto& [entry, arrays] : entries) {
    bool is_whole = true;
    for (size_t i = 0; i < count; ++i) {
      GRADUS_CHECK(arrays[i].defined(), ValueError, "the state has no 'state.", i, ".", entry, "', of '",
                   flat_.names()[i], "'");
      is_whole = is_whole && arrays[i].shape() == flat_.places()[i].shape;
    }
    own.insert("state.0." + entry, Tensor(is_whole ? flat_.part_like(arrays) : arrays[0]));
  }
  local_->load_state_dict(own);
}

}  // namespace gradus::dist
