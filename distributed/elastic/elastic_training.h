// Training that survives the loss of a rank: data-parallel steps under `gradus-run --spares K`.
//
//   training::Checkpoint state, position;
//   state.add("model", *net).add("optimizer", sgd);
//   position.add("loader", *loader);
//   std::optional<dist::DistributedDataParallel> ddp;
//   const auto on_group = [&](const auto& group) {
//     ddp.emplace(net, group);
//     loader->distribute(group->size(), group->rank());
//   };
//   dist::ElasticTraining elastic(*net, state, position, {.on_group = on_group});
//   const auto compute = [&](int64_t step) { auto& batch = loader->next_batch(); …forward…; loss.backward(); };
//   elastic.run(steps, compute, [&] { sgd.step(), sgd.zero_grad(); });
//
// A step consists of compute() (forward and backward, whose gradients the group averages), a vote (a barrier) and
// update() (the optimizer's step). update() is called only after the vote, when all ranks have their gradients. When a
// rank dies, the collectives of the other ranks throw, and these ranks
//
//   1. wait for the next list of workers (membership.h), in which a spare has taken the dead rank's place, or the ranks
//      after it have moved up;
//   2. meet as a new group and compare the numbers of the steps that they have finished. They may differ by one if the
//      rank died during the vote. The highest number counts;
//   3. copy state and position from a rank with that number, if they have a lower one or are new;
//   4. repeat the step that was not finished, from the position before it.
//
// The results are therefore the same as in a run without losses, on two conditions: all ranks draw the same number of
// random numbers (if ranks have different seeds, on_group sets them), and the number of ranks stays the same, so that
// sums have the same order.
//
// If ranks hold different parts of the state, as with ZeRO and tensor parallelism, a part is lost with its rank. All
// ranks, including the one that takes the dead rank's place, then go back to the last checkpoint: see the second
// constructor.
#pragma once

#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/elastic/membership.h>
#include <gradus/layers/module/module.h>

namespace gradus::dist {

struct ElasticOptions {
  InitOptions group = {};
  /// Called once, when this worker gets a rank. A spare gets it when it replaces a rank. `local_rank` is the number of
  /// the rank on its machine; move the net to the GPU with that number here.
  std::function<void(int local_rank)> on_rank = {};
  /// Called with each new group, before its first step. Make the objects that depend on the group here
  /// (DistributedDataParallel, a loader's part).
  std::function<void(const GroupPtr&)> on_group = {};
  /// Called on all ranks after the last step, before the job counts as finished; called again if a rank dies during the
  /// call. Rank 0 can save the model here.
  std::function<void()> on_finish = {};
};

/// How a worker takes part in its job: its number, the lists of workers, and how it connects. Tests make their own
/// objects.
struct ElasticPlace {
  int worker = 0;
  Membership membership;
  /// Makes the group of the members. Over NCCL, this rank uses the GPU with index `device`, by default the index
  /// `rank`.
  std::function<GroupPtr(const Members&, int rank, std::optional<int> device)> connect;
  bool survives_losses = true;                   ///< false: a failure of the group ends the training
  std::optional<int> local_rank = std::nullopt;  ///< default: the rank among the members
  /// Reads the environment variables of gradus-run. Without --spares and --min-nproc the loss of a rank ends the job.
  static ElasticPlace from_environment(const InitOptions& options);
};

/// A training::Checkpoint as bytes, which one worker copies from another. The checkpoint must outlive this object.
struct ElasticState {
  template <class Part>
  requires requires(Part& part, std::vector<std::byte> bytes) { bytes = part.to_bytes(), part.from_bytes(bytes); }
  ElasticState(Part& part)  // NOLINT(google-explicit-constructor)
      : to_bytes([&part] { return part.to_bytes(); }),
        from_bytes([&part](const std::vector<std::byte>& bytes) { part.from_bytes(bytes); }) {}
  std::function<std::vector<std::byte>()> to_bytes;
  std::function<void(const std::vector<std::byte>&)> from_bytes;
};

class ElasticTraining {
 public:
  /// Data-parallel training, in which new ranks copy from the others. `state` has what update() changes, `position`
  /// what compute() changes. The buffers of the module and the number of draws from the default generator belong to the
  /// position without being added. All of these must outlive this object.
  ElasticTraining(nn::Module& module, ElasticState state, ElasticState position, ElasticOptions options = {},
                  std::optional<ElasticPlace> place = std::nullopt);
  /// Training with shards, in which nothing is copied. on_group makes the net, the optimizer and their wrappers again,
  /// loads the last sharded checkpoint if there is one, and reports the number of finished steps with set_step().
  explicit ElasticTraining(ElasticOptions options, std::optional<ElasticPlace> place = std::nullopt);

  /// Trains until `steps` steps are finished. A spare waits until it gets a rank, and then trains, or until the job is
  /// finished. Returns false if the job is finished and this process does not have the trained state.
  ///
  /// Throws a CommError if the job cannot continue: too few workers are left, none of them has the state, this worker
  /// was removed from the job because it did not answer, or groups failed repeatedly although no worker had died. An
  /// exception of compute() or update() ends this worker, unless it is the CollectiveError of a lost rank.
  bool run(int64_t steps, const std::function<void(int64_t step)>& compute, const std::function<void()>& update);

  /// Number of finished steps.
  int64_t step() const { return step_; }
  /// Continues from another step, such as that of a checkpoint. Call this before run() or in on_group.
  void set_step(int64_t step) { step_ = step; }
  const GroupPtr& group() const { return group_; }
  /// Generation of the list of workers (membership.h) from which the current group was made.
  int64_t generation() const { return generation_; }

 private:
  struct Parts;
  ElasticTraining(std::optional<Parts> parts, ElasticOptions options, std::optional<ElasticPlace> place);

  /// The state that is the same on all ranks.
  struct Parts {
    nn::Module* module;
    ElasticState state, position;
  };
  /// The values, before compute(), of everything that compute() changes.
  struct Position {
    std::vector<std::byte> parts;
    TensorList buffers;
    uint64_t offset = 0;
  };
  Position position() const;
  void restore(const Position& position);

  /// Device of the module; the CPU if there is none.
  Device device() const;
  /// Meets the other workers of the newest list. Returns false if the job is finished.
  bool join();
  /// Waits for the next list in which this worker has a rank. Returns std::nullopt if the job is finished.
  std::optional<Members> next_members();
  /// Copies the state of the rank with the highest number of finished steps to all ranks.
  void copy_newest();

  const std::optional<Parts> parts_;
  const ElasticOptions options_;
  ElasticPlace place_;
  GroupPtr group_;
  int64_t step_ = 0, generation_ = -1;
  bool has_state_ = false, has_had_rank_ = false;
  int renewals_ = 0;  // groups that failed since the last finished step although no worker had died
  std::string failure_;
};

}  // namespace gradus::dist
