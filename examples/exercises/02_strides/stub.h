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
  todo("address: the offset, and for each dimension index times stride");
}

/// Dimensions a and b change places.
inline Layout transpose(const Layout& x, size_t a, size_t b) { todo("transpose"); }

/// Elements start, start + step, … of dimension d, as long as they are below end.
inline Layout slice(const Layout& x, size_t d, int64_t start, int64_t end, int64_t step) {
  todo("slice: another size, stride and offset");
}

/// Dimension d, of size 1, as one of size `size` that shows its element again and again.
inline Layout expand(const Layout& x, size_t d, int64_t size) {
  todo("expand: which stride leads to the same element?");
}

/// The same elements in the same order under another shape, or nothing where no strides give that. No size is zero.
inline std::optional<Layout> view(const Layout& x, const Numbers& shape) {
  todo("view: merge what is one run in memory, and cut it anew");
}
