// Selects parts of a model that are run again in backward instead of keeping what they computed: memory for time. Plans
// (plan.h) select the parts, and autograd's checkpoint (autograd/checkpoint.h) runs them. Gradients remain exactly the
// same.
//
//   recompute_within(net, {64, 3, 96, 96}, optimizer, int64_t{1} << 30);   // until the step takes at most 1 GiB
#pragma once

#include <gradus/training/plan.h>

namespace gradus {

/// A checkpointed part: a module, or the modules [begin, end) of a Sequential.
struct RecomputedPart {
  std::string module;
  size_t begin = 0, end = 0;  ///< both 0: the whole module
  int64_t saved = 0;          ///< by how much MemoryReport::activations falls if only this part is recomputed
  double flops = 0;           ///< cost of running it again

  std::string str() const;  ///< "layer1[0, 2)"
};

/// Disables all recomputation in the model.
void keep_all(const PlannedModel& model);

/// Selective recomputation. Candidates are all ranges of modules in the outermost Sequentials, and the model's other
/// children. Candidates are added in the order of FLOPs per byte saved, except those that raise the planned peak, until
/// the peak is at most `budget` bytes; then unnecessary parts are removed. If the budget is not reached, and full
/// recomputation needs less, uses full recomputation. Returns the parts that are recomputed from now on; none if the
/// step fits without recomputation.
std::vector<RecomputedPart> recompute_within(const PlannedModel& model, const Shape& input_shape,
                                             optim::Optimizer& optimizer, int64_t budget,
                                             const PlanOptions& options = {});

/// Full recomputation: divides the modules of the outermost Sequentials into the number of equal ranges with the lowest
/// peak (about the square root of the number of modules, as in Chen et al. 2016), and adds the other children that save
/// something for backward.
std::vector<RecomputedPart> recompute_all(const PlannedModel& model, const Shape& input_shape,
                                          optim::Optimizer& optimizer, const PlanOptions& options = {});

}  // namespace gradus
