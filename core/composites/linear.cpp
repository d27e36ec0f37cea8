// y = x wᵀ + bias: a matrix product added to the bias.
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;

void Backend::linear(const View& x, const View& w, const View& bias, const MutableView& y) {
  const View w_transposed = reshaped(w, {w.shape[1], w.shape[0]}, {w.strides[1], w.strides[0]});  // (K, N)
  if (bias) copy(expanded(bias, y.shape), y);
  matmul(x, w_transposed, y, /*accumulate=*/static_cast<bool>(bias));
}

}  // namespace gradus
