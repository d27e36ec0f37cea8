#include "../common/exercise.h"

using Numbers = std::vector<int64_t>;

/// Returns the shape of the element-wise result of operands with shapes a and b, or nothing if they cannot be
/// broadcast.
inline std::optional<Numbers> broadcast_shape(const Numbers& a, const Numbers& b) {
  // [hole] broadcast_shape: align both at the right; sizes must be equal or one of them 1 or missing
  const size_t n = std::max(a.size(), b.size());
  Numbers shape(n);
  for (size_t d = 0; d < n; ++d) {
    const int64_t size_a = d + a.size() < n ? 1 : a[d + a.size() - n];
    const int64_t size_b = d + b.size() < n ? 1 : b[d + b.size() - n];
    if (size_a != size_b && size_a != 1 && size_b != 1) return std::nullopt;
    shape[d] = size_a == 1 ? size_b : size_a;
  }
  return shape;
  // [end]
}

/// Returns the gradient of an operand of this shape, given the gradient `dy` of the broadcast operand.
inline gradus::Tensor sum_to_shape(const gradus::Tensor& dy, const Numbers& shape) {
  // [hole] sum_to_shape: sum over the dimensions that were added in front, and over those that were stretched from 1
  gradus::Tensor sum = dy;
  while (sum.dim() > static_cast<int64_t>(shape.size())) sum = sum.sum(0);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1 && sum.size(static_cast<int64_t>(d)) != 1)
      sum = sum.sum(static_cast<int64_t>(d), /*keepdim=*/true);
  return sum;
  // [end]
}
