#include "../common/exercise.h"

using Numbers = std::vector<int64_t>;

/// Describes where the elements of a tensor are in memory. Strides and offset count elements.
struct Layout {
  Numbers shape, strides;
  int64_t offset = 0;
};

/// Returns the layout of a tensor that is stored row by row.
inline Layout contiguous(const Numbers& shape) {
  Layout layout{shape, Numbers(shape.size()), 0};
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0; step *= shape[d]) layout.strides[d] = step;
  return layout;
}

/// Returns the address of the element at `index`.
inline int64_t address(const Layout& x, const Numbers& index) {
  // [hole] address: the offset, and for each dimension index times stride
  int64_t at = x.offset;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * x.strides[d];
  return at;
  // [end]
}

/// Exchanges dimensions a and b.
inline Layout transpose(const Layout& x, size_t a, size_t b) {
  // [hole] transpose
  Layout y = x;
  std::swap(y.shape[a], y.shape[b]);
  std::swap(y.strides[a], y.strides[b]);
  return y;
  // [end]
}

/// Takes the elements start, start + step, … below `end` of dimension d.
inline Layout slice(const Layout& x, size_t d, int64_t start, int64_t end, int64_t step) {
  // [hole] slice: another size, stride and offset
  Layout y = x;
  y.shape[d] = (end - start + step - 1) / step;
  y.strides[d] = x.strides[d] * step;
  y.offset = x.offset + start * x.strides[d];
  return y;
  // [end]
}

/// Makes dimension d, of size 1, a dimension of size `size` that repeats its element.
inline Layout expand(const Layout& x, size_t d, int64_t size) {
  // [hole] expand: which stride leads to the same element?
  Layout y = x;
  y.shape[d] = size;
  y.strides[d] = 0;
  return y;
  // [end]
}

/// Returns the layout of the same elements in the same order with another shape, or nothing if no strides can do this.
/// No size is 0.
inline std::optional<Layout> view(const Layout& x, const Numbers& shape) {
  // [hole] view: merge dimensions that are one run in memory, then divide the runs into new dimensions
  Layout y{shape, Numbers(shape.size(), 1), x.offset};
  size_t next = shape.size();  // the new dimensions from `next` on have their strides
  for (size_t d = x.shape.size(); d-- > 0;) {
    // Merges old dimensions, starting with d and going to the front, as long as they are one run in memory.
    const int64_t step = x.strides[d];
    int64_t run = x.shape[d];
    while (d > 0 && (x.shape[d - 1] == 1 || x.strides[d - 1] == run * step)) run *= x.shape[--d];
    int64_t cut = 1;
    while (next > 0 && (cut < run || shape[next - 1] == 1)) {
      --next;
      y.strides[next] = cut * step;
      cut *= shape[next];
    }
    if (cut != run) return std::nullopt;
  }
  return y;
  // [end]
}
