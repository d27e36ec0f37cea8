// FullyShardedDataParallel::save and load: one safetensors file a rank, and an index.
//
//   index.json             {"save": id, "ranks": 2, "units": [{"name": "fc1", "shard": 400, "parameters": [
//                             {"name": "fc1.weight", "shape": [20, 30], "strides": [30, 1], "begin": 0}, …]}, …]}
//   rank_0.safetensors     "unit.fc1": 400 elements of the line of parameters, the first shard;
//                          "optimizer.state.0.exp_avg": the same of its state; and what all ranks have:
//                          "optimizer.state.0.step", "whole.bn.running_mean"
//   rank_1.safetensors     the second shards
//
// A shard of another number of ranks is a range of the same line, so it is read from the files that hold parts of it.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include <gradus/core/io/file.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/core/ops/creation.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/distributed/sharding/fully_sharded.h>
#include <gradus/distributed/sharding/state_entry.h>

namespace gradus::dist {
namespace {

using nlohmann::json;

constexpr const char* kSave = "gradus:save";  // in each file: of which save it is

std::string rank_file(const std::string& folder, int64_t rank) {
  return folder + "/rank_" + std::to_string(rank) + ".safetensors";
}
std::string index_file(const std::string& folder) { return folder + "/index.json"; }

/// What has to be the same for a shard to be of this unit, whatever the number of ranks.
json layout_of(const FlatParameter& flat) {
  json parameters = json::array();
  for (size_t i = 0; i < flat.names().size(); ++i) {
    const FlatParameter::Place& place = flat.places()[i];
    parameters.push_back({{"name", flat.names()[i]},
                          {"shape", std::vector<int64_t>(place.shape.begin(), place.shape.end())},
                          {"strides", std::vector<int64_t>(place.strides.begin(), place.strides.end())},
                          {"begin", place.begin}});
  }
  return parameters;
}

/// The files of a save, each read when it is first asked for.
class SavedShards {
 public:
  SavedShards(const std::string& folder, const std::string& save, int64_t ranks)
      : folder_(folder), save_(save), files_(static_cast<size_t>(ranks)) {}

  const std::map<std::string, Array>& file(int64_t rank) {
    io::Safetensors& file = files_[static_cast<size_t>(rank)];
    if (!file.metadata.empty()) return file.tensors;
    const std::string path = rank_file(folder_, rank);
    file = io::load_safetensors_with_metadata(path);
    const auto found = file.metadata.find(kSave);
    GRADUS_CHECK(found != file.metadata.end() && found->second == save_, IoError, path, ": it is not of the save that ",
                 index_file(folder_), " describes; was one interrupted?");
    return file.tensors;
  }
  const Array& array(int64_t rank, const std::string& name) {
    const auto found = file(rank).find(name);
    GRADUS_CHECK(found != file(rank).end(), IoError, rank_file(folder_, rank), ": it has no '", name, "'");
    return found->second;
  }
  /// Elements [begin, begin + count) of a line of shards with `length` elements each; 0 behind its end.
  Array range(const std::string& name, int64_t length, int64_t begin, int64_t count) {
    Array part;
    for (int64_t rank = 0; rank < std::ssize(files_); ++rank) {
      const int64_t first = std::max(begin, rank * length), end = std::min(begin + count, (rank + 1) * length);
      if (first >= end) continue;
      const Array& shard = array(rank, name);
      GRADUS_CHECK(shard.shape() == Shape{length}, IoError, rank_file(folder_, rank), ": '", name, "' has shape ",
                   shard.shape(), ", but the index says ", length, " elements");
      if (!part.defined()) part = ops::zeros({count}, shard.dtype());
      ops::copy_into(part.slice(0, first - begin, end - begin),
                     shard.slice(0, first - rank * length, end - rank * length));
    }
    return part.defined() ? part : ops::zeros({count}, array(0, name).dtype());
  }

