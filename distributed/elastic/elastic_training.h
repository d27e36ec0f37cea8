// Training that goes on when a rank dies: data-parallel steps under `gradus-run --spares K`.
//
//   training::Checkpoint state, position;
//   state.add("model", *net).add("optimizer", sgd);
//   position.add("loader", *loader);
//   std::optional<dist::DistributedDataParallel> ddp;
//   dist::ElasticTraining elastic(*net, state, position,
//                                 {.on_group = [&](const auto& group) { ddp.emplace(net, group); }});
//   elastic.run(steps, [&](int64_t step) { …forward…; loss.backward(); }, [&] { sgd.step(); });
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
// So the numbers are those of a run in which nobody died, where all ranks draw as many random numbers and the sums have
// the same order (they have, unless there are fewer ranks than before).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/elastic/membership.h>
#include <gradus/layers/module.h>
#include <gradus/training/checkpoint.h>

namespace gradus::dist {

struct ElasticOptions {
  InitOptions group = {};
  /// Called with each group, before its first step: makes what depends on it (DistributedDataParallel, a loader's
  /// part).
  std::function<void(const std::shared_ptr<ProcessGroup>&)> on_group = {};
  /// Called when the last step is done, before the job counts as finished: on all ranks, and again if one dies
  /// meanwhile. Where rank 0 saves the model.
  std::function<void()> on_finish = {};
  /// False where ranks hold different parts of the state (ZeRO, tensor parallelism), which die with them: then nothing
  /// is copied, and on_group brings all ranks back to the last sharded checkpoint, with set_step().
  bool copy_state = true;
};

/// How a worker of a job takes part in it. Tests make their own.
struct ElasticPlace {
  int worker = 0;
  Membership membership;
  std::function<std::shared_ptr<ProcessGroup>(const Members&, int rank)> connect;
  /// As gradus-run says in the environment; without it, a job of this process alone.
  static ElasticPlace from_environment(const InitOptions& options);
};

class ElasticTraining {
 public:
  /// `state` is what update() changes, `position` what compute() does; the module's buffers and how many numbers were
  /// drawn from the default generator are part of the position by themselves. All must live as long as this.
  ElasticTraining(nn::Module& module, training::Checkpoint& state, training::Checkpoint& position,
                  ElasticOptions options = {});
  ElasticTraining(nn::Module& module, training::Checkpoint& state, training::Checkpoint& position,
                  ElasticOptions options, ElasticPlace place);

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
  /// What compute() changes, as it was before.
  struct Position {
    std::vector<std::byte> parts;
    std::vector<Tensor> buffers;
    uint64_t offset = 0;
  };
  Position position() const;
  void restore(const Position& position);

  /// Meets the others as the newest list has them; false if the job is finished.
  bool join();
  /// The list of the next group that this worker is to be in; nothing if the job is finished.
  std::optional<Members> next_members();
  /// Brings all ranks to the newest finished step of any.
  void copy_newest();
  void compute(const std::function<void(int64_t step)>& compute);

  nn::Module& module_;
  training::Checkpoint &state_, &position_;
  const ElasticOptions options_;
  ElasticPlace place_;
  std::shared_ptr<ProcessGroup> group_;
  int64_t step_ = 0, generation_ = -1;
  bool has_state_ = false;
  int renewals_ = 0;  // groups that failed since the last finished step though nobody died
  std::string failure_;
};

}  // namespace gradus::dist
