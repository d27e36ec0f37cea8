#include "../common/exercise.h"

using Numbers = std::vector<int64_t>;

/// Where the elements of a tensor lie, counted in elements.
struct Layout {
  Numbers shape, strides;
  int64_t offset = 0;
};

/// Of a tensor that fills its memory row by row.
inline Layout contiguous(const Numbers& shape) {
  Layout layout{shape, Numbers(shape.size()), 0};
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0; step *= shape[d]) layout.strides[d] = step;
  return layout;
}

/// Where the element at `index` lies.
inline int64_t address(const Layout& x, const Numbers& index) {
  // [hole] address: the offset, and for each dimension index times stride
  int64_t at = x.offset;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * x.strides[d];
  return at;
  // [end]
}

/// Dimensions a and b change places.
inline Layout transpose(const Layout& x, size_t a, size_t b) {
  // [hole] transpose
  Layout y = x;
  std::swap(y.shape[a], y.shape[b]);
  std::swap(y.strides[a], y.strides[b]);
  return y;
  // [end]
}

/// Elements start, start + step, … of dimension d, as long as they are below end.
inline Layout slice(const Layout& x, size_t d, int64_t start, int64_t end, int64_t step) {
  // [hole] slice: another size, stride and offset
  Layout y = x;
  y.shape[d] = (end - start + step - 1) / step;
  y.strides[d] = x.strides[d] * step;
  y.offset = x.offset + start * x.strides[d];
  return y;
  // [end]
}

/// Dimension d, of size 1, as one of size `size` that shows its element again and again.
inline Layout expand(const Layout& x, size_t d, int64_t size) {
  // [hole] expand: which stride leads to the same element?
  Layout y = x;
  y.shape[d] = size;
  y.strides[d] = 0;
  return y;
  // [end]
}

/// The same elements in the same order under another shape, or nothing where no strides give that. No size is zero.
inline std::optional<Layout> view(const Layout& x, const Numbers& shape) {
  // [hole] view: merge what is one run in memory, and cut it anew
  Layout y{shape, Numbers(shape.size(), 1), x.offset};
  size_t next = shape.size();  // new dimensions from here on are done
  for (size_t d = x.shape.size(); d-- > 0;) {
    // The run of old dimensions that ends in d: they merge from the back.
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
