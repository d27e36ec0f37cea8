// Normalisation of arrays; Backend::normalize has the formulas.
#pragma once

#include <gradus/core/ops/common.h>

namespace gradus::ops {

struct Normalized {
  Array y, mean, variance;
};
/// What is kept of the batches seen (gradus::RunningStatistics); undefined arrays are not kept.
struct KeptStatistics {
  Array mean, variance, batches;
  double momentum = 0;
};
/// Over `axes`. weight and bias, where defined, have x's rank with size 1 where they are broadcast, and x's type (or
/// float32 where x is of a half type). Where mean and variance are given (x's rank, size 1 at `axes`), they are used
/// and returned, else computed, in float32 for half types, and what is kept of them moves in place, by the unbiased
/// variance. With relu, y is the ReLU of that plus residual, where defined, of x's shape and type.
Normalized normalize(const Array& x, uint32_t axes, const Array& weight, const Array& bias, double eps,
                     const Array& mean = {}, const Array& variance = {}, bool relu = false, const Array& residual = {},
                     const KeptStatistics& kept = {});

/// Moves what is kept towards a batch's mean and (unbiased) variance of each channel, (C), and counts the batch.
void update_running_statistics(const KeptStatistics& kept, const Array& mean, const Array& variance);

struct NormalizeGradients {
  Array dx, dweight, dbias, dresidual;
};
/// The ReLU behind a normalisation, as its gradient sees it.
struct NormalizeRelu {
  Array y = {};        ///< the result; undefined where there was no ReLU, and then the rest does not count
  Array bias = {};     ///< of the normalisation, where `alone`
  bool alone = false;  ///< there was no residual
  bool want_dresidual = false;
  bool may_overwrite = false;  ///< nobody needs dy any more: dresidual takes its memory
  Array addend = {};           ///< to dy, where that is still in two parts
};
/// Those that are wanted; dweight and dbias have the shape `parameters`, in float32 for half types.
NormalizeGradients normalize_backward(const Array& dy, const Array& x, const Array& mean, const Array& variance,
                                      uint32_t axes, const Array& weight, const Shape& parameters, double eps,
                                      bool fixed_statistics, bool want_dx, bool want_dweight, bool want_dbias,
                                      const NormalizeRelu& relu = {});

}  // namespace gradus::ops
