// Which gradients are sent together: many small all-reduces wait for the network's latency, a single large one for the
// end of the backward pass (Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", 2020,
// section 3.2.2).
#pragma once

#include <cstddef>
#include <vector>

#include <gradus/core/array/array.h>

namespace gradus::dist {

struct BucketSizes {
  size_t first = 1 << 20;  ///< bytes of the first bucket: so that communication begins early
  size_t others = 25 << 20;
};

/// The buckets in the order in which they are expected to fill: indices into `parameters`, each once.
using BucketPlan = std::vector<std::vector<size_t>>;

/// Fills buckets with the gradients of `parameters`, in the `order` in which they are expected. A bucket holds one
/// dtype on one device, and is closed when it has reached its size.
BucketPlan plan_buckets(const std::vector<Array>& parameters, const std::vector<size_t>& order,
                        const BucketSizes& sizes);

/// x, which is dense, as one dimension in its order in memory.
Array as_line(const Array& x);
/// The part of the one-dimensional `flat` from element `begin` on, in the shape and, where that is dense, the order in
/// memory of `like`. It counts its own versions: its neighbours are other tensors.
Array slice_like(const Array& flat, int64_t begin, const Array& like);

}  // namespace gradus::dist
