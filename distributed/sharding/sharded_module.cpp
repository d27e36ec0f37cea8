#include <gradus/distributed/sharding/sharded_module.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/core/ops/ops.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/random.h>
#include <gradus/optim/clip_grad.h>

namespace gradus::dist {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cut, size, length, dim, blocks, layout)

namespace {

using nlohmann::json;

constexpr const char* kSave = "gradus:save";  // metadata key for the number of the save
constexpr const char* kOptimizer = "optimizer.";

std::string rank_file(const std::string& folder, int64_t rank, const std::string& save) {
  return folder + "/rank_" + std::to_string(rank) + "." + save + ".safetensors";
}
std::string index_file(const std::string& folder) { return folder + "/index.json"; }

/// Calls `write`. If it fails on any rank, all ranks get an error.
void write_on_all_ranks(ProcessGroup& group, Device device, const std::function<void()>& write) {
  std::exception_ptr failure;
  try {
    write();
  } catch (...) { failure = std::current_exception(); }
  const Array failures = ops::full({1}, failure ? 1 : 0, DType::i64, device);
  group.all_reduce(failures);
  if (failure) std::rethrow_exception(failure);
  GRADUS_CHECK(ops::item(failures).to<int64_t>() == 0, IoError, "another rank could not write its part");
}

/// Removes the files of earlier saves. Files that cannot be removed stay.
void remove_other_saves(const std::string& folder, const std::string& save) {
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("rank_") && name.ends_with(".safetensors") && !name.ends_with("." + save + ".safetensors"))
      std::filesystem::remove(file.path(), ignored);
  }
}

/// How a parameter is divided. Optimizer state with the parameter's shape is divided in the same way.
std::optional<Cut> cut_of(const Tensor& parameter, const std::vector<CheckpointEntry>& entries) {
  const auto found = std::ranges::find_if(entries, [&](const CheckpointEntry& entry) {
    return entry.array.data() == parameter.array().data() && entry.array.shape() == parameter.sizes();
  });
  return found == entries.end() ? std::nullopt : found->cut;
}

std::string text_of(const std::optional<Cut>& cut) {
  if (!cut) return "whole";
  return std::to_string(cut->blocks) + " x " + std::to_string(cut->size) + " cut along dimension " +
         std::to_string(cut->dim) + (cut->layout.empty() ? "" : " as " + cut->layout);
}

/// What the index of a checkpoint says.
struct Index {
  std::string save;
  int64_t ranks = 0;
  std::map<std::string, std::optional<Cut>> cuts;
};

Index read_index(const std::string& path) {
  const io::Bytes bytes = io::read_file(path);
  const json index = json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  try {
    Index read{index.at("save").get<std::string>(), index.at("ranks").get<int64_t>(), {}};
    GRADUS_CHECK(0 < read.ranks && read.ranks <= 1 << 20, IoError, path, ": it is for ", read.ranks, " ranks");
    GRADUS_CHECK(read.save.find('/') == std::string::npos, IoError, path, ": a save '", read.save, "'");
    for (const auto& [name, described] : index.at("tensors").items()) {
      std::optional<Cut>& cut = read.cuts[name];
      if (described.is_null()) continue;
      cut = described.get<Cut>();
      // A part is at most as long as the whole, plus up to 64 elements of padding.
      GRADUS_CHECK(0 < cut->length && cut->length - 64 <= cut->size && (cut->size - 1) / read.ranks < cut->length,
                   IoError, path, ": ", read.ranks, " parts of ", cut->length, " are not the ", cut->size, " of '",
                   name, "'");
    }
    return read;
  } catch (const json::exception& error) {
    GRADUS_FAIL(IoError, path, ": not the index of a sharded checkpoint: ", error.what());
  }
}