 private:
  const std::string folder_, save_;
  std::vector<io::Safetensors> files_;
};

}  // namespace

void FullyShardedDataParallel::save(const std::string& folder, const optim::Optimizer& optimizer) {
  const OpContext context("FullyShardedDataParallel::save");
  const bool first = group_->rank() == 0;
  if (first) std::filesystem::create_directories(folder);
  const Array id = ops::full({1}, std::chrono::system_clock::now().time_since_epoch().count(), DType::i64, device_);
  group_->broadcast(id, 0);  // the folder is there, too
  const std::string save = std::to_string(ops::item(id).to<int64_t>());

  std::vector<std::pair<std::string, Array>> tensors;
  json index = {{"save", save}, {"ranks", group_->size()}, {"units", json::array()}};
  for (const Unit& unit : units_) {
    if (!unit.flat) continue;
    tensors.emplace_back("unit." + unit.name, unit.flat->shard().array());
    index["units"].push_back(
        {{"name", unit.name}, {"shard", unit.flat->shard_numel()}, {"parameters", layout_of(*unit.flat)}});
  }
  const std::vector<Tensor> shards = parameters();
  for (const auto& item : optimizer.state_dict()) {
    const auto entry = state_entry(item.key());
    const bool is_part = entry && entry->parameter < shards.size() && item->sizes() == shards[entry->parameter].sizes();
    if (is_part || first) tensors.emplace_back("optimizer." + item.key(), item->array());
  }
  for (const auto& item : module_.state_dict())
    if (const auto key = keys_.find(item.key()); first && (key == keys_.end() || !is_sharded(key->second)))
      tensors.emplace_back("whole." + item.key(), item->array());
  io::save_safetensors(rank_file(folder, group_->rank()), tensors, {{kSave, save}});
  group_->all_reduce(id);  // all have written
  if (first) io::write_file(index_file(folder), index.dump(1) + "\n");
}

void FullyShardedDataParallel::load(const std::string& folder, optim::Optimizer& optimizer) {
  const OpContext context("FullyShardedDataParallel::load");
  const NoGradGuard no_grad;
  const std::string path = index_file(folder);
  const io::Bytes bytes = io::read_file(path);
  const json index = json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  std::string saved;
  int64_t ranks = 0;
  std::vector<int64_t> lengths;  // of the saved shards
  try {
    saved = index.at("save").get<std::string>();
    ranks = index.at("ranks").get<int64_t>();
    GRADUS_CHECK(0 < ranks && ranks <= 1 << 20, IoError, path, ": it is of ", ranks, " ranks");
    size_t next = 0;
    for (const Unit& unit : units_) {
      if (!unit.flat) continue;
      const json& described = index.at("units").at(next++);
      lengths.push_back(described.at("shard").get<int64_t>());
      GRADUS_CHECK(described.at("name") == unit.name && described.at("parameters") == layout_of(*unit.flat), IoError,
                   path, ": its unit '", described.at("name").get<std::string>(),
                   "' has other parameters than this net's '", unit.name, "', or another order in memory");
      // Shards are as long as their unit at most, but for the padding.
      const int64_t length = lengths.back(), numel = unit.flat->numel();
      GRADUS_CHECK(0 < length && length <= numel + 64 && length * ranks >= numel, IoError, path, ": ", ranks,
                   " shards of ", length, " elements are not the ", numel, " of '", unit.name, "'");
    }
    GRADUS_CHECK(next == index.at("units").size(), IoError, path, ": it has other units than this net");
  } catch (const json::exception& error) {
    GRADUS_FAIL(IoError, path, ": no index of a sharded checkpoint: ", error.what());
  }

  // All is read before anything changes.
  SavedShards files(folder, saved, ranks);
  const auto part_of = [&](const std::string& name, size_t shard) {
    const int64_t count = parameters()[shard].numel();
    return files.range(name, lengths[shard], group_->rank() * count, count);
  };
  std::vector<std::pair<Array, Array>> copies;
  size_t number = 0;
  for (const Unit& unit : units_)
    if (unit.flat) copies.emplace_back(unit.flat->shard().array(), part_of("unit." + unit.name, number++));
  for (const auto& item : module_.state_dict())
    if (const auto key = keys_.find(item.key()); key == keys_.end() || !is_sharded(key->second)) {
      copies.emplace_back(item->array(), files.array(0, "whole." + item.key()));
      GRADUS_CHECK(copies.back().second.shape() == item->sizes(), IoError, rank_file(folder, 0), ": '", item.key(),
                   "' has shape ", copies.back().second.shape(), ", the net's ", item->sizes());
    }
  optim::StateDict state("Key");
  for (const auto& [name, array] : files.file(0)) {
    if (!name.starts_with("optimizer.")) continue;
    const std::string key = name.substr(sizeof "optimizer." - 1);
    const auto entry = state_entry(key);
    const bool is_part =
        entry && entry->parameter < lengths.size() && array.shape() == Shape{lengths[entry->parameter]};
    state.insert(key, Tensor(is_part ? part_of(name, entry->parameter) : array));
  }
  optimizer.load_state_dict(state);
  for (const auto& [to, from] : copies) ops::copy_into(to, ops::to_device(from, to.device()));
}

}  // namespace gradus::dist
