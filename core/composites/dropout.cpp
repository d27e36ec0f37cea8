// Dropout and its gradient.
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

void Backend::dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
                      const MutableView& y) {
  bernoulli(mask, state, 1 - p);
  dropout_backward(x, mask, p, y);  // computes the same product
}

void Backend::dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx) {
  const Arithmetic math(*this);
  const Array scaled = math(mul, dy, 1 / (1 - p));
  math.where(mask, scaled, math.scalar(0, dy.dtype, dy.device), dx);  // a product would give NaN for p = 1
}

}  // namespace gradus