/// Reads the parts for rank `rank`. An entry without an array gets the shape with which it was saved.
std::map<std::string, Array> read_parts(const std::string& folder, const Index& index, int rank,
                                        const std::vector<CheckpointEntry>& entries) {
  std::map<std::string, Array> arrays;
  for (int64_t r = 0; r < index.ranks; ++r) {
    const auto part_of_file = [&](const CheckpointEntry& entry) {
      if (!entry.cut) return std::pair<int64_t, int64_t>{0, 0};
      const int64_t length = index.cuts.at(entry.name)->length, own = entry.cut->length;
      return std::pair{std::max(r * length, rank * own),
                       std::min({(r + 1) * length, (rank + 1) * own, entry.cut->size})};
    };
    const bool needed = std::ranges::any_of(entries, [&](const CheckpointEntry& entry) {
      const auto [begin, end] = part_of_file(entry);
      return begin < end;
    });
    if (r > 0 && !needed) continue;
    const std::string path = rank_file(folder, r, index.save);
    const io::Safetensors file = io::load_safetensors_with_metadata(path);
    const auto save = file.metadata.find(kSave);
    GRADUS_CHECK(save != file.metadata.end() && save->second == index.save, IoError, path,
                 ": it does not belong to save ", index.save);
    for (const CheckpointEntry& entry : entries) {
      const auto [begin, end] = part_of_file(entry);
      if (r > 0 && begin >= end) continue;
      const auto found = file.tensors.find(entry.name);
      GRADUS_CHECK(found != file.tensors.end(), IoError, path, ": it has no '", entry.name, "'");
      const Array& from = found->second;
      Array& to = arrays[entry.name];
      const Shape shape = entry.array.defined() ? entry.array.shape() : from.shape();
      Shape expected = shape;
      const int64_t saved = entry.cut ? index.cuts.at(entry.name)->length : 0;
      if (entry.cut && from.ndim() == shape.size()) {  // the file has the part with its padding or without it
        const int64_t blocks = entry.cut->blocks, whole = from.shape()[entry.cut->dim];
        const int64_t least = std::clamp<int64_t>(entry.cut->size - r * saved, 0, saved);
        expected[entry.cut->dim] = whole == blocks * least ? whole : blocks * saved;
      }
      GRADUS_CHECK(from.shape() == expected, IoError, path, ": '", entry.name, "' has shape ", from.shape(),
                   ", but the net's ", shape, entry.cut ? ", of which the index says parts of " : "",
                   entry.cut ? std::to_string(saved) : "");
      if (!entry.cut) {
        to = from;
        continue;
      }
      if (!to.defined()) to = ops::zeros(shape, from.dtype());
      const auto& [size, length, dim, blocks, layout] = *entry.cut;
      for (int64_t block = 0; block < blocks && begin < end; ++block) {
        const int64_t there = block * (from.shape()[dim] / blocks) - r * saved;
        const int64_t here = block * (shape[dim] / blocks) - rank * length;
        ops::copy_into(to.slice(dim, here + begin, here + end), from.slice(dim, there + begin, there + end));
      }
    }
  }
  return arrays;
}

}  // namespace

std::optional<StateEntry> state_entry(const std::string& key) {
  size_t parameter = 0;
  int length = 0;
  if (std::sscanf(key.c_str(), "state.%zu.%n", &parameter, &length) != 1 || length == 0) return std::nullopt;
  return StateEntry{parameter, key.substr(static_cast<size_t>(length))};
}

void save_sharded_checkpoint(const std::string& folder, ProcessGroup& group, Device device,
                             std::vector<CheckpointEntry> entries, const optim::StateDict& state,
                             const TensorList& parameters) {
  const Array id = ops::full({1}, std::chrono::system_clock::now().time_since_epoch().count(), DType::i64, device);
  group.broadcast(id, 0);
  const std::string save = std::to_string(ops::item(id).to<int64_t>());
  for (const auto& item : state) {
    const auto entry = state_entry(item.key());
    const bool is_part = entry && item->sizes() == parameters.at(entry->parameter).sizes();
    entries.push_back({kOptimizer + item.key(), item->array(),
                       is_part ? cut_of(parameters[entry->parameter], entries) : std::nullopt});
  }
  std::vector<std::pair<std::string, Array>> own;
  json index = {{"save", save}, {"ranks", group.size()}, {"tensors", json::object()}};
  for (const auto& [name, array, cut] : entries) {
    if (cut || group.rank() == 0) own.emplace_back(name, array);
    json& described = index["tensors"][name];
    if (cut) described = *cut;
  }
  write_on_all_ranks(group, device, [&] {
    std::filesystem::create_directories(folder);
    io::save_safetensors(rank_file(folder, group.rank(), save), own, {{kSave, save}});
  });
  write_on_all_ranks(group, device, [&] {
    if (group.rank() != 0) return;
    io::write_file(index_file(folder), index.dump(1) + "\n");
    remove_other_saves(folder, save);
  });
}

