// Which parts of a model to run a second time in backward, instead of keeping what they computed: memory for time.
// Plans (plan.h) choose the parts, autograd's checkpoint (autograd/checkpoint.h) carries them out; gradients keep their
// bits.
//
//   recompute_within(net, {64, 3, 96, 96}, optimizer, int64_t{1} << 30);   // until the step takes at most 1 GiB
#pragma once

#include <gradus/training/plan.h>

namespace gradus {

/// A checkpoint: a module, or of a Sequential the modules [begin, end).
struct RecomputedPart {
  std::string module;
  size_t begin = 0, end = 0;  ///< both 0: the whole module
  int64_t saved = 0;          ///< bytes that it alone takes from MemoryReport::activations
  double flops = 0;           ///< that it costs

  std::string str() const;  ///< "layer1[0, 2)"
};

/// Nothing of the model is recomputed any more.
void keep_all(const nn::AnyModule& model);

/// Selective recomputation. Candidates are all runs of modules in the outermost Sequentials, and the model's other
/// children. They are taken in the order of FLOPs for each byte saved, but those that make the planned peak higher,
/// until it is within `budget` bytes; then those that are not needed go. Where this does not reach the budget, and full
/// recomputation needs less, it is that. Returns what is recomputed from then on: nothing where the step fits as it is.
std::vector<RecomputedPart> recompute_within(const nn::AnyModule& model, const Shape& input_shape,
                                             optim::Optimizer& optimizer, int64_t budget,
                                             const PlanOptions& options = {});

/// Full recomputation: all modules of the outermost Sequentials, in as many equal runs as give the least peak (about
/// the square root of their number, as in Chen et al. 2016), and those other children that keep something for backward.
std::vector<RecomputedPart> recompute_all(const nn::AnyModule& model, const Shape& input_shape,
                                          optim::Optimizer& optimizer, const PlanOptions& options = {});

template <PlannableModule M>
void keep_all(const M& model) {
  keep_all(nn::AnyModule(model));
}
template <PlannableModule M>
std::vector<RecomputedPart> recompute_within(const M& model, const Shape& input_shape, optim::Optimizer& optimizer,
                                             int64_t budget, const PlanOptions& options = {}) {
  return recompute_within(nn::AnyModule(model), input_shape, optimizer, budget, options);
}
template <PlannableModule M>
std::vector<RecomputedPart> recompute_all(const M& model, const Shape& input_shape, optim::Optimizer& optimizer,
                                          const PlanOptions& options = {}) {
  return recompute_all(nn::AnyModule(model), input_shape, optimizer, options);
}

}  // namespace gradus
