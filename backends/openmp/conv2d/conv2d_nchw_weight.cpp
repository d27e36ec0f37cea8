// Gradient of a convolution with respect to the weights:
//   dw[k, c, r, s] = sum over images and positions of dy[k, position] plane[offset(c, r, s) + position]
// with the planes of x as in the forward pass and dy laid out at the same pitch, zero between its rows (nchw.h). Each
// element of dw is a dot product of two long vectors (dot_kernel.h). Images are dealt, by shape, into
// parts that sum on their own; the parts are added in order, so threads change no bit.
#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/conv2d/nchw.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {

template <class T>
void run(const NchwWeightTiles& t, const ConvGradientOperands<T>& o) {
  const Conv2dGeometry& geometry = o.geometry;
  const Kernels<T>& kernels = o.kernels();
  const Images<const T>&dy = o.dy, &x = o.x;
  const Images<T>& dw = o.dw;
  const int64_t filters = dy.C / geometry.groups, taps = dw.C * dw.H * dw.W;
  const auto along = [&](int axis) {
    return plane_taps(t.x, axis, conv_axes(false, geometry, axis, dy.size(axis), x.size(axis), dw.size(axis))[0]);
  };
  const std::vector<PlaneTap> rows = along(0), columns = along(1);
  const Scratch<int64_t> offsets(t.offsets_size);
  int64_t at = 0;
  for (int64_t c = 0; c < dw.C; ++c)
    for (const PlaneTap& r : rows)
      for (const PlaneTap& s : columns) offsets[at++] = t.x.offset(c, r.phase, s.phase, r.at, s.at);

  const int64_t weights = dy.C * taps, part_size = weights + dy.C;  // dw, then dbias
  const Scratch<T> partial(t.partial_size);
  const int64_t image_size = x.C * t.x.channel_stride(), dy_channel = t.dy.channel_stride();

  parallel_for(t.parts, 1, [&](int64_t begin, int64_t end) {
    const Scratch<T> planes(t.x_size), gradients(t.dy_size);
    for (int64_t part = begin; part < end; ++part) {
      T* sums = partial.get() + part * part_size;
      std::fill_n(sums, part_size, T(0));
      const int64_t last = std::min(t.items, (part + 1) * t.items_in_part);
      for (int64_t item = part * t.items_in_part; item < last; item += t.images) {
        const int64_t images = std::min(t.images, last - item);
        // What is read along with zeros of dy: zero times anything but a NaN is zero.
        std::fill(planes.get() + images * image_size, planes.get() + t.x_size, T(0));
        for (int64_t i = 0; i < images; ++i) {
          const int64_t n = (item + i) / t.bands, first = (item + i) % t.bands * t.band;
          fill_planes(kernels, t.x, x, n, first, static_cast<const T*>(nullptr), planes.get() + i * image_size);
          Images<const T> rows = dy;
          rows.H = std::min(dy.H, first + t.band);  // rows beyond are zero here: the next band has them
          T* to = gradients.get() + i * dy.C * t.dy.channel_stride();
          fill_planes(kernels, t.dy, rows, n, first, o.mask, to);
          for (int64_t k = 0; k < dy.C; ++k, to += t.dy.channel_stride()) {
            std::fill_n(to + t.dy.plane(), t.dy.gap, T(0));
            if (o.dbias) sums[weights + k] += kernels.sum(to, t.dy.plane());
          }
        }
        for (int64_t g = 0; g < geometry.groups; ++g)
          kernels.dot({.rows = filters,
                       .columns = taps,
                       .length = t.length,
                       .images = images,
                       .a = gradients.get() + g * filters * dy_channel,
                       .a_row_stride = dy_channel,
                       .a_image_stride = dy.C * dy_channel,
                       .b = planes.get() + g * dw.C * t.x.channel_stride(),
                       .b_image_stride = image_size,
                       .offsets = offsets.get(),
                       .out = sums + g * filters * taps,
                       .out_row_stride = taps});
      }
    }
  });
  parallel_for(part_size, ceil_div(int64_t{1} << 15, t.parts), [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < t.parts; ++part)
      for (int64_t i = begin; i < end; ++i) partial[i] += partial[part * part_size + i];
    for (int64_t i = begin; i < std::min(end, weights); ++i) dw.data[i] = partial[i];
    if (o.dbias)
      for (int64_t i = std::max(begin, weights); i < end; ++i) o.dbias[i - weights] = partial[i];
  });
}

template void run(const NchwWeightTiles&, const ConvGradientOperands<float>&);
template void run(const NchwWeightTiles&, const ConvGradientOperands<double>&);

}  // namespace gradus::openmp