void load_sharded_checkpoint(const std::string& folder, int rank, const std::vector<CheckpointEntry>& entries,
                             const TensorList& parameters,
                             const std::function<void(const optim::StateDict&)>& load_state) {
  const std::string path = index_file(folder);
  const Index index = read_index(path);
  std::vector<CheckpointEntry> wanted = entries;
  for (const auto& [name, cut] : index.cuts) {
    if (!name.starts_with(kOptimizer)) {
      GRADUS_CHECK(std::ranges::find(entries, name, &CheckpointEntry::name) != entries.end(), IoError, path,
                   ": it has '", name, "', which this net does not have");
      continue;
    }
    if (!load_state) continue;
    const auto entry = state_entry(name.substr(std::string(kOptimizer).size()));
    GRADUS_CHECK(!cut || (entry && entry->parameter < parameters.size()), IoError, path, ": '", name,
                 "' belongs to none of the ", parameters.size(), " parameters");
    if (cut)
      wanted.push_back({name, parameters[entry->parameter].array(), cut_of(parameters[entry->parameter], entries)});
    else wanted.push_back({name, Array()});
  }
  for (const CheckpointEntry& entry : wanted) {
    const auto found = index.cuts.find(entry.name);
    GRADUS_CHECK(found != index.cuts.end(), IoError, path, ": it has no '", entry.name, "'");
    GRADUS_CHECK(text_of(found->second) == text_of(entry.cut), IoError, path, ": '", entry.name, "' is ",
                 text_of(found->second), ", but in this net ", text_of(entry.cut));
  }
  const std::map<std::string, Array> arrays = read_parts(folder, index, rank, wanted);
  optim::StateDict state("Key");
  for (size_t i = entries.size(); i < wanted.size(); ++i)
    state.insert(wanted[i].name.substr(std::string(kOptimizer).size()), Tensor(arrays.at(wanted[i].name)));
  if (!state.is_empty()) load_state(state);
  for (const CheckpointEntry& entry : entries)
    ops::copy_into(entry.array, ops::to_device(arrays.at(entry.name), entry.array.device()));
}

namespace {

/// The sharded modules of a net by the prefixes of their names, such as "blocks.1.". A module that is used at several
/// places has several prefixes.
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
  const TensorList parameters = net.parameters();
  GRADUS_CHECK(!parameters.empty(), ValueError, net.name(), " has no parameters");
  return parameters[0].device();
}

TensorList parameters_of(const optim::Optimizer* optimizer) {
  return optimizer ? optimizer->parameters() : TensorList();
}

/// Fills `part` as draw_uniform_part() does, with element(state, n) as element n of the whole matrix.
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

Tensor norm_over_ranks(const TensorList& gradients, double norm_type, ProcessGroup& group, Device device) {
  const bool largest = std::isinf(norm_type);
  const Tensor norm = nn::utils::get_total_norm(gradients, norm_type), own = norm.to(device).to(kDouble);
  const Tensor part = (largest ? own : own.pow(norm_type)).clone();
  group.all_reduce(part.array(), largest ? ReduceKind::max : ReduceKind::sum);
  return (largest ? part : part.pow(1 / norm_type)).to(norm.dtype());
}

Tensor clip_grad_norm_(const nn::Module& net, const GroupPtr& group, double max_norm, double norm_type) {
  const OpContext context("clip_grad_norm_");
  GRADUS_CHECK(group, ValueError, "the process group is null");
  const NoGradGuard no_grad;
  const auto parts = parts_of(net);
  TensorList all, counted;  // tensors that are whole on every rank are counted on rank 0 only
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
  TensorList owners;
  for (const Tensor& gradient : all) owners.emplace_back(gradient.array()).mutable_grad() = gradient;
  nn::utils::clip_grads_with_norm_(owners, max_norm, norm);
  return norm;
}

void save_sharded(const std::string& folder, const nn::Module& net, const GroupPtr& group,
                  const optim::Optimizer* optimizer) {
  const OpContext context("save_sharded");
  GRADUS_CHECK(group, ValueError, "the process group is null");
  save_sharded_checkpoint(folder, *group, device_of(net), entries_of(net),
                          optimizer ? optimizer->state_dict() : optim::StateDict("Key"), parameters_of(optimizer));
}

void load_sharded(const std::string& folder, const nn::Module& net, const GroupPtr& group,
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
