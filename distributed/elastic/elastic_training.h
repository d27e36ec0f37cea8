// Training that goes on when a rank dies: data-parallel steps under `gradus-run --spares K`.
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
// A step is compute() (forward and backward, whose gradients the group averages), a vote, and update() (the optimizer's
// step). update() is called when the vote says that all ranks have their gradients. When a rank dies, the others throw
// out of whatever collective they are in, and
//
//   1. wait for the next list of workers (membership.h): a spare has taken the dead rank's place, or all move up;
//   2. meet as a new group, and say which step they have finished last. It may be one more on some, if the
//      rank died while it voted: the newest counts;
//   3. whoever is behind, as a spare is, copies state and position from a rank that is not;
//   4. repeat the step that was not finished, from the position before it.
//
// So the numbers are those of a run in which nobody died, where all ranks draw as many random numbers (on_group sets
// the seed, if ranks have different ones) and the sums have the same order (unless there are fewer ranks than before).
//
// Where ranks hold different parts of the state, as with ZeRO and tensor parallelism, it dies with them. Then all go
// back to the last checkpoint, whoever takes the dead rank's place too: see the second constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/elastic/membership.h>
#include <gradus/layers/module.h>

namespace gradus::dist {

struct ElasticOptions {
  InitOptions group = {};
  /// Called once, when this worker has a rank, which is a spare's when it takes a place, with that rank's number on its
  /// machine: moves the net to the GPU of that number.
  std::function<void(int local_rank)> on_rank = {};
  /// Called with each group, before its first step: makes what depends on it (DistributedDataParallel, a loader's
  /// part).
  std::function<void(const std::shared_ptr<ProcessGroup>&)> on_group = {};
  /// Called when the last step is done, before the job counts as finished: on all ranks, and again if one dies
  /// meanwhile. Where rank 0 saves the model.
  std::function<void()> on_finish = {};
};

/// How a worker of a job takes part in it. Tests make their own.
struct ElasticPlace {
  int worker = 0;
  Membership membership;
  /// Over NCCL with the GPU of that number, or of the rank's.
  std::function<std::shared_ptr<ProcessGroup>(const Members&, int rank, std::optional<int> device)> connect;
  bool goes_on = true;                           ///< false: what ends a group ends the training
  std::optional<int> local_rank = std::nullopt;  ///< where it is not the rank among the members
  /// As gradus-run says in the environment. Without --spares and --min-nproc the job does not go on without a rank.
  static ElasticPlace from_environment(const InitOptions& options);
};

/// What one worker copies from another, by its bytes: a training::Checkpoint, which must live as long as this.
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
  /// Data-parallel training: who comes anew copies from the others. `state` is what update() changes, `position` what
  /// compute() does; the module's buffers and how many numbers were drawn from the default generator are part of the
  /// position by themselves. All must live as long as this.
  ElasticTraining(nn::Module& module, ElasticState state, ElasticState position, ElasticOptions options = {},
                  std::optional<ElasticPlace> place = std::nullopt);
  /// Training with shards: nothing is copied. on_group makes the net, the optimizer and what wraps them anew, loads the
  /// last sharded checkpoint, if there is one, and says with set_step() how many steps it had finished.
  explicit ElasticTraining(ElasticOptions options, std::optional<ElasticPlace> place = std::nullopt);

  /// Trains until `steps` steps are finished. In a spare it returns when the job is done, or trains from when the spare
  /// is given a rank. False: the job is finished, and this process has no part in its result.
  ///
  /// Throws a CommError when the job cannot go on: there are too few workers left, or none that has the state; this
  /// worker was taken out of the job because it did not answer; or three groups in a row failed though nobody died.
  /// What compute() and update() throw, CollectiveErrors of a lost rank aside, ends this worker.
  bool run(int64_t steps, const std::function<void(int64_t step)>& compute, const std::function<void()>& update);

  /// Steps that are finished.
  int64_t step() const { return step_; }
  /// Goes on from another step: what a checkpoint said, before run() or in on_group.
  void set_step(int64_t step) { step_ = step; }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  /// How often this worker has met others anew.
  int64_t generation() const { return generation_; }

 private:
  struct Parts;
  ElasticTraining(std::optional<Parts> parts, ElasticOptions options, std::optional<ElasticPlace> place);

  /// What ranks have in common.
  struct Parts {
    nn::Module* module;
    ElasticState state, position;
  };
  /// What compute() changes, as it was before.
  struct Position {
    std::vector<std::byte> parts;
    std::vector<Tensor> buffers;
    uint64_t offset = 0;
  };
  Position position() const;
  void restore(const Position& position);

  /// Where what ranks have in common is; the CPU if there is nothing.
  Device device() const;
  /// Meets the others as the newest list has them; false if the job is finished.
  bool join();
  /// The list of the next group that this worker is to be in; nothing if the job is finished.
  std::optional<Members> next_members();
  /// Brings all ranks to the newest finished step of any.
  void copy_newest();
  void compute(const std::function<void(int64_t step)>& compute);

  const std::optional<Parts> parts_;
  const ElasticOptions options_;
  ElasticPlace place_;
  std::shared_ptr<ProcessGroup> group_;
  int64_t step_ = 0, generation_ = -1;
  bool has_state_ = false, has_had_rank_ = false;
  int renewals_ = 0;  // groups that failed since the last finished step though nobody died
  std::string failure_;
};

}  // namespace gradus::dist
