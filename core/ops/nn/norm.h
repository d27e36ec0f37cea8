// Normalisation and dropout of arrays. The formulas are in core/kernel_args.h (NormalizeArgs) and core/backend.h.
#pragma once

#include <tuple>

#include <gradus/core/ops/operands.h>
#include <gradus/core/runtime/random.h>

namespace gradus::ops {

struct Normalized {
  Array y, mean, variance;
};
/// Running statistics of the batches seen (gradus::RunningStatistics); those that are undefined are not updated.
struct KeptStatistics {
  Array mean, variance, batches;
  double momentum = 0;
};
/// Normalises over `axes`. weight and bias may be undefined; they have x's rank, with size 1 where they are broadcast,
/// and x's type (or float32 if x has a half type). If mean and variance are given (x's rank, size 1 at `axes`), they
/// are used and returned. Otherwise they are computed from x (in float32 for half types), and the running statistics in
/// `kept` are updated in place, with the unbiased variance. With `relu`, y is the ReLU of the normalised x plus
/// `residual` (may be undefined; x's shape and type).
Normalized normalize(const Array& x, uint32_t axes, const Array& weight, const Array& bias, double eps,
                     const Array& mean = {}, const Array& variance = {}, bool relu = false, const Array& residual = {},
                     const KeptStatistics& kept = {});

/// Updates the running statistics with a batch's mean and unbiased variance of each channel, (C), and counts the batch.
void update_running_statistics(const KeptStatistics& kept, const Array& mean, const Array& variance);

struct NormalizeGradients {
  Array dx, dweight, dbias, dresidual;
};
/// The ReLU that followed a normalisation, for its gradient.
struct NormalizeRelu {
  Array y = {};        ///< the forward result; undefined if there was no ReLU, and then the other members are ignored
  Array bias = {};     ///< the bias of the normalisation; only with `alone`
  bool alone = false;  ///< ReLU was applied without a residual
  bool want_dresidual = false;
  bool may_overwrite = false;  ///< dresidual may reuse the memory of dy
  Array addend = {};           ///< second summand of the gradient: it is dy + addend
};
/// Returns the requested gradients. dweight and dbias have the shape `parameters` (in float32 for half types).
NormalizeGradients normalize_backward(const Array& dy, const Array& x, const Array& mean, const Array& variance,
                                      uint32_t axes, const Array& weight, const Shape& parameters, double eps,
                                      bool fixed_statistics, bool want_dx, bool want_dweight, bool want_dbias,
                                      const NormalizeRelu& relu = {});

/// Returns (x * mask / (1 - p), boolean mask); the mask is drawn from `generator`.
std::tuple<Array, Array> dropout(const Array& x, double p, Generator& generator = default_generator());
/// dy * mask / (1 - p)
Array dropout_backward(const Array& dy, const Array& mask, double p);

}  // namespace gradus::ops
