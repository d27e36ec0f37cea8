#include <gradus/distributed/parallel/reducer.h>

#include <algorithm>
#include <numeric>

#include <gradus/core/ops/ops.h>

namespace gradus::dist {
namespace {

/// Alignment of a gradient in its bucket, in bytes, for vector instructions and cache lines.
constexpr int64_t kAlignment = 64;

int64_t aligned_count(const Tensor& parameter) {
  return round_up(parameter.numel(), kAlignment / static_cast<int64_t>(size_of(parameter.dtype())));
}

}  // namespace

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

Reducer::Reducer(const OrderedDict<std::string, Tensor>& parameters, GroupPtr group, ReducerOptions options)
    : names_(parameters.keys()), parameters_(parameters.values()), group_(std::move(group)),
      options_(std::move(options)), in_place_(group_->coalesces() && !options_.compression), slots_(parameters_.size()),
      bucket_of_(parameters_.size()), arrived_(parameters_.size()) {
  std::vector<size_t> reversed(parameters_.size());  // the probable order until the first pass has shown the real one
  std::iota(reversed.rbegin(), reversed.rend(), size_t{0});
  plan(reversed);
}

void Reducer::plan(const std::vector<size_t>& order) {
  std::vector<Array> arrays;
  for (const Tensor& parameter : parameters_) arrays.push_back(parameter.array());
  const BucketPlan planned = plan_buckets(arrays, order, options_.bucket_sizes);
  if (std::ranges::equal(planned, buckets_, {}, {}, &Bucket::members)) return;
  buckets_.clear();
  for (const std::vector<size_t>& members : planned) {
    const Tensor& first = parameters_[members.front()];
    Bucket& bucket = buckets_.emplace_back();
    bucket.members = members;
    bucket.missing = members.size();
    int64_t count = 0, begin = 0;
    for (const size_t i : members) {
      count += aligned_count(parameters_[i]);
      bucket_of_[i] = buckets_.size() - 1;
    }
    if (in_place_) continue;
    bucket.flat = group_->empty({count}, first.dtype(), first.device());
    ops::fill(bucket.flat, 0);
    const bool compressed = options_.compression && size_of(*options_.compression) < size_of(first.dtype());
    bucket.sent = compressed ? group_->empty({count}, *options_.compression, first.device()) : bucket.flat;
    for (const size_t i : members) {
      slots_[i] = slice_like(bucket.flat, begin, parameters_[i].array());
      parameters_[i].bind_grad(slots_[i]);  // copies a gradient that exists already
      begin += aligned_count(parameters_[i]);
    }
  }
}

void Reducer::add(size_t index) {
  GRADUS_CHECK(!arrived_[index], AutogradError, "the gradient of '", names_[index],
               "' was added twice in one backward pass");
  // The caller may have replaced the gradient by another tensor, or moved the parameter.
  if (!in_place_ && parameters_[index].grad().array().data() != slots_[index].data())
    parameters_[index].bind_grad(slots_[index]);
  in_pass_ = true;
  arrived_[index] = true;
  order_.push_back(index);
  --buckets_[bucket_of_[index]].missing;
  launch_full();
}

void Reducer::add_zeros() {
  for (size_t i = 0; i < parameters_.size(); ++i) set_zero(i);
  for (const Bucket& bucket : buckets_)
    for (const size_t i : bucket.members) add(i);
}

void Reducer::set_zero(size_t index) {
  const Array zeros = in_place_ ? Array::empty_like(parameters_[index].array()) : slots_[index];
  ops::fill(zeros, 0);
  parameters_[index].mutable_grad() = Tensor(zeros);
}

void Reducer::launch_full() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
    Bucket& bucket = buckets_[next_];
    const CollectiveOptions options = {.async = true, .strict = options_.strict};
    if (in_place_) {
      std::vector<Array> gradients;
      for (const size_t i : bucket.members) gradients.push_back(as_line(parameters_[i].grad().array()));
      bucket.work = group_->all_reduce_coalesced(gradients, ReduceKind::avg, options);
      continue;
    }
    if (bucket.is_compressed()) ops::copy_into(bucket.sent, bucket.flat);
    bucket.work = group_->all_reduce(bucket.sent, ReduceKind::avg, options);
  }
}

void Reducer::flush() {
  std::string missing;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (arrived_[i]) continue;
    missing += (missing.empty() ? "'" : ", '") + names_[i] + "'";
    if (!options_.zero_unused) continue;
    if (!parameters_[i].grad().defined()) set_zero(i);
    add(i);
  }
  GRADUS_CHECK(missing.empty() || options_.zero_unused, AutogradError, "rank ", group_->rank(),
               " has no gradient in this backward pass for ", missing,
               ": the loss does not depend on it, or it was frozen later. Leave it out of the net, or set "
               "find_unused_parameters(true), which counts it as 0");
}

void Reducer::finalize() {
  for (const Bucket& bucket : buckets_) {
    bucket.work->wait();
    if (in_place_) continue;
    if (bucket.is_compressed()) ops::copy_into(bucket.flat, bucket.sent);
    for (const size_t i : bucket.members) slots_[i].bump_version();
  }
  // Planning by order reads numbers from the device, which is impossible during a capture.
  if (!planned_by_order_ && !runtime(parameters_[0].device().type()).capturing()) plan_by_order_of_first_rank();
  cancel();
}

void Reducer::cancel() {
  for (Bucket& bucket : buckets_) {
    bucket.work.reset();
    bucket.missing = bucket.members.size();
  }
  std::fill(arrived_.begin(), arrived_.end(), false);
  order_.clear();
  next_ = 0;
  in_pass_ = false;
}

void Reducer::plan_by_order_of_first_rank() {
  planned_by_order_ = true;
  Array order = Array::empty({static_cast<int64_t>(order_.size())}, DType::i64);
  std::copy(order_.begin(), order_.end(), order.data<int64_t>());
  const Array there = ops::to_device(order, parameters_[0].device());
  group_->broadcast(there, 0);
  order = ops::to_device(there, Device());
  const int64_t* const first = order.data<int64_t>();
  plan({first, first + order.numel()});
}

}  // namespace gradus::dist
