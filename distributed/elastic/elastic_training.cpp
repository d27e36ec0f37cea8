#include <gradus/distributed/elastic/elastic_training.h>

#include <algorithm>

#include <gradus/autograd/autograd.h>
#include <gradus/core/runtime.h>
#include <gradus/distributed/comm/local/local_group.h>
#include <gradus/distributed/comm/store/tcp_store.h>

namespace gradus::dist {
namespace {

/// After a failure: how long a worker waits for a list without somebody before it takes it that nobody has died.
constexpr Milliseconds kUntilNobodyDied{1000};
/// Groups in a row that may fail though nobody died.
constexpr int kMostRenewals = 3;
/// Of ranks that have all said that they come: one that does not has died since.
constexpr Milliseconds kMeeting{10'000};
/// How long a spare waits until it looks whether the job's store is still there.
constexpr Milliseconds kUntilLookingAgain{600'000};

template <class T>
Array array_of(T* data, size_t count) {
  static_assert(sizeof(T) == 8 || sizeof(T) == 1);
  const Array array = Array::empty({static_cast<int64_t>(count)}, sizeof(T) == 8 ? DType::i64 : DType::u8);
  std::copy_n(reinterpret_cast<const std::byte*>(data), count * sizeof(T), static_cast<std::byte*>(array.data()));
  return array;
}

/// All ranks' numbers.
std::vector<int64_t> gather(ProcessGroup& group, int64_t number) {
  const Array all = Array::empty({group.size()}, DType::i64);
  group.all_gather(array_of(&number, 1), all);
  const auto* numbers = static_cast<const int64_t*>(all.data());
  return {numbers, numbers + group.size()};
}

/// The root's bytes, on all ranks.
void broadcast(ProcessGroup& group, std::vector<std::byte>& bytes, int root) {
  bytes.resize(static_cast<size_t>(gather(group, static_cast<int64_t>(bytes.size()))[static_cast<size_t>(root)]));
  const Array array = array_of(bytes.data(), bytes.size());
  group.broadcast(array, root);
  std::copy_n(static_cast<const std::byte*>(array.data()), bytes.size(), bytes.data());
}

}  // namespace

ElasticPlace ElasticPlace::from_environment(const InitOptions& options) {
  JobEnvironment job = job_environment();
  GRADUS_CHECK(job.worker || job.world_size == 1, CommError, "this job ends when one of its ", job.world_size,
               " ranks dies: start it with gradus-run --spares K or --min-nproc M, or train without ElasticTraining");
  if (!job.worker) {
    const auto store = std::make_shared<HashStore>();
    Membership membership(store);
    membership.begin(Members::first(1, 0, 1));
    return {0, membership,
            [](const Members&, int) { return std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), 0); }};
  }
  const std::string prefix = Membership::prefix(job.restarts);
  const auto store = std::make_shared<TcpStore>(*job.store, Token::from_environment(), options.timeout);
  const auto connect = [job, prefix, store, options](const Members& members, int rank) mutable {
    job.rank = job.local_rank = rank;
    job.world_size = job.local_world_size = static_cast<int>(members.ranks.size());
    const std::string keys = prefix + "/group/" + std::to_string(members.generation);
    InitOptions meeting = options;
    meeting.timeout = std::min(options.timeout, kMeeting);
    struct Met {
      std::shared_ptr<Store> store;
      std::unique_ptr<ProcessGroup> group;
    };
    const auto met = std::make_shared<Met>(Met{std::make_shared<PrefixStore>(keys, store), nullptr});
    met->group = make_group(met->store, job, meeting);
    met->group->set_timeout(options.timeout);
    return std::shared_ptr<ProcessGroup>(met, met->group.get());
  };
  return {*job.worker, Membership(std::make_shared<PrefixStore>(prefix, store)), connect};
}

ElasticTraining::ElasticTraining(nn::Module& module, training::Checkpoint& state, training::Checkpoint& position,
                                 ElasticOptions options)
    : ElasticTraining(module, state, position, options, ElasticPlace::from_environment(options.group)) {}

ElasticTraining::ElasticTraining(nn::Module& module, training::Checkpoint& state, training::Checkpoint& position,
                                 ElasticOptions options, ElasticPlace place)
    : module_(module), state_(state), position_(position), options_(std::move(options)), place_(std::move(place)) {
  has_state_ = place_.membership.list(0).rank_of(place_.worker).has_value();
}

bool ElasticTraining::run(int64_t steps, const std::function<void(int64_t step)>& compute,
                          const std::function<void()>& update) {
  const OpContext context("ElasticTraining");
  while (true) {
    if (!group_ && !join()) return has_state_ && step_ == steps;
    try {
      while (step_ < steps) {
        this->compute(compute);
        has_state_ = false;  // if update() throws, it is half an update
        update();
        has_state_ = true;
        ++step_;
        renewals_ = 0;
      }
      if (options_.on_finish) options_.on_finish();
      group_->barrier();
      place_.membership.finish();
      return true;
    } catch (const CommError& error) {
      const CommFailure failure = group_->status().failure;
      if (failure == CommFailure::none || failure == CommFailure::mismatch) throw;
      failure_ = error.what();
      group_.reset();
    }
  }
}

void ElasticTraining::compute(const std::function<void(int64_t step)>& compute) {
  const Position before = position();
  try {
    compute(step_);
    for (const Tensor& parameter : module_.parameters())
      if (const Device device = parameter.device(); !device.is_cpu()) {
        runtime(device.type).synchronize(device.index);  // the vote is about sums that have ended
        break;
      }
    group_->barrier();
  } catch (...) {
    restore(before);
    throw;
  }
}

bool ElasticTraining::join() {
  while (const std::optional<Members> members = next_members()) {
    generation_ = members->generation;
    try {
      if (!place_.membership.meet(*members, place_.worker, options_.group.timeout)) continue;
      group_ = place_.connect(*members, *members->rank_of(place_.worker));
      if (options_.copy_state) copy_newest();
      if (options_.on_group) options_.on_group(group_);
      const std::vector<int64_t> steps = gather(*group_, step_);
      GRADUS_CHECK(std::ranges::count(steps, step_) == group_->size(), ValueError, "ranks go on from different steps, ",
                   "this one from ", step_, ": on_group has to bring all to the same");
      has_state_ = true;
      return true;
    } catch (const CommError& error) {
      if (group_ && group_->status().failure == CommFailure::mismatch) throw;
      failure_ = error.what();
      group_.reset();
    }
  }
  return false;
}

std::optional<Members> ElasticTraining::next_members() {
  Membership& membership = place_.membership;
  Members members = membership.latest();
  if (members.generation == generation_ && !membership.is_finished()) {
    try {
      members = membership.after(generation_, kUntilNobodyDied);
    } catch (const CommError&) {
      GRADUS_CHECK(++renewals_ <= kMostRenewals, CommError, "step ", step_, " failed ", kMostRenewals + 1,
                   " times though all workers live: ", failure_);
      members = membership.renew(generation_);
    }
  }
  while (true) {
    if (membership.is_finished()) return std::nullopt;
    GRADUS_CHECK(members.end.empty(), CommError, "the job has lost a worker (", members.end, ") and has no spare; ",
                 "with fewer than ", members.min_ranks, " ranks it does not go on");
    if (members.rank_of(place_.worker)) return members;
    GRADUS_CHECK(members.has_spare(place_.worker), CommError, "worker ", place_.worker,
                 " was taken out of the job: it did not answer for ", options_.group.timeout.count(), " ms");
    try {
      members = membership.after(members.generation, kUntilLookingAgain);
    } catch (const CommError&) {
      members = membership.latest();  // throws if the store has ended
    }
  }
}

void ElasticTraining::copy_newest() {
  const std::vector<int64_t> steps = gather(*group_, has_state_ ? step_ : -1);
  const auto newest = std::max_element(steps.begin(), steps.end());
  GRADUS_CHECK(*newest >= 0, CommError, "no worker that is left has the state of the training: begin again from a ",
               "checkpoint (gradus-run --max-restarts)");
  if (std::all_of(steps.begin(), steps.end(), [&](int64_t step) { return step == *newest; })) return;
  const int root = static_cast<int>(newest - steps.begin());
  std::vector<std::byte> state, position;
  if (group_->rank() == root) state = state_.to_bytes(), position = position_.to_bytes();
  broadcast(*group_, state, root);
  broadcast(*group_, position, root);
  Generator& generator = default_generator();
  const auto offset = gather(*group_, static_cast<int64_t>(generator.offset()))[static_cast<size_t>(root)];
  if (has_state_ && step_ == *newest) return;
  state_.from_bytes(state);
  position_.from_bytes(position);
  generator.set_state(generator.seed(), static_cast<uint64_t>(offset));
  step_ = *newest;
  has_state_ = true;
}

ElasticTraining::Position ElasticTraining::position() const {
  Position position{position_.to_bytes(), {}, default_generator().offset()};
  for (const Tensor& buffer : module_.buffers()) position.buffers.push_back(buffer.detach().clone());
  return position;
}

void ElasticTraining::restore(const Position& position) {
  const NoGradGuard no_grad;
  position_.from_bytes(position.parts);
  const TensorList buffers = module_.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(position.buffers[i]);
  default_generator().set_state(default_generator().seed(), position.offset);
}

}  // namespace gradus::dist
