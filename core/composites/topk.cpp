// topk as the first k elements of a full sort.
#include <gradus/core/composites/arithmetic.h>

namespace gradus {

using namespace composites;

void Backend::topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) {
  if (indices.numel() == 0) return;
  const Array sorted = Array::empty(x.shape, x.dtype, x.device), order = Array::empty(x.shape, DType::i64, x.device);
  sort(x, axis, largest, sorted, order);
  const auto first = [&](const Array& all) { return all.ndim() ? all.slice(axis, 0, indices.shape[axis]) : all; };
  copy(first(sorted), values), copy(first(order), indices);
}

}  // namespace gradus
