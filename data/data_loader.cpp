#include <gradus/data/data_loader.h>

#include <gradus/autograd/ops/creation.h>

#include <algorithm>

namespace gradus::data {

size_t samples_in_batch(size_t size, size_t batch_size, size_t batch, size_t num_replicas, size_t rank) {
  GRADUS_CHECK(batch_size > 0 && rank < num_replicas, ValueError, "samples_in_batch needs a batch_size above 0 and a ",
               "rank below num_replicas, got ", batch_size, ", ", rank, " and ", num_replicas);
  if (batch > size / batch_size) return 0;
  const size_t samples = std::min(batch_size, size - batch * batch_size);
  return samples / num_replicas + (rank < samples % num_replicas);
}

namespace detail {
namespace {

struct Field {
  const char* name;
  uint64_t LoaderState::*value;
};
constexpr Field kFields[] = {{"seed", &LoaderState::seed},
                             {"epoch", &LoaderState::epoch},
                             {"batches", &LoaderState::batches},
                             {"batch_size", &LoaderState::batch_size}};

}  // namespace

void check_options(const DataLoaderOptions& options) {
  constexpr size_t kMostWorkers = 1024;
  GRADUS_CHECK(options.batch_size() > 0, ValueError, "batch_size must be at least 1");
  GRADUS_CHECK(options.workers() <= kMostWorkers, ValueError, "at most ", kMostWorkers, " workers, got ",
               options.workers());
  GRADUS_CHECK(options.rank() < options.num_replicas(), ValueError, "a loader for ", options.num_replicas(),
               " ranks has ranks below that, got rank ", options.rank());
  GRADUS_CHECK(options.workers() == 0 || options.max_jobs() > 0, ValueError, "max_jobs must be at least 1");
}

std::vector<size_t> part_of(std::vector<size_t> batch, const DataLoaderOptions& options) {
  size_t count = 0;
  for (size_t i = options.rank(); i < batch.size(); i += options.num_replicas()) batch[count++] = batch[i];
  batch.resize(count);
  return batch;
}

void check_state(const LoaderState& state, const DataLoaderOptions& options) {
  GRADUS_CHECK(state.batch_size == options.batch_size(), ValueError, "the loader's position is ", state.batches,
               " batches of ", state.batch_size, " samples, but this loader has a batch_size of ",
               options.batch_size());
}

OrderedDict<std::string, Tensor> dict_of(const LoaderState& state) {
  OrderedDict<std::string, Tensor> dict;
  for (const Field& field : kFields) dict.insert(field.name, tensor(static_cast<int64_t>(state.*field.value)));
  return dict;
}

LoaderState state_of(const OrderedDict<std::string, Tensor>& dict) {
  LoaderState state;
  for (const Field& field : kFields) {
    const Tensor* value = dict.find(field.name);
    GRADUS_CHECK(value && value->numel() == 1 && value->dtype() == DType::i64, ValueError,
                 "a loader's state has an "
                 "int64 '",
                 field.name, "'");
    const int64_t number = value->item<int64_t>();
    GRADUS_CHECK(number >= 0 || field.value == &LoaderState::seed, ValueError, "a loader's state cannot have a '",
                 field.name, "' of ", number);
    state.*field.value = static_cast<uint64_t>(number);
  }
  GRADUS_CHECK(dict.size() == std::size(kFields), ValueError, "a loader's state has ", std::size(kFields),
               " entries, got ", dict.size());
  return state;
}

}  // namespace detail
}  // namespace gradus::data
