#include <gradus/distributed/parallel/bucket_plan.h>

#include <algorithm>
#include <utility>

namespace gradus::dist {

BucketPlan plan_buckets(const std::vector<Array>& parameters, const std::vector<size_t>& order,
                        const BucketSizes& sizes) {
  struct Open {
    std::vector<size_t> members;
    size_t bytes = 0;
  };
  BucketPlan plan;
  std::vector<Open> open;  // at most one for each dtype and device
  for (const size_t index : order) {
    const Array& parameter = parameters[index];
    const auto takes = [&](const Open& bucket) {
      const Array& first = parameters[bucket.members.front()];
      return first.dtype() == parameter.dtype() && first.device() == parameter.device();
    };
    auto bucket = std::find_if(open.begin(), open.end(), takes);
    if (bucket == open.end()) bucket = open.insert(open.end(), Open{});
    bucket->members.push_back(index);
    bucket->bytes += parameter.nbytes();
    if (bucket->bytes < (plan.empty() ? sizes.first : sizes.others)) continue;
    plan.push_back(std::move(bucket->members));
    open.erase(bucket);
  }
  for (Open& bucket : open) plan.push_back(std::move(bucket.members));
  return plan;
}

Array as_line(const Array& x) { return {x.storage(), x.offset(), {x.numel()}, {1}, x.dtype()}; }

Array slice_like(const Array& flat, int64_t begin, const Array& like) {
  const size_t element = size_of(flat.dtype());
  const Storage storage = flat.storage().slice(static_cast<size_t>(flat.offset() + begin) * element,
                                               static_cast<size_t>(like.numel()) * element);
  const Strides strides = like.is_dense() ? like.strides() : contiguous_strides(like.shape());
  return Array(storage, 0, like.shape(), strides, like.dtype());
}

}  // namespace gradus::dist
