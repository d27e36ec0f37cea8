// RGB to grayscale.
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

void Backend::rgb_to_grayscale(const View& x, const MutableView& y) {
  const Arithmetic math(*this);
  const int axis = x.ndim() - 3;
  auto weighted = [&](int channel, double weight) {
    return math(mul, math.widen(narrow(x, axis, channel, 1)), weight);
  };
  copy(math(add, math(add, weighted(0, 0.2989), weighted(1, 0.5870)), weighted(2, 0.1140)), y);
}

}  // namespace gradus
