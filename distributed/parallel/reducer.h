// Averages gradients over the ranks of a group while the backward pass is still computing other gradients.
//
//   add(i)       gradient i is ready. Buckets that have all their gradients are all-reduced in the order of the
//                BucketPlan, which is the same on all ranks
//   flush()      no more gradients will be added in this pass
//   finalize()   waits for the buckets, after which the gradients are averages
//
// A bucket is a block of memory, and the gradients of its parameters are views of it, so that nothing is copied before
// it is sent. Over shm it is shared memory. Over nccl, which can send several arrays at once, gradients keep their own
// memory.
//
// The first pass shows in which order gradients become ready. The buckets are then planned again, in the order of rank
// 0.
#pragma once

#include <cstddef>

#include <gradus/autograd/tensor.h>
#include <gradus/core/ordered_dict.h>
#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {

// Gradients are sent in buckets, because many small all-reduces are limited by the latency of the network, and a single
// large one cannot begin before the end of the backward pass (Li et al., "PyTorch Distributed: experiences on
// accelerating data parallel training", 2020, section 3.2.2).

struct BucketSizes {
  size_t first = 1 << 20;  ///< bytes of the first bucket, which is smaller so that communication begins early
  size_t others = 25 << 20;
};

/// The buckets in the order in which they are expected to fill. Each bucket contains indices into `parameters`.
using BucketPlan = std::vector<std::vector<size_t>>;

/// Distributes the gradients of `parameters` over buckets, in the `order` in which they are expected. All gradients in
/// a bucket have one dtype and device, and a bucket is closed when it has reached its size.
BucketPlan plan_buckets(const std::vector<Array>& parameters, const std::vector<size_t>& order,
                        const BucketSizes& sizes);

/// A view of x, which must be dense, with one dimension: its elements in the order in which they are in memory.
Array as_line(const Array& x);
/// A view of the one-dimensional `flat` from element `begin` on, with the shape of `like` and, if `like` is dense, its
/// strides. The view does not share the version counter of `flat`, whose other elements belong to other tensors.
Array slice_like(const Array& flat, int64_t begin, const Array& like);

struct ReducerOptions {
  BucketSizes bucket_sizes;
  bool zero_unused = false;          ///< a parameter without a gradient counts as 0 instead of being an error
  bool strict = false;               ///< CollectiveOptions::strict
  std::optional<DType> compression;  ///< the half type in which gradients are sent
};

class Reducer {
 public:
  /// The parameters must require gradients, and must be the same on all ranks with the same strides.
  Reducer(const OrderedDict<std::string, Tensor>& parameters, GroupPtr group, ReducerOptions options);

  /// Call this when gradient `index` is ready. Throws an AutogradError if it was already added in this pass.
  void add(size_t index);
  /// Adds 0 as every gradient; for a rank that has no batch in a pass of the other ranks.
  void add_zeros();
  /// Throws an AutogradError that names the parameters without a gradient in this pass, unless they count as 0.
  void flush();
  void finalize();
  /// Ends the pass at once, and gradients are not averaged. The caller must then end the group, because this rank may
  /// have begun fewer collectives of the pass than other ranks.
  void cancel();
  /// True from the first add() of a pass to the end of the pass.
  bool in_pass() const { return in_pass_; }

 private:
  struct Bucket {
    std::vector<size_t> members;
    Array flat;  // all members, each aligned to 64 bytes; undefined if gradients keep their own memory
    Array sent;  // the array that is sent: `flat`, or its copy in the half type
    size_t missing = 0;
    ProcessGroup::WorkPtr work;

    bool is_compressed() const { return sent.dtype() != flat.dtype(); }
  };

  void launch_full();
  /// Sets this rank's gradient to 0.
  void set_zero(size_t index);
  /// Distributes the gradients over buckets by the `order` in which they are expected.
  void plan(const std::vector<size_t>& order);
  void plan_by_order_of_first_rank();

  std::vector<std::string> names_;
  TensorList parameters_;
  const GroupPtr group_;
  const ReducerOptions options_;
  const bool in_place_;  // gradients keep their own memory
  std::vector<Bucket> buckets_;
  std::vector<Array> slots_;       // for each parameter, its part of a bucket; undefined if in_place_
  std::vector<size_t> bucket_of_;  // for each parameter, the index of its bucket
  std::vector<bool> arrived_;      // for each parameter, whether its gradient was added in this pass
  std::vector<size_t> order_;      // parameters in the order in which their gradients were added in this pass
  size_t next_ = 0;                // the bucket to launch next
  bool in_pass_ = false, planned_by_order_ = false;
};

}  // namespace gradus::dist
