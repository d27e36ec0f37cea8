#include <gradus/distributed/sharding/sharded_module.h>

#include <cmath>
#include <map>
#include <set>

#include <gradus/autograd/autograd.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/random.h>
#include <gradus/optim/clip_grad.h>

namespace gradus::dist {
namespace {

/// The sharded modules of a net by the prefixes of their names, such as "blocks.1.". A module may have several.
using ShardedModules = std::map<std::string, const ShardedModule*>;
ShardedModules sharded_modules(const nn::Module& net, const std::string& prefix = "") {
  ShardedModules found;
  if (const auto* module = dynamic_cast<const ShardedModule*>(&net)) found[prefix] = module;
  for (const auto& child : net.named_children())
    found.merge(sharded_modules(*child.value(), prefix + child.key() + "."));
  return found;
}

/// The divided tensors of a net, by their names in its state dict.
std::map<std::string, ShardedModule::Part> parts_of(const nn::Module& net) {
  std::map<std::string, ShardedModule::Part> parts;
  for (const auto& [prefix, module] : sharded_modules(net))
    for (ShardedModule::Part part : module->parts()) {
      part.checkpoint_name = prefix + part.checkpoint_name;
      parts[prefix + part.name] = std::move(part);
    }
  return parts;
}

std::vector<CheckpointEntry> entries_of(const nn::Module& net) {
  const auto parts = parts_of(net);
  std::vector<CheckpointEntry> entries;
  for (const auto& item : net.state_dict()) {
    const auto part = parts.find(item.key());
    if (part == parts.end()) entries.push_back({item.key(), item->array()});
    else entries.push_back({part->second.checkpoint_name, item->array(), part->second.cut});
  }
  return entries;
}

Device device_of(const nn::Module& net) {
  const std::vector<Tensor> parameters = net.parameters();
  GRADUS_CHECK(!parameters.empty(), ValueError, net.name(), " has no parameters");
  return parameters[0].device();
}

std::vector<Tensor> parameters_of(const optim::Optimizer* optimizer) {
  return optimizer ? optimizer->parameters() : std::vector<Tensor>();
}

/// element(state, n) is element n of the draw for the whole matrix.
template <class Element>
void draw_part(const Tensor& part, int64_t whole_columns, int64_t first_column, const RowOf& row_of,
               const Element& element) {
  const RandomState state = default_generator().next();
  const int64_t columns = part.size(1);
  float* numbers = part.data_ptr<float>();
  parallel_for(part.size(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = row_of(i) * whole_columns + first_column;
      for (int64_t j = 0; j < columns; ++j) numbers[i * columns + j] = element(state, static_cast<uint64_t>(first + j));
    }
  });
}

}  // namespace

Tensor norm_over_ranks(const std::vector<Tensor>& gradients, double norm_type, ProcessGroup& group, Device device) {
  const bool largest = std::isinf(norm_type);
  const Tensor norm = nn::utils::get_total_norm(gradients, norm_type), own = norm.to(device).to(kDouble);
  const Tensor part = (largest ? own : own.pow(norm_type)).clone();
  group.all_reduce(part.array(), largest ? ReduceKind::max : ReduceKind::sum);
  return (largest ? part : part.pow(1 / norm_type)).to(norm.dtype());
}

Tensor clip_grad_norm_(const nn::Module& net, const std::shared_ptr<ProcessGroup>& group, double max_norm,
                       double norm_type) {
  const OpContext context("clip_grad_norm_");
  GRADUS_CHECK(group, ValueError, "the process group is null");
  const NoGradGuard no_grad;
  const auto parts = parts_of(net);
  std::vector<Tensor> all, counted;  // tensors that are whole on every rank count on rank 0 only
  for (const auto& item : net.named_parameters()) {
    if (!item->grad().defined()) continue;
    all.push_back(item->grad());
    if (parts.contains(item.key()) || group->rank() == 0) counted.push_back(item->grad());
  }
  std::set<const ShardedModule*> seen;
  for (const auto& [prefix, module] : sharded_modules(net)) {
    if (!seen.insert(module).second) continue;
    for (const Tensor& gradient : module->part_gradients()) {
      all.push_back(gradient);
      counted.push_back(gradient);
    }
  }
  const Tensor norm = norm_over_ranks(counted, norm_type, *group, device_of(net));
  std::vector<Tensor> owners;
  for (const Tensor& gradient : all) owners.emplace_back(gradient.array()).mutable_grad() = gradient;
  nn::utils::clip_grads_with_norm_(owners, max_norm, norm);
  return norm;
}

void save_sharded(const std::string& folder, const nn::Module& net, const std::shared_ptr<ProcessGroup>& group,
                  const optim::Optimizer* optimizer) {
  const OpContext context("save_sharded");
  GRADUS_CHECK(group, ValueError, "the process group is null");
  save_sharded_checkpoint(folder, *group, device_of(net), entries_of(net),
                          optimizer ? optimizer->state_dict() : optim::StateDict("Key"), parameters_of(optimizer));
}

void load_sharded(const std::string& folder, const nn::Module& net, const std::shared_ptr<ProcessGroup>& group,
                  optim::Optimizer* optimizer) {
  const OpContext context("load_sharded");
  GRADUS_CHECK(group, ValueError, "the process group is null");
  const NoGradGuard no_grad;
  std::function<void(const optim::StateDict&)> load_state;
  if (optimizer) load_state = [&](const optim::StateDict& state) { optimizer->load_state_dict(state); };
  load_sharded_checkpoint(folder, group->rank(), entries_of(net), parameters_of(optimizer), load_state);
}

void draw_uniform_part(const Tensor& part, int64_t whole_columns, int64_t first_column, const RowOf& row_of,
                       double bound) {
  draw_part(part, whole_columns, first_column, row_of, [&](const RandomState& state, uint64_t n) {
    return random_uniform<float>(state.seed, state.offset, n, -bound, bound);
  });
}

void draw_normal_part(const Tensor& part, const RowOf& row_of) {
  draw_part(part, part.size(1), 0, row_of, [&](const RandomState& state, uint64_t n) {
    return random_normal<float>(state.seed, state.offset, n, 0, 1);
  });
}

}  // namespace gradus::dist
