// Averages gradients over the ranks of a group while the backward pass is still computing others.
//
//   add(i)       gradient i is ready. Buckets that are full are all-reduced, in the order of the plan, which is the
//                same on all ranks
//   flush()      no more gradients will be added in this pass
//   finalize()   waits for the buckets: from here on the gradients are averages
//
// A bucket is a block of memory, and the gradients of its parameters are views of it, so that nothing is copied before
// it is sent: over shm it is shared memory. Over nccl, which takes several arrays at a time, gradients stay where they
// are.
//
// The first pass shows in which order gradients are ready; the buckets are then planned anew by rank 0's order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/parallel/bucket_plan.h>

namespace gradus::dist {

struct ReducerOptions {
  BucketSizes bucket_sizes;
  bool zero_unused = false;          ///< a parameter that gets no gradient counts as 0 instead of being an error
  bool strict = false;               ///< CollectiveOptions::strict
  std::optional<DType> compression;  ///< the half type in which gradients are sent
};

class Reducer {
 public:
  /// Of parameters that require gradients, the same on all ranks and in the same order in memory.
  Reducer(const OrderedDict<std::string, Tensor>& parameters, std::shared_ptr<ProcessGroup> group,
          ReducerOptions options);

  /// A second gradient of one parameter in the same pass is an AutogradError.
  void add(size_t index);
  /// Instead: this rank has nothing to contribute to the others' pass.
  void add_zeros();
  /// Parameters without a gradient in this pass are an AutogradError that names them, unless they count as 0.
  void flush();
  void finalize();
  /// Forgets the pass: some of its collectives may not have begun on this rank.
  void cancel();
  /// True from the first add() of a pass to its end.
  bool in_pass() const { return in_pass_; }

 private:
  struct Bucket {
    std::vector<size_t> members;
    Array flat;  // all members, each from a multiple of 64 bytes on; undefined if they stay where they are
    Array sent;  // flat itself, or its copy in the half type
    size_t missing = 0;
    ProcessGroup::WorkPtr work;

    bool is_compressed() const { return sent.dtype() != flat.dtype(); }
  };

  void launch_full();
  /// This rank's gradient becomes 0.
  void set_zero(size_t index);
  /// Puts the gradients into buckets by the `order` in which they are expected.
  void plan(const std::vector<size_t>& order);
  void plan_by_order_of_first_rank();

  std::vector<std::string> names_;
  std::vector<Tensor> parameters_;
  const std::shared_ptr<ProcessGroup> group_;
  const ReducerOptions options_;
  const bool in_place_;  // gradients stay where they are
  std::vector<Bucket> buckets_;
  std::vector<Array> slots_;       // by parameter: its part of a bucket, if it has one
  std::vector<size_t> bucket_of_;  // by parameter
  std::vector<bool> arrived_;      // by parameter, in this pass
  std::vector<size_t> order_;      // in which gradients were added in this pass
  size_t next_ = 0;                // bucket to launch
  bool in_pass_ = false, planned_by_order_ = false;
};

}  // namespace gradus::dist
