// Saves memory by recomputation: the backward pass runs some parts of a model again, so that the forward pass need not
// keep their activations. Reports of the step's memory (training/memory_report.h) decide which parts; checkpoint() of
// autograd/checkpoint.h runs them again. Gradients remain exactly the same.
//
//   recompute_within(net, {64, 3, 96, 96}, optimizer, int64_t{1} << 30);   // until the step takes at most 1 GiB
#pragma once

#include <gradus/training/memory_report.h>

namespace gradus {

/// A recomputed part of a model: a module, or the modules [begin, end) of a Sequential.
struct RecomputedPart {
  std::string module;
  size_t begin = 0, end = 0;  ///< both 0: the whole module
  int64_t saved = 0;          ///< by how many bytes MemoryReport::activations falls if only this part is recomputed
  double flops = 0;           ///< FLOPs for running the part again

  std::string str() const;  ///< text such as "layer1[0, 2)"
};

/// Disables all recomputation in the model, so that the forward pass keeps all activations.
void keep_all(const PlannedModel& model);

/// Selective recomputation: recomputes parts until the reported peak of the step is at most `budget` bytes. If the
/// model is a Sequential, the candidates are all ranges of its modules. Otherwise they come from the model's children:
/// all ranges of modules of a child that is a Sequential, and each other child as a whole. Candidates are added in the
/// order of their FLOPs per byte saved, but a candidate that raises the peak is left out. At the end, parts that are
/// not needed for the budget are removed. If the peak stays above the budget and recompute_all() has a lower peak, the
/// parts of recompute_all() are used. Returns the parts that are recomputed from now on; none if the step fits without
/// recomputation.
std::vector<RecomputedPart> recompute_within(const PlannedModel& model, const Shape& input_shape,
                                             optim::Optimizer& optimizer, int64_t budget,
                                             const PlanOptions& options = {});

/// Full recomputation: divides the modules of the model, if it is a Sequential, or else of each child that is a
/// Sequential, into ranges of almost equal length, and recomputes all ranges. Tries each number of ranges and takes the
/// one with the lowest peak (about the square root of the number of modules, as in Chen et al. 2016). Also recomputes
/// each other child of the model whose recomputation saves memory.
std::vector<RecomputedPart> recompute_all(const PlannedModel& model, const Shape& input_shape,
                                          optim::Optimizer& optimizer, const PlanOptions& options = {});

}  // namespace gradus
