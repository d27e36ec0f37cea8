// Is a training over ranks the training of one process? Both make the same steps from the same start with the same
// batches; loss, gradients, parameters and buffers are compared by name after each step.
//
// verify() trains by itself. A program with a training loop of its own calls it twice, watched by a TrainingComparison:
//
//   dist::TrainingComparison comparison(group);
//   train(…);                            // calls observe() before the first step and after each
//   if (comparison.alone()) train(…);    // rank 0: the same in one process, with the whole batches
//   const dist::VerifyReport report = comparison.report();
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/options.h>
#include <gradus/distributed/parallel/distributed_data_parallel.h>
#include <gradus/layers/module.h>
#include <gradus/optim/optimizer.h>

namespace gradus::dist {

/// How far apart the two trainings are, the same on all ranks.
struct VerifyReport {
  enum Kind { kGradients, kParameters, kBuffers };
  /// Of the tensor a that differs most from its counterpart b: |a - b| / |b| in Euclidean norms, where |b| counts as no
  /// less than 1e-3 of that of all the kind's tensors: a gradient that is 0 but for rounding has no digits to compare.
  /// Infinite where one is no number.
  struct Difference {
    double relative = 0;
    double index = 0;  ///< in `names`
  };
  /// What observe() finds after a step: numbers of one type, as ranks send them to each other.
  struct Observation {
    double loss = 0, samples = 0;             ///< the mean over so many
    std::array<Difference, 3> differences{};  ///< by Kind: of a rank from rank 0, of rank 0 from one process
    // Of one process alone:
    double gradient_factor = 1, gradient_rest = 0;  ///< |a - factor b| = rest |b| for all gradients of rank 0, a, and b
    double parameter_gradient = 1;  ///< norm of the gradient of the parameter that differs most, of all gradients: 1
    double draws = 0;               ///< 1 if random numbers were drawn from the default generator
    double gradients = 0;           ///< parameters that have one
  };
  struct Step {
    std::vector<Observation> ranks;
    double loss = 0, samples = 0;  ///< of all ranks together
    Observation alone;
  };
  std::array<std::vector<std::string>, 3> names;  ///< by Kind, those of gradients are the parameters'
  std::vector<Step> steps;                        ///< the first one is the state before training
  double tolerance = 0;
  /// The first dropout module, which draws other numbers on each rank, and the first batch norm that uses the
  /// statistics of each rank's part alone; "" if there is none.
  std::string dropout, batch_norm;

  /// The first difference beyond the tolerance, with its cause where that can be told; "" if there is none. Without a
  /// step, or a gradient in one, there is nothing to compare, which is said as well.
  std::string diagnosis() const;
  bool ok() const { return diagnosis().empty(); }
  /// A line for each step, and the diagnosis.
  std::string str() const;
};

/// Watches a training. All members but report() are collectives, called at the same point on all ranks.
class TrainingComparison {
 public:
  /// Differences up to `tolerance` count as rounding; 1e-3 is enough for some ten steps in float32. A ValueError if it
  /// is negative or NaN.
  explicit TrainingComparison(std::shared_ptr<ProcessGroup> group, double tolerance = 1e-3);

  /// Before the first step: all ranks hold the weights that they begin with.
  void observe(nn::Module& model) { observe(model, 0, 0); }
  /// After a step of the optimizer, with the gradients still there. `loss` is the mean over this rank's `samples`, any
  /// number if there are none. Rank 0 keeps all this in host memory until it has been compared.
  void observe(nn::Module& model, double loss, int64_t samples);
  /// Ends the training over ranks. True on rank 0, where observe() from now on sees that of one process and compares.
  /// The others follow in here, with the group's deadline for each step, and get false.
  bool alone();
  /// After the last step alone.
  VerifyReport report() const;

 private:
  using State = std::array<nn::StateDict, 3>;  // by Kind, in host memory
  void inspect(nn::Module& model);
  void compare_ranks(State own, VerifyReport::Observation found);
  void compare_alone(const State& alone, VerifyReport::Observation found);
  std::vector<VerifyReport::Observation> all_gather(const VerifyReport::Observation& own) const;

  const std::shared_ptr<ProcessGroup> group_;
  VerifyReport report_;
  std::vector<State> of_ranks_;  // on rank 0, by step
  Device device_;                // of the model
  size_t compared_ = 0;          // steps, with those alone
  bool alone_ = false;
  uint64_t offset_ = 0;  // of the default generator at the last observe() alone
};

/// What verify() trains.
struct VerifiedTraining {
  std::shared_ptr<nn::Module> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  /// The mean loss of a batch.
  std::function<Tensor(const TensorList& batch)> loss;
};

struct VerifyOptions {
  using Wrap = std::function<std::shared_ptr<void>(nn::Module& model, const std::shared_ptr<ProcessGroup>& group)>;
  GRADUS_ARG(int64_t, steps) = 10;
  GRADUS_ARG(double, tolerance) = 1e-3;  ///< of TrainingComparison
  /// Makes of a model one that trains over ranks; what it returns lives as long as the training.
  GRADUS_ARG(Wrap, wrap) = [](nn::Module& model, const std::shared_ptr<ProcessGroup>& group) {
    return std::make_shared<DistributedDataParallel>(model, group);
  };
};

/// Trains over the ranks of `group`, then on rank 0 alone, and compares. `make` makes the same training each time: the
/// default generator is then in the state in which verify() found it. `batch_of` gives a rank's part of the batch of a
/// step, from 0 on, with a row of each tensor for each sample: for rank 0 of 1 the whole batch. Losses are weighted by
/// the sizes of the parts.
VerifyReport verify(const std::shared_ptr<ProcessGroup>& group, const std::function<VerifiedTraining()>& make,
                    const std::function<TensorList(int64_t step, int rank, int ranks)>& batch_of,
                    const VerifyOptions& options = {});

}  // namespace gradus::dist
