#include <gradus/distributed/distributed.h>

#include "../common/exercise.h"

using gradus::Tensor;

class Buckets {
 public:
  /// Averages the gradients of `parameters` over the ranks of `group` during the backward pass, in buckets of at least
  /// `bucket_elements` numbers (the last bucket may be smaller).
  Buckets(const std::vector<Tensor>& parameters, gradus::dist::ProcessGroup& group, int64_t bucket_elements)
      : group(group) {
    for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
      if (buckets.empty() || buckets.back().elements >= bucket_elements) buckets.emplace_back();
      const size_t number = buckets.size() - 1, place = buckets.back().parameters.size();
      buckets.back().parameters.push_back(*parameter);
      buckets.back().offsets.push_back(buckets.back().elements);
      buckets.back().elements += parameter->numel();
      parameter->register_post_accumulate_grad_hook(
          [this, number, place](const Tensor&) { ready(buckets[number], place); });
    }
    for (Bucket& bucket : buckets) {
      bucket.flat = gradus::empty({bucket.elements});
      bucket.missing = bucket.parameters.size();
    }
  }

  /// Call it after backward(). When it returns, every gradient is the average over all ranks.
  void finish() {
    // [hole] finish: for each bucket wait, copy the averages back, and reset it for the next step
    for (Bucket& bucket : buckets) {
      bucket.work->wait();
      for (size_t i = 0; i < bucket.parameters.size(); ++i) {
        const Tensor grad = bucket.parameters[i].grad();
        grad.copy_(bucket.flat.narrow(0, bucket.offsets[i], grad.numel()).reshape(grad.sizes()));
      }
      bucket.missing = bucket.parameters.size();
    }
    // [end]
  }

  int collectives = 0;  // number of collectives that were started

 private:
  struct Bucket {
    std::vector<Tensor> parameters;
    std::vector<int64_t> offsets;  // offsets of the gradients in `flat`
    int64_t elements = 0;
    Tensor flat;
    size_t missing = 0;                        // number of gradients that are not complete yet in this step
    std::shared_ptr<gradus::dist::Work> work;  // the running collective
  };

  /// Called when the gradient of bucket.parameters[place] is complete.
  void ready(Bucket& bucket, size_t place) {
    // [hole] ready: copy the gradient into bucket.flat; with the last one, start averaging, and count that
    const gradus::NoGradGuard no_grad;
    const Tensor grad = bucket.parameters[place].grad();
    bucket.flat.narrow(0, bucket.offsets[place], grad.numel()).copy_(grad.reshape(-1));
    if (--bucket.missing > 0) return;
    bucket.work = group.all_reduce(bucket.flat.array(), gradus::dist::ReduceKind::avg, {.async = true});
    ++collectives;
    // [end]
  }

  gradus::dist::ProcessGroup& group;
  std::vector<Bucket> buckets;
};
