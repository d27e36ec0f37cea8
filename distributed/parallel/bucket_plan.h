// Decides which gradients are sent together. Many small all-reduces are limited by the latency of the network, and a
// single large one cannot begin before the end of the backward pass (Li et al., "PyTorch Distributed: experiences on
// accelerating data parallel training", 2020, section 3.2.2).
#pragma once

#include <cstddef>
#include <vector>

#include <gradus/core/array/array.h>

namespace gradus::dist {

struct BucketSizes {
  size_t first = 1 << 20;  ///< bytes of the first bucket, which is smaller so that communication begins early
  size_t others = 25 << 20;
};

/// The buckets in the order in which they are expected to fill. Each contains indices into `parameters`.
using BucketPlan = std::vector<std::vector<size_t>>;

/// Distributes the gradients of `parameters` over buckets, in the `order` in which they are expected. All gradients in
/// a bucket have one dtype and device, and a bucket is closed when it has reached its size.
BucketPlan plan_buckets(const std::vector<Array>& parameters, const std::vector<size_t>& order,
                        const BucketSizes& sizes);

/// x, which must be dense, as one dimension in its order in memory.
Array as_line(const Array& x);
/// A view of the one-dimensional `flat` from element `begin` on, with the shape of `like` and, if `like` is dense, its
/// strides. The view has a version counter of its own, because its neighbours in memory belong to other tensors.
Array slice_like(const Array& flat, int64_t begin, const Array& like);

}  // namespace gradus::dist
