// Dropout of arrays.
#pragma once

#include <tuple>

#include <gradus/core/ops/common.h>
#include <gradus/core/runtime/random.h>

namespace gradus::ops {

/// Returns (x * mask / (1 - p), boolean mask); the mask is drawn from `generator`.
std::tuple<Array, Array> dropout(const Array& x, double p, Generator& generator = default_generator());
/// dy * mask / (1 - p)
Array dropout_backward(const Array& dy, const Array& mask, double p);

}  // namespace gradus::ops
