#include <gradus/distributed/distributed.h>

#include "../common/exercise.h"

using gradus::Tensor;

class Buckets {
 public:
  /// Averages the gradients of `parameters` over the ranks of `group`, during backward, in buckets of at least
  /// `bucket_elements` numbers (but for the last).
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

  /// Called after backward: every gradient is the average of all ranks' when it returns.
  void finish() { todo("finish: for each bucket wait, copy the averages back, and begin anew"); }

  int collectives = 0;  // that were started

 private:
  struct Bucket {
    std::vector<Tensor> parameters;
    std::vector<int64_t> offsets;  // of their gradients in flat
    int64_t elements = 0;
    Tensor flat;
    size_t missing = 0;                        // gradients that this step has not given yet
    std::shared_ptr<gradus::dist::Work> work;  // the average on its way
  };

  /// Called when the gradient of bucket.parameters[place] is complete.
  void ready(Bucket& bucket, size_t place) {
    todo("ready: copy the gradient into bucket.flat; with the last one, start averaging (and count it in collectives)");
  }

  gradus::dist::ProcessGroup& group;
  std::vector<Bucket> buckets;
};
