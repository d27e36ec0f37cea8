#include <gradus/distributed/elastic/elastic_training.h>

#include <algorithm>

#include <gradus/autograd/autograd.h>
#include <gradus/distributed/comm/local/local_group.h>

namespace gradus::dist {
namespace {

/// After a failure, a worker waits this long for the next list of workers. Then it assumes that no worker has died.
constexpr Milliseconds kNextListTime{1000};
/// The number of groups in a row that may fail although no worker has died. One more failure ends the training.
constexpr int kMostRenewals = 3;
/// Timeout for connecting the ranks of a new group. All have announced that they are ready, so a rank that does not
/// connect has died in the meantime.
constexpr Milliseconds kConnectTime{10'000};
/// How often a waiting spare checks whether the job's store still exists.
constexpr Milliseconds kStoreCheckInterval{600'000};

/// Gathers one number from each rank.
std::vector<int64_t> gather(ProcessGroup& group, int64_t number) {
  const Array own = Array::empty({1}, DType::i64), all = Array::empty({group.size()}, DType::i64);
  *own.data<int64_t>() = number;
  group.gather_on_host(own, all);
  return {all.data<int64_t>(), all.data<int64_t>() + group.size()};
}

}  // namespace

ElasticPlace ElasticPlace::from_environment(const InitOptions& options) {
  JobEnvironment job = job_environment();
  if (!job.worker) {  // not an elastic job: there is one group of all ranks, and it is never made again
    Membership membership(std::make_shared<HashStore>());
    membership.begin(Members::first(1, 0, 1));
    const auto connect = [job, options](const Members&, int, std::optional<int> device) -> GroupPtr {
      if (job.world_size == 1) return std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(1), 0);
      InitOptions meeting = options;
      if (device) meeting.device = device;
      return init_process_group(meeting);
    };
    return {0, membership, connect, /*survives_losses=*/false, job.local_rank};
  }
  const std::string prefix = Membership::prefix(job.restarts);
  const auto store = std::make_shared<TcpStore>(*job.store, Token::from_environment(), options.timeout);
  const auto connect = [job, prefix, store, options](const Members& members, int rank,
                                                     std::optional<int> device) mutable {
    job.rank = job.local_rank = rank;
    job.world_size = job.local_world_size = static_cast<int>(members.ranks.size());
    const std::string keys = prefix + "/group/" + std::to_string(members.generation);
    InitOptions meeting = options;
    meeting.timeout = std::min(options.timeout, kConnectTime);
    if (device) meeting.device = device;
    GroupPtr group = make_group(std::make_shared<PrefixStore>(keys, store), job, meeting);
    group->set_timeout(options.timeout);
    return group;
  };
  return {*job.worker, Membership(std::make_shared<PrefixStore>(prefix, store)), connect};
}

ElasticTraining::ElasticTraining(nn::Module& module, ElasticState state, ElasticState position, ElasticOptions options,
                                 std::optional<ElasticPlace> place)
    : ElasticTraining(Parts{&module, std::move(state), std::move(position)}, std::move(options), std::move(place)) {}

ElasticTraining::ElasticTraining(ElasticOptions options, std::optional<ElasticPlace> place)
    : ElasticTraining(std::nullopt, std::move(options), std::move(place)) {}

ElasticTraining::ElasticTraining(std::optional<Parts> parts, ElasticOptions options, std::optional<ElasticPlace> place)
    : parts_(std::move(parts)), options_(std::move(options)),
      place_(place ? std::move(*place) : ElasticPlace::from_environment(options_.group)) {
  GRADUS_CHECK(parts_ || options_.on_group, ValueError,
               "without a state that ranks can copy, on_group is needed to load it");
  has_state_ = place_.membership.list(0).rank_of(place_.worker).has_value();
}

bool ElasticTraining::run(int64_t steps, const std::function<void(int64_t step)>& compute,
                          const std::function<void()>& update) {
  const OpContext context("ElasticTraining");
  while (true) {
    if (!group_ && !join()) return has_state_ && step_ == steps;
    try {
      while (step_ < steps) {
        const Position before = position();
        try {
          compute(step_);
          group_->barrier();  // the vote; on a GPU, the stream runs it after the sums of the gradients
        } catch (...) {
          restore(before);
          throw;
        }
        has_state_ = false;  // if update() throws, the state is incomplete
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
      if (!place_.survives_losses || failure == CommFailure::none || failure == CommFailure::mismatch) throw;
      failure_ = error.what();
      group_.reset();
    }
  }
}

Device ElasticTraining::device() const {
  const TensorList parameters = parts_ ? parts_->module->parameters() : TensorList();
  return parameters.empty() ? Device() : parameters[0].device();
}

bool ElasticTraining::join() {
  while (const std::optional<Members> members = next_members()) {
    generation_ = members->generation;
    try {
      if (!place_.membership.meet(*members, place_.worker, options_.group.timeout)) continue;
      const int rank = *members->rank_of(place_.worker);
      if (!std::exchange(has_had_rank_, true) && options_.on_rank) options_.on_rank(place_.local_rank.value_or(rank));
      const Device device = this->device();
      group_ = place_.connect(*members, rank, device.is_cpu() ? std::nullopt : std::optional<int>(device.index()));
      if (parts_) copy_newest();
      if (options_.on_group) options_.on_group(group_);
      const std::vector<int64_t> steps = gather(*group_, step_);
      GRADUS_CHECK(std::ranges::count(steps, step_) == group_->size(), ValueError,
                   "ranks would continue from different steps, ", "this one from ", step_,
                   ": on_group must set the same step on all");
      has_state_ = true;
      return true;
    } catch (const CommError& error) {
      if (!place_.survives_losses || (group_ && group_->status().failure == CommFailure::mismatch)) throw;
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
      members = membership.after(generation_, kNextListTime);
    } catch (const CommError&) {
      GRADUS_CHECK(++renewals_ <= kMostRenewals, CommError, "step ", step_, " failed ", kMostRenewals + 1,
                   " times although all workers are alive: ", failure_);
      members = membership.renew(generation_);
    }
  }
  while (true) {
    if (membership.is_finished()) return std::nullopt;
    GRADUS_CHECK(members.end.empty(), CommError, "the job has lost a worker (", members.end, ") and has no spare; it ",
                 "needs at least ", members.min_ranks, " ranks");
    if (members.rank_of(place_.worker)) return members;
    GRADUS_CHECK(members.has_spare(place_.worker), CommError, "worker ", place_.worker,
                 " was removed from the job because it did not answer for ", options_.group.timeout.count(), " ms");
    try {
      members = membership.after(members.generation, kStoreCheckInterval);
    } catch (const CommError&) {
      members = membership.latest();  // throws if the store has ended
    }
  }
}

void ElasticTraining::copy_newest() {
  const std::vector<int64_t> steps = gather(*group_, has_state_ ? step_ : -1);
  const auto newest = std::max_element(steps.begin(), steps.end());
  GRADUS_CHECK(*newest >= 0, CommError, "no remaining worker has the state of the training: start again from a ",
               "checkpoint (gradus-run --max-restarts)");
  const auto oldest = std::min_element(steps.begin(), steps.end());
  if (*oldest == *newest) return;
  const int root = static_cast<int>(newest - steps.begin());
  std::vector<std::byte> state, position;
  if (group_->rank() == root) {
    state = parts_->state.to_bytes();
    position = parts_->position.to_bytes();
  }
  state = broadcast_bytes(*group_, state, root, device());
  position = broadcast_bytes(*group_, position, root, device());
  Generator& generator = default_generator();
  const auto offset = gather(*group_, static_cast<int64_t>(generator.offset()))[static_cast<size_t>(root)];
  if (has_state_ && step_ == *newest) return;
  parts_->state.from_bytes(state);
  parts_->position.from_bytes(position);
  generator.set_state(generator.seed(), static_cast<uint64_t>(offset));
  step_ = *newest;
  has_state_ = true;
}

ElasticTraining::Position ElasticTraining::position() const {
  if (!parts_) return {};
  Position position{parts_->position.to_bytes(), {}, default_generator().offset()};
  for (const Tensor& buffer : parts_->module->buffers()) position.buffers.push_back(buffer.detach().clone());
  return position;
}

void ElasticTraining::restore(const Position& position) {
  if (!parts_) return;
  const NoGradGuard no_grad;
  parts_->position.from_bytes(position.parts);
  parts_->module->zero_grad();  // the step is repeated, and backward would add to the gradients of the failed attempt
  const TensorList buffers = parts_->module->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(position.buffers[i]);
  default_generator().set_state(default_generator().seed(), position.offset);
}

}  // namespace gradus::dist
