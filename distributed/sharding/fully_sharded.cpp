#include <gradus/distributed/sharding/fully_sharded.h>

#include <algorithm>

#include <gradus/autograd/autograd.h>
#include <gradus/core/ops/ops.h>
#include <gradus/optim/clip_grad.h>

namespace gradus::dist {

FullyShardedDataParallel::FullyShardedDataParallel(nn::Module& module, GroupPtr group,
                                                   FullyShardedDataParallelOptions options)
    : module_(module), group_(std::move(group)), options_(std::move(options)) {
  const OpContext context("FullyShardedDataParallel");
  GRADUS_CHECK(group_, ValueError, "the process group is null");
  const std::optional<DType>& dtype = options_.param_dtype();
  GRADUS_CHECK(!dtype || *dtype == kBFloat16, DTypeError, "param_dtype takes kBFloat16, not ", dtype.value_or(kFloat));
  check_same_on_all_ranks(*group_, module);
  const auto all = module.named_parameters();
  device_ = all[0].value().device();
  for (const auto& item : all) broadcast_from_first(*group_, item.value().array());
  for (const Tensor& buffer : module.buffers()) broadcast_from_first(*group_, buffer.array());
  make_units(module);
  watched_.emplace(module, WatchedNetOptions{.wrapper = "FullyShardedDataParallel", .may_move = true});
}

FullyShardedDataParallel::~FullyShardedDataParallel() {
  for (const Unit& unit : units_) {
    for (const unsigned id : unit.module_hooks) unit.module->remove_hook(id);
    for (size_t i = 0; i < unit.parameter_hooks.size(); ++i)
      unit.flat->parameters()[i].remove_hook(unit.parameter_hooks[i]);
  }
}

void FullyShardedDataParallel::make_units(nn::Module& module) {
  const auto is_unit = [&](const std::string& name, const nn::Module& part) {
    return options_.is_unit() ? options_.is_unit()(name, part) : name.find('.') == std::string::npos;
  };
  units_.emplace_back("", module);
  for (const auto& item : module.named_modules("", false))
    if (is_unit(item.key(), *item.value())) units_.emplace_back(item.key(), *item.value());

  // A parameter belongs to the innermost unit that contains it. If several units that are not nested contain it, it
  // belongs to the net's own unit.
  const auto contains = [](const Unit& outer, const Unit& inner) {
    return outer.name.empty() || inner.name.starts_with(outer.name + ".") || inner.name == outer.name;
  };
  std::map<const void*, std::string> names;
  for (const auto& item : trained_parameters(module)) names[item->data_ptr()] = item.key();
  for (const auto& item : module.state_dict())
    if (const auto found = names.find(item.value().data_ptr()); found != names.end()) keys_[item.key()] = found->second;
  std::map<const void*, size_t> unit_of;
  for (size_t u = 0; u < units_.size(); ++u)
    for (const Tensor& parameter : units_[u].module->parameters()) {
      const auto found = unit_of.find(parameter.impl());
      const bool inner = found == unit_of.end() || contains(units_[found->second], units_[u]);
      unit_of[parameter.impl()] = inner ? u : 0;
    }
  std::vector<OrderedDict<std::string, Tensor>> parameters(units_.size(),
                                                           OrderedDict<std::string, Tensor>("Parameter"));
  for (const auto& item : trained_parameters(module)) parameters[unit_of.at(item->impl())].insert(item.key(), *item);

  FlatParameterOptions options = {.keep_whole = options_.sharding_strategy() == ShardingStrategy::shard_grad_op,
                                  .dtype = options_.param_dtype(),
                                  .strict = options_.strict()};
  if (options_.cpu_offload()) options.home = Device();
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    if (!parameters[u].is_empty()) unit.flat = std::make_unique<FlatParameter>(parameters[u], group_, options);
    unit.module_hooks = {
        unit.module->register_forward_pre_hook(
            [this, u](nn::Module&, TensorList& inputs) { before_forward(u, inputs); }),
        unit.module->register_forward_hook(
            [this, u](nn::Module&, const TensorList&, TensorList& outputs) { after_forward(u, outputs); })};
    if (!unit.flat) continue;
    for (const Tensor& parameter : unit.flat->parameters())
      unit.parameter_hooks.push_back(
          parameter.register_post_accumulate_grad_hook([this, u](const Tensor&) { on_gradient(u); }));
  }
}

