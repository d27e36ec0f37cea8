#include <gradus/data/loader/data_loader.h>

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

namespace {

struct Field {
  const char* name;
  uint64_t LoaderState::*value;
};
constexpr Field kFields[] = {{"seed", &LoaderState::seed},
                             {"epoch", &LoaderState::epoch},
                             {"batches", &LoaderState::batches},
                             {"batch_size", &LoaderState::batch_size}};

void check_options(const DataLoaderOptions& options) {
  constexpr size_t kMostWorkers = 1024;
  GRADUS_CHECK(options.batch_size() > 0, ValueError, "batch_size must be at least 1");
  GRADUS_CHECK(options.workers() <= kMostWorkers, ValueError, "at most ", kMostWorkers, " workers, got ",
               options.workers());
  GRADUS_CHECK(options.rank() < options.num_replicas(), ValueError,
               "the rank of a loader must be less than num_replicas = ", options.num_replicas(), ", got ",
               options.rank());
  GRADUS_CHECK(options.workers() == 0 || options.max_jobs() > 0, ValueError, "max_jobs must be at least 1");
}

}  // namespace

namespace detail {

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
                 "a loader's state has an int64 '", field.name, "'");
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

DataLoaderBase::DataLoaderBase(const DataLoaderOptions& options, std::unique_ptr<samplers::Sampler> sampler,
                               Prefetcher::Work work)
    : options_(options), sampler_(std::move(sampler)),
      work_(std::move(work)), position_{options.seed(), 0, 0, options.batch_size()} {
  check_options(options_);
}

void DataLoaderBase::join() {
  timings_ = timings();
  prefetcher_.reset();
}

void DataLoaderBase::load_state(const LoaderState& state) {
  GRADUS_CHECK(state.batch_size == options_.batch_size(), ValueError, "the loader's position is ", state.batches,
               " batches of ", state.batch_size, " samples, but this loader has a batch_size of ",
               options_.batch_size());
  join();
  open_ = false;
  position_ = state;
}

void DataLoaderBase::distribute(size_t num_replicas, size_t rank) {
  DataLoaderOptions options = options_;
  check_options(options.distributed(num_replicas, rank));
  options_ = options;
  load_state(position_);
}

std::optional<size_t> DataLoaderBase::size() const {
  const std::optional<size_t> count = sampler_->batches(options_.drop_last() ? 1 : options_.batch_size());
  return count && options_.drop_last() ? *count / options_.batch_size() : count;
}

LoaderTimings DataLoaderBase::timings() const {
  LoaderTimings timings = timings_;
  if (prefetcher_) timings.load_seconds = prefetcher_->work_seconds();
  return timings;
}

void DataLoaderBase::start() {
  join();
  if (open_) to_next_epoch();
  open_ = true;
  timings_ = {};
  sampler_->reset(position_.seed, position_.epoch);
  sampler_->skip(position_.batches, options_.batch_size());
  prefetcher_ = make_prefetcher(
      options_.workers(), options_.max_jobs(), [this] { return next_request(); },
      [this, seed = position_.seed, epoch = position_.epoch](size_t worker, const Prefetcher::Request& indices) {
        const detail::EpochScope scope(seed, epoch);
        return work_(worker, indices);
      },
      options_.timeout());
}

std::optional<Indices> DataLoaderBase::next_request() {
  auto indices = sampler_->next(options_.batch_size());
  if (!indices || (options_.drop_last() && indices->size() < options_.batch_size())) return std::nullopt;
  size_t count = 0;
  for (size_t i = options_.rank(); i < indices->size(); i += options_.num_replicas())
    (*indices)[count++] = (*indices)[i];
  indices->resize(count);
  return indices;
}

Prefetcher::Result DataLoaderBase::next_result() {
  if (!in_epoch()) return nullptr;
  const auto start = std::chrono::steady_clock::now();
  Prefetcher::Result batch = prefetcher_->next();
  const double wait = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  timings_.wait_seconds += wait;
  if (batch) {
    if (timings_.batches++ == 0) timings_.first_wait_seconds = wait;
    else timings_.worst_wait_seconds = std::max(timings_.worst_wait_seconds, wait);
    ++position_.batches;
  } else {
    open_ = false;
    to_next_epoch();
  }
  return batch;
}

}  // namespace gradus::data
