// Checks whether training over ranks equals training in one process. Both trainings make the same steps from the same
// start with the same batches. Loss, gradients, parameters and buffers are compared by name after each step.
//
// verify() runs both trainings. A program with its own training loop runs the loop twice, watched by a
// TrainingComparison:
//
//   dist::TrainingComparison comparison(group);
//   train(…);                            // calls observe() before the first step and after each
//   if (comparison.alone()) train(…);    // rank 0: the same in one process, with the whole batches
//   const dist::VerifyReport report = comparison.report();
#pragma once

#include <array>
#include <cstdint>

#include <gradus/distributed/parallel/distributed_data_parallel.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

/// The differences between the two trainings, the same on all ranks.
struct VerifyReport {
  enum Kind { kGradients, kParameters, kBuffers };
  /// The relative difference |a - b| / |b|, in Euclidean norms, of the tensor a that differs most from its counterpart
  /// b. |b| counts as at least 1e-3 of the norm of all tensors of the kind, because a gradient that is 0 except for
  /// rounding has no digits to compare. Infinite if NaN and infinities are not at the same places in both.
  struct Difference {
    double relative = 0;
    double index = 0;  ///< index of the tensor in `names`
  };
  /// What observe() records after a step. All members are doubles, so that ranks can send them as one array.
  struct Observation {
    double loss = 0, samples = 0;  ///< mean loss over this number of samples
    /// By Kind: the differences between this rank and rank 0; in `alone`, between rank 0 and one process.
    std::array<Difference, 3> differences{};
    // Except for `gradients`, the other members are set only on rank 0, when it compares with the training in one
    // process. a is the vector of all gradients of the training over ranks, and b is the vector of all gradients in one
    // process.
    double gradient_factor = 1, gradient_rest = 0;  ///< the factor f with the least |a - f b|, and |a - f b| / |b|
    double parameter_gradient = 1;  ///< in one process, norm of the gradient of the parameter that differs most, / |b|
    double draws = 0;               ///< 1 if random numbers were drawn from the default generator
    double gradients = 0;           ///< number of parameters that have a gradient
  };
  struct Step {
    std::vector<Observation> ranks;
    double loss = 0, samples = 0;  ///< mean loss over the samples of all ranks, and their number
    Observation alone;             ///< the observation of the training in one process
  };
  std::array<std::vector<std::string>, 3> names;  ///< by Kind; gradients have the names of their parameters
  std::vector<Step> steps;                        ///< the first one is the state before training
  double tolerance = 0;
  /// Names of the first dropout module, which draws different numbers on each rank, and of the first batch norm that
  /// uses only the statistics of each rank's part; "" if there is none.
  std::string dropout, batch_norm;

  /// Describes the first difference beyond the tolerance, with its cause if that is known; "" if there is none. Also
  /// reports when there was nothing to compare, because no step was made or a step had no gradients.
  std::string diagnosis() const;
  bool ok() const { return diagnosis().empty(); }
  /// A line for each step, followed by the diagnosis.
  std::string str() const;
};

/// Watches a training. All members except report() are collectives, which all ranks must call at the same point.
class TrainingComparison {
 public:
  /// Differences up to `tolerance` count as rounding. 1e-3 is enough for about ten steps in float32. Throws a
  /// ValueError if it is negative or NaN.
  explicit TrainingComparison(GroupPtr group, double tolerance = 1e-3);

  /// Call this before the first step, when all ranks have their initial weights, and after each step of the optimizer,
  /// while the gradients still exist. After a step, `loss` is the mean over this rank's `samples`, and any number if
  /// there are none. Rank 0 keeps all tensors in host memory until they have been compared.
  void observe(nn::Module& model, double loss, int64_t samples);
  void observe(nn::Module& model) { observe(model, 0, 0); }
  /// Ends the training over ranks. Returns true on rank 0, where observe() from now on watches the training in one
  /// process and compares it. The other ranks stay in this call, wait for each step at most the group's timeout, and
  /// get false.
  bool alone();
  /// The result, after the last step of the training in one process.
  VerifyReport report() const;

 private:
  using State = std::array<nn::StateDict, 3>;  // by Kind, in host memory
  void inspect(nn::Module& model);
  void compare_ranks(State own, VerifyReport::Observation found);
  void compare_alone(const State& alone, VerifyReport::Observation found);
  std::vector<VerifyReport::Observation> all_gather(const VerifyReport::Observation& own) const;

  const GroupPtr group_;
  VerifyReport report_;
  std::vector<State> of_ranks_;  // on rank 0: the states of the training over ranks, one for each step
  Device device_;                // device of the model
  size_t compared_ = 0;          // number of steps that were compared with the training in one process
  bool alone_ = false;
  uint64_t offset_ = 0;  // in one process: the default generator's offset at the last observe()
};

/// The training that verify() runs.
struct VerifiedTraining {
  std::shared_ptr<nn::Module> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  /// The mean loss of a batch.
  std::function<Tensor(const TensorList& batch)> loss;
};

struct VerifyOptions {
  using Wrap = std::function<std::shared_ptr<void>(nn::Module& model, const GroupPtr& group)>;
  GRADUS_ARG(int64_t, steps) = 10;
  GRADUS_ARG(double, tolerance) = 1e-3;  ///< as in TrainingComparison
  /// Turns a model into one that trains over ranks. The returned object is kept until the end of the training.
  GRADUS_ARG(Wrap, wrap) = [](nn::Module& model, const GroupPtr& group) {
    return std::make_shared<DistributedDataParallel>(model, group);
  };
};

/// Trains over the ranks of `group`, then on rank 0 alone, and compares. `make` must make the same training each time.
/// Before each call verify() sets the default generator to the state at the beginning of verify(). `batch_of` returns a
/// rank's part of the batch of a step, counted from 0, as tensors with one row for each sample. For rank 0 of 1 it
/// returns the whole batch. Losses are weighted by the sizes of the parts.
VerifyReport verify(const GroupPtr& group, const std::function<VerifiedTraining()>& make,
                    const std::function<TensorList(int64_t step, int rank, int ranks)>& batch_of,
                    const VerifyOptions& options = {});

}  // namespace gradus::dist
