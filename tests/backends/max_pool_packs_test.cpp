// Pooling at sizes around the width of vectors: tails, odd sizes, and views that are not aligned.
#include <cmath>

#include <gradus/core/ops/nn/nn.h>
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

const Shape kImages[] = {{2, 3, 6, 16}, {1, 5, 7, 12}, {2, 1, 4, 10}, {1, 8, 5, 9},  {2, 33, 4, 6},
                         {1, 4, 3, 8},  {3, 16, 3, 3}, {1, 6, 2, 28}, {1, 12, 9, 5}, {0, 8, 4, 4}};
constexpr Pool2dGeometry kTiles = {{2, 2}, {2, 2}, {0, 0}, {1, 1}};
constexpr Pool2dGeometry kOthers[] = {{{3, 3}, {2, 2}, {1, 1}, {1, 1}}, {{3, 3}, {3, 3}, {0, 0}, {1, 1}},
                                      {{2, 2}, {3, 3}, {0, 0}, {1, 1}}, {{2, 3}, {1, 2}, {1, 0}, {2, 1}},
                                      {{2, 2}, {2, 2}, {1, 1}, {1, 1}}, {{1, 2}, {1, 2}, {0, 0}, {1, 1}}};

// Extra elements before and after the contiguous elements of an image.
struct Margin {
  int64_t before, after;
};
constexpr Margin kMargins[] = {{0, 0}, {0, 8}, {8, 0}, {1, 7}};

Array make_image(Maker& make, Shape shape, DType dtype, Layout layout, Margin margin) {
  const int axis = layout == Layout::channels_last ? 1 : 3;
  const int64_t size = shape[axis];
  shape[axis] += margin.before + margin.after;
  return make(shape, dtype, layout, -1, 1).slice(axis, margin.before, margin.before + size);
}

void check(Maker& make, const Array& x, Layout layout, Margin margin, const Pool2dGeometry& geometry, bool ceil_mode) {
  const Shape shape = ops::pool2d_shape(x.shape(), geometry, ceil_mode);
  const Array y = make_image(make, shape, x.dtype(), layout, margin);
  const Array indices = make_image(make, shape, DType::i32, layout, margin);
  check_agreement("max_pool2d", {x}, {y, indices}, [&](Backend& b, const Arrays& in, const Arrays& out) {
    b.max_pool2d(in[0], out[0], out[1], geometry);
  });
  backend("naive").max_pool2d(x, y, indices, geometry);
  const auto check_backward = [&](const Array& dy) {
    check_agreement(
        "max_pool2d_backward", {dy, indices}, {x},
        [&](Backend& b, const Arrays& in, const Arrays& out) { b.max_pool2d_backward(in[0], in[1], out[0], geometry); },
        {}, 2);
  };
  check_backward(make_image(make, shape, x.dtype(), layout, margin));
  check_backward(make({}, x.dtype()).expand(shape));  // like the gradient of a sum
}

}  // namespace

TEST_CASE("max pooling agrees on every backend at sizes around the width of vectors") {
  Maker make(26);
  for (DType dtype : kFloatingDTypes)
    for (const Shape& image : kImages)
      for (Layout layout : {Layout::contiguous, Layout::channels_last})
        for (const Margin& margin : kMargins) {
          // Multiples of 1/8, so that most windows have ties.
          const Array x = make_image(make, image, dtype, layout, margin);
          if (x.numel() > 0) visit_floating(dtype, [&]<class T> { *static_cast<T*>(x.data()) = T(NAN); });
          check(make, x, layout, margin, kTiles, false);
          check(make, x, layout, margin, kTiles, true);
          const Pool2dGeometry other = make.choice(kOthers);
          if (image[2] >= 3 && image[3] >= 3) check(make, x, layout, margin, other, false);
          // The result has another layout than the image.
          check(make, x, layout == Layout::contiguous ? Layout::channels_last : Layout::contiguous, margin, kTiles,
                false);
        }
}

TEST_CASE("average pooling and its gradient agree on every backend at sizes around the width of vectors") {
  Maker make(27);
  const auto halves = [](int64_t size) { return ops::average_stencil(size, size / 2, 2, 2, 0, false, 0); };
  const auto thirds = [](int64_t size) { return ops::average_stencil(size, size - 1, 2, 1, 0, false, 3); };
  const auto whole = [](int64_t size) { return ops::adaptive_average_stencil(size, 1); };
  const auto doubled = [](int64_t size) { return ops::nearest_stencil(size, 2 * size, 2, false); };
  using Stencils = std::pair<ops::OwnedStencil, ops::OwnedStencil>;
  for (DType dtype : kFloatingDTypes)
    for (const Shape& image : kImages)
      for (Layout layout : {Layout::contiguous, Layout::channels_last}) {
        const Margin margin = make.choice(kMargins);
        const int64_t H = image[2], W = image[3];
        for (const auto& [rows, columns] : {Stencils{whole(H), whole(W)}, Stencils{halves(H), halves(W)},
                                            Stencils{thirds(H), doubled(W)}, Stencils{whole(H), thirds(W)}}) {
          const auto check = [&](const Array& x, const ops::OwnedStencil& down, const ops::OwnedStencil& across) {
            const Shape shape{image[0], image[1], down.size_out(), across.size_out()};
            check_agreement(
                "resample2d", {x}, {make_image(make, shape, dtype, layout, margin)},
                [&](Backend& b, const Arrays& in, const Arrays& out) {
                  b.resample2d(in[0], down.view(), across.view(), out[0]);
                },
                {}, 8);
          };
          check(make_image(make, image, dtype, layout, margin), rows, columns);
          const Shape smaller{image[0], image[1], rows.size_out(), columns.size_out()};
          check(make_image(make, smaller, dtype, layout, margin), rows.transposed(), columns.transposed());
        }
      }
}