TensorList FullyShardedDataParallel::parameters() const {
  TensorList shards;
  for (const Unit& unit : units_)
    if (unit.flat) shards.push_back(unit.flat->shard());
  return shards;
}

FlatParameter* FullyShardedDataParallel::neighbour(size_t unit, int step) {
  const auto found = std::find(order_.begin(), order_.end(), unit);
  if (found == order_.end()) return nullptr;
  for (auto at = found - order_.begin() + step; at >= 0 && at < std::ssize(order_); at += step)
    if (Unit& next = units_[order_[static_cast<size_t>(at)]]; next.flat) return next.flat.get();
  return nullptr;
}

void FullyShardedDataParallel::before_forward(size_t u, TensorList& inputs) {
  Unit& unit = units_[u];
  if (u == 0 && options_.param_dtype())
    for (Tensor& input : inputs)
      if (input.defined() && input.is_floating_point()) input = input.to(*options_.param_dtype());
  if (std::find(order_.begin(), order_.end(), u) == order_.end()) order_.push_back(u);
  if (!unit.flat) return;
  unit.flat->gather();
  if (!autograd::is_recomputing())
    if (FlatParameter* next = neighbour(u, 1)) next->begin_gather();
}

void FullyShardedDataParallel::after_forward(size_t u, const TensorList& outputs) {
  Unit& unit = units_[u];
  if (autograd::is_recomputing()) return;  // backward needs the parameters next, so they are not released
  bool recorded = false;
  for (const Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    recorded = true;
    output.register_hook([this, u](const Tensor&) {
      before_backward(u);
      return Tensor();
    });
  }
  if (recorded) ++unit.calls;
  if (unit.flat && (u != 0 || !recorded)) unit.flat->release();
}

void FullyShardedDataParallel::begin_pass() {
  if (in_pass_) return;
  watched_->check(*group_);
  in_pass_ = true;
  at_end_of_backward(
      group_, device_, [this] { finish_pass(); }, [this] { in_pass_ = false; });
}

void FullyShardedDataParallel::before_backward(size_t u) {
  const OpContext context("FullyShardedDataParallel");
  begin_pass();
  Unit& unit = units_[u];
  if (!unit.flat || unit.reduced) return;
  if (!options_.overlap_reduce()) finish_reduce();
  unit.flat->gather();
  if (!unit.flat->has_bound_gradients()) unit.flat->bind_gradients();
  if (FlatParameter* next = neighbour(u, -1)) next->begin_gather();
}

void FullyShardedDataParallel::on_gradient(size_t u) {
  const OpContext context("FullyShardedDataParallel");
  begin_pass();
  Unit& unit = units_[u];
  // A unit that forward called twice gets its gradients twice. It is therefore reduced at the end of the pass.
  if (++unit.arrived == unit.flat->parameters().size() && unit.calls <= 1 && unit.flat->has_bound_gradients())
    reduce(unit);
}

void FullyShardedDataParallel::reduce(Unit& unit) {
  finish_reduce();  // so that only one line of gradients is being sent while the next one fills
  if (!unit.flat->has_bound_gradients()) unit.flat->bind_gradients();
  unit.flat->begin_reduce();
  unit.flat->release();
  unit.reduced = true;
  reducing_ = &unit;
}

void FullyShardedDataParallel::finish_reduce() {
  if (reducing_ != nullptr) std::exchange(reducing_, nullptr)->flat->finish_reduce();
}

void FullyShardedDataParallel::finish_pass() {
  const OpContext context("FullyShardedDataParallel");
  for (const size_t u : order_)
    if (Unit& unit = units_[u]; unit.flat && unit.calls > 0 && !unit.reduced) reduce(unit);
  finish_reduce();
  for (Unit& unit : units_) {
    if (unit.flat) unit.flat->release();
    unit.calls = unit.arrived = 0;
    unit.reduced = false;
  }
  in_pass_ = false;
}

