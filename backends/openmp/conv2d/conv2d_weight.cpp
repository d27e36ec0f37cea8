// Gradient of a convolution with respect to the weights:
//   dw[k, c, r, s] = sum over images and positions of dy[k, position] plane[offset(c, r, s) + position]
// with the planes of x as in the forward pass and dy laid out at the same pitch, zero between its rows (planes.h). Each
// element of dw is a dot product of two long vectors (dot_kernel.h). Images are dealt, by shape, into at most kParts
// parts that sum on their own; the parts are added in order, so threads change no bit.
#include <gradus/backends/openmp/conv2d/conv2d_kernels.h>
#include <gradus/core/parallel.h>

namespace gradus::openmp {
namespace {

constexpr int64_t kParts = 16;
constexpr int64_t kPartElements = int64_t{1} << 23;  // of all parts together, at most
constexpr int64_t kPositions = 1024;                 // summed before lanes are added: what the first-level cache holds
constexpr int64_t kBandBytes = int64_t{512} << 10;

}  // namespace

template <class T>
void convolve_backward_weight(const KernelTable& table, const Images<const T>& dy, const T* mask,
                              const Images<const T>& x, const Images<T>& dw, T* dbias, const Conv2dGeometry& geometry) {
  const Kernels<T>& kernels = kernels_of<T>(table);
  const auto [stride_h, stride_w] = geometry.stride;
  const auto [dilation_h, dilation_w] = geometry.dilation;
  const int64_t reach_h = (dw.H - 1) * dilation_h / stride_h, reach_w = (dw.W - 1) * dilation_w / stride_w;
  const int64_t filters = dy.C / geometry.groups, taps = dw.C * dw.H * dw.W;

  PlaneLayout layout;
  layout.channels = x.C;
  for (int axis = 0; axis < 2; ++axis)
    layout.split[axis] = geometry.stride[axis], layout.shift[axis] = geometry.padding[axis];
  layout.set_pitch(x.W, dy.W, reach_w);

  // A band of output rows at a time; where a whole image is little, several images.
  const int64_t row_bytes = (x.C * stride_h * stride_w + dy.C) * layout.pitch * static_cast<int64_t>(sizeof(T));
  const int64_t fit = std::max<int64_t>(1, kBandBytes / std::max<int64_t>(row_bytes, 1) - reach_h);
  const int64_t most = std::min(fit, divide_up(kPositions, layout.pitch));
  const int64_t bands = dy.H > 0 ? divide_up(dy.H, most) : 0, band = bands > 0 ? divide_up(dy.H, bands) : 0;
  layout.rows = band + reach_h;
  const int64_t items = dy.N * bands;
  const int64_t length = round_up(std::max<int64_t>((band - 1) * layout.pitch + dy.W, 0), kernels.vector_size);
  const int64_t parts_wanted =
      std::min({kParts, divide_up(items * length, kPositions), kPartElements / std::max<int64_t>(1, dy.C * taps)});
  const int64_t items_in_part = divide_up(std::max<int64_t>(items, 1), std::max<int64_t>(parts_wanted, 1));
  const int64_t parts = std::max<int64_t>(1, divide_up(items, items_in_part));
  const int64_t images_fit =
      std::min(kPositions / std::max<int64_t>(length, 1), kBandBytes / std::max<int64_t>(row_bytes * layout.rows, 1));
  const int64_t together = bands == 1 ? std::clamp<int64_t>(images_fit, 1, items_in_part) : 1;

  const Scratch<int64_t> offsets(taps);
  int64_t at = 0;
  for (int64_t c = 0; c < dw.C; ++c)
    for (int64_t r = 0; r < dw.H; ++r)
      for (int64_t s = 0; s < dw.W; ++s)
        offsets[at++] = layout.offset(c, r * dilation_h % stride_h, s * dilation_w % stride_w,
                                      r * dilation_h / stride_h, s * dilation_w / stride_w);

  const int64_t weights = dy.C * taps, part_size = weights + dy.C;  // dw, then dbias
  const Scratch<T> partial(parts * part_size);
  const int64_t image_size = x.C * layout.channel_stride();
  const int64_t slack = layout.pitch + reach_w + kernels.vector_size;  // read along with zeros of dy
  PlaneLayout dy_layout;
  dy_layout.channels = dy.C;
  dy_layout.rows = band;
  dy_layout.pitch = layout.pitch;
  // dy's rows follow each other at the pitch; a channel is filled up to whole vectors.
  dy_layout.gap = round_up(std::max<int64_t>(dy_layout.plane(), 1), kernels.vector_size) - dy_layout.plane();
  const int64_t dy_channel = dy_layout.channel_stride();

  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    const Scratch<T> planes(together * image_size + slack), gradients(together * dy.C * dy_channel);
    for (int64_t part = begin; part < end; ++part) {
      T* sums = partial.get() + part * part_size;
      std::fill_n(sums, part_size, T(0));
      const int64_t last = std::min(items, (part + 1) * items_in_part);
      for (int64_t item = part * items_in_part; item < last; item += together) {
        const int64_t images = std::min(together, last - item);
        std::fill_n(planes.get() + images * image_size, slack, T(0));  // zero times anything but a NaN is zero
        for (int64_t i = 0; i < images; ++i) {
          const int64_t n = (item + i) / bands, first = (item + i) % bands * band;
          fill_planes(kernels, layout, x, n, first, static_cast<const T*>(nullptr), planes.get() + i * image_size);
          Images<const T> rows = dy;
          rows.H = std::min(dy.H, first + band);  // rows beyond are zero here: the next band has them
          T* to = gradients.get() + i * dy.C * dy_layout.channel_stride();
          fill_planes(kernels, dy_layout, rows, n, first, mask, to);
          for (int64_t k = 0; k < dy.C; ++k, to += dy_layout.channel_stride()) {
            std::fill_n(to + dy_layout.plane(), dy_layout.gap, T(0));
            if (dbias) sums[weights + k] += kernels.sum(to, dy_layout.plane());
          }
        }
        for (int64_t g = 0; g < geometry.groups; ++g)
          kernels.dot({.rows = filters,
                       .columns = taps,
                       .length = length,
                       .images = images,
                       .a = gradients.get() + g * filters * dy_channel,
                       .a_row_stride = dy_channel,
                       .a_image_stride = dy.C * dy_channel,
                       .b = planes.get() + g * dw.C * layout.channel_stride(),
                       .b_image_stride = image_size,
                       .offsets = offsets.get(),
                       .out = sums + g * filters * taps,
                       .out_row_stride = taps});
      }
    }
  });
  parallel_for(part_size, divide_up(int64_t{1} << 15, parts), [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t i = begin; i < end; ++i) partial[i] += partial[part * part_size + i];
    for (int64_t i = begin; i < std::min(end, weights); ++i) dw.data[i] = partial[i];
    if (dbias)
      for (int64_t i = std::max(begin, weights); i < end; ++i) dbias[i - weights] = partial[i];
  });
}

template void convolve_backward_weight(const KernelTable&, const Images<const float>&, const float*,
                                       const Images<const float>&, const Images<float>&, float*, const Conv2dGeometry&);
template void convolve_backward_weight(const KernelTable&, const Images<const double>&, const double*,
                                       const Images<const double>&, const Images<double>&, double*,
                                       const Conv2dGeometry&);

}  // namespace gradus::openmp
