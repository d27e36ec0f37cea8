#include "../common/exercise.h"

using Numbers = std::vector<int64_t>;

/// The shape of an element-wise result of operands of shapes a and b, or nothing where they do not fit.
inline std::optional<Numbers> broadcast_shape(const Numbers& a, const Numbers& b) {
  todo("broadcast_shape: align both at the right; sizes must be equal or one of them 1 or missing");
}

/// The gradient of an operand of that shape, of which `dy` is the gradient after broadcasting.
inline gradus::Tensor sum_to_shape(const gradus::Tensor& dy, const Numbers& shape) {
  todo("sum_to_shape: sum over the dimensions that were added in front, and over those that were stretched from 1");
}
