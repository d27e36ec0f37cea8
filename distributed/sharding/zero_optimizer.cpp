#include <gradus/distributed/sharding/zero_optimizer.h>

#include <map>

#include <gradus/autograd/ops/creation.h>
#include <gradus/core/ops/ops.h>

namespace gradus::dist {

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(nn::Module& module, GroupPtr group, const Make& make)
    : module_(module), flat_(trained_parameters(module), std::move(group), {.keep_whole = true}),
      parts_(flat_.own_parts()),
      watched_(module, {.wrapper = "ZeroRedundancyOptimizer", .may_freeze = true, .may_move = true}) {
  if (parts_.empty()) parts_.push_back({0, 0, 0, 0});
  for (const FlatParameter::OwnPart& part : parts_) {
    shards_.emplace_back(flat_.shard().array().slice(0, part.begin, part.begin + part.count));
    shards_.back().set_requires_grad(true);
  }
  local_ = make(shards_);
  GRADUS_CHECK(local_ && local_->size() == shards_.size(), ValueError,
               "ZeroRedundancyOptimizer: `make` has to give the ", shards_.size(),
               " parts, and nothing else, to an optimizer");
}

void ZeroRedundancyOptimizer::step() {
  const OpContext context("ZeroRedundancyOptimizer::step");
  watched_.check(*flat_.group());
  flat_.check_places();
  for (size_t k = 0; k < parts_.size(); ++k) {
    const auto [i, first, begin, count] = parts_[k];
    const Tensor gradient = flat_.parameters()[i].grad();
    shards_[k].mutable_grad() = gradient.defined()
                                    ? Tensor(flat_.in_line(i, gradient.array()).slice(0, first, first + count))
                                    : zeros_like(shards_[k].detach());
  }
  local_->step();
  local_->zero_grad();
  flat_.gather();
}

void ZeroRedundancyOptimizer::zero_grad() {
  for (const Tensor& parameter : flat_.parameters()) parameter.zero_grad();
}

optim::StateDict ZeroRedundancyOptimizer::shard_state() const {
  optim::StateDict state("Key");
  for (const auto& item : local_->state_dict()) {
    const auto entry = state_entry(item.key());
    const std::string key = entry ? "state.0." + entry->name : item.key();
    const bool is_line = entry && item->sizes() == shards_.at(entry->parameter).sizes();
    if (!state.contains(key))
      state.insert(key, is_line ? Tensor(ops::zeros({flat_.shard_numel()}, item->dtype(), item->device())) : *item);
    if (!is_line) continue;
    const FlatParameter::OwnPart& part = parts_[entry->parameter];
    ops::copy_into(state[key].array().slice(0, part.begin, part.begin + part.count), item->array());
  }
  return state;
}

void ZeroRedundancyOptimizer::load_shard_state(const optim::StateDict& state) {
  optim::StateDict own("Key");
  for (const auto& item : state) {
    const auto entry = state_entry(item.key());
    if (!entry) own.insert(item.key(), *item);
    for (size_t k = 0; entry && k < parts_.size(); ++k) {
      const FlatParameter::OwnPart& part = parts_[k];
      const bool is_line = item->sizes() == flat_.shard().sizes();
      own.insert("state." + std::to_string(k) + "." + entry->name,
                 is_line ? Tensor(ops::clone(item->array().slice(0, part.begin, part.begin + part.count))) : *item);
    }
  }
  local_->load_state_dict(own);
}

optim::StateDict ZeroRedundancyOptimizer::state_dict() const {
  const OpContext context("ZeroRedundancyOptimizer::state_dict");
  const optim::StateDict own = shard_state();
  std::map<std::string, std::vector<Array>> whole;
  for (const auto& item : own)
    if (item->sizes() == flat_.shard().sizes()) whole[item.key()] = flat_.gather_like(item->array());
  optim::StateDict state("Key");
  for (size_t i = 0; i < flat_.names().size(); ++i)
    for (const auto& item : own) {
      const auto entry = state_entry(item.key());
      if (!entry) continue;
      const auto found = whole.find(item.key());
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
  load_shard_state(own);
}

std::vector<CheckpointEntry> ZeroRedundancyOptimizer::checkpoint_entries() const {
  std::vector<CheckpointEntry> entries = {{"shard", flat_.shard().array(), flat_.cut()}};
  for (const auto& item : module_.state_dict())  // adds what is not sharded: frozen parameters and buffers
    if (std::ranges::find(flat_.parameters(), item->data_ptr(), [](const Tensor& x) { return x.data_ptr(); }) ==
        flat_.parameters().end())
      entries.push_back({"whole." + item.key(), item->array()});
  return entries;
}

void ZeroRedundancyOptimizer::save(const std::string& folder) const {
  const OpContext context("ZeroRedundancyOptimizer::save");
  save_sharded_checkpoint(folder, *flat_.group(), flat_.shard().device(), checkpoint_entries(), shard_state(),
                          {flat_.shard()});
}

void ZeroRedundancyOptimizer::load(const std::string& folder) {
  const OpContext context("ZeroRedundancyOptimizer::load");
  const NoGradGuard no_grad;
  load_sharded_checkpoint(folder, flat_.group()->rank(), checkpoint_entries(), {flat_.shard()},
                          [&](const optim::StateDict& state) { load_shard_state(state); });
  flat_.gather();
}

}  // namespace gradus::dist