Tensor FullyShardedDataParallel::clip_grad_norm_(double max_norm, double norm_type) {
  const OpContext context("FullyShardedDataParallel::clip_grad_norm_");
  const NoGradGuard no_grad;
  TensorList gradients;
  for (const Tensor& shard : parameters())
    if (shard.grad().defined()) gradients.push_back(shard.grad());
  const Tensor total = norm_over_ranks(gradients, norm_type, *group_, device_);
  nn::utils::clip_grads_with_norm_(parameters(), max_norm, total);
  return total;
}

// ---- Saving ----

nn::StateDict FullyShardedDataParallel::full_state_dict() {
  const OpContext context("FullyShardedDataParallel::full_state_dict");
  std::map<std::string, Array> values;
  for (const Unit& unit : units_) {
    if (!unit.flat) continue;
    const std::vector<Array> arrays = unit.flat->gather_like(unit.flat->shard().array());
    for (size_t i = 0; i < arrays.size(); ++i)
      values[unit.flat->names()[i]] = ops::clone(ops::to_device(arrays[i], Device()));
  }
  nn::StateDict state("Key");
  for (const auto& item : module_.state_dict()) {
    const auto key = keys_.find(item.key());
    const bool is_sharded = key != keys_.end();  // otherwise a frozen parameter or a buffer
    state.insert(item.key(),
                 Tensor(is_sharded ? values.at(key->second) : ops::clone(ops::to_device(item->array(), Device()))));
  }
  return state;
}

void FullyShardedDataParallel::load_full_state_dict(const nn::StateDict& state) {
  const OpContext context("FullyShardedDataParallel::load_full_state_dict");
  const NoGradGuard no_grad;
  const nn::StateDict own = module_.state_dict();
  std::map<std::string, Array> values;
  for (const auto& item : own) {
    const Tensor* const source = state.find(item.key());
    GRADUS_CHECK(source && source->defined(), ValueError, "the state has no '", item.key(), "'");
    GRADUS_CHECK(source->sizes() == item->sizes(), ShapeError, "'", item.key(), "' has shape ", source->sizes(),
                 " in the state, ", item->sizes(), " in the net");
    if (const auto key = keys_.find(item.key()); key != keys_.end()) values[key->second] = source->array();
  }
  for (const auto& item : state)
    GRADUS_CHECK(own.contains(item.key()), ValueError, "the net has no '", item.key(), "', which the state has");
  for (const Unit& unit : units_) {
    if (!unit.flat) continue;
    std::vector<Array> arrays;
    for (const std::string& name : unit.flat->names()) arrays.push_back(values.at(name));
    ops::copy_into(unit.flat->shard().array(), unit.flat->part_like(arrays));
  }
  for (const auto& item : own)
    if (!keys_.contains(item.key())) ops::copy_into(item->array(), state[item.key()].array());  // is not sharded
}

std::vector<CheckpointEntry> FullyShardedDataParallel::checkpoint_entries() const {
  std::vector<CheckpointEntry> entries;
  for (const Unit& unit : units_)
    if (unit.flat) entries.push_back({"unit." + unit.name, unit.flat->shard().array(), unit.flat->cut()});
  for (const auto& item : module_.state_dict())
    if (!keys_.contains(item.key())) entries.push_back({"whole." + item.key(), item->array()});  // is not sharded
  return entries;
}

void FullyShardedDataParallel::save(const std::string& folder, const optim::Optimizer& optimizer) {
  const OpContext context("FullyShardedDataParallel::save");
  save_sharded_checkpoint(folder, *group_, device_, checkpoint_entries(), optimizer.state_dict(), parameters());
}

void FullyShardedDataParallel::load(const std::string& folder, optim::Optimizer& optimizer) {
  const OpContext context("FullyShardedDataParallel::load");
  const NoGradGuard no_grad;
  load_sharded_checkpoint(folder, group_->rank(), checkpoint_entries(), parameters(),
                          [&](const optim::StateDict& state) { optimizer.load_state_dict(state); });
}

}  // namespace gradus::dist
