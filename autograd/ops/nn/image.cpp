#include <gradus/autograd/ops/nn/image.h>

#include <cmath>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/nn/pool.h>
#include <gradus/autograd/ops/shape.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus {

// ---- Padding and windows ----

namespace {

// Number of elements added at the start and the end of every dimension; a negative number crops.
struct Margins {
  Dims before, after;
  static Margins negated(const Margins& of) {
    Margins margins = of;
    for (int i = 0; i < of.before.size(); ++i)
      margins.before[i] = -margins.before[i], margins.after[i] = -margins.after[i];
    return margins;
  }
};

// Returns the part of x inside its margins; negative margins are ignored.
Array inside(Array x, const Margins& margins) {
  for (int i = 0; i < x.ndim(); ++i) {
    const int64_t size = x.shape()[i];
    x = x.slice(i, std::max<int64_t>(0, margins.before[i]), size - std::max<int64_t>(0, margins.after[i]));
  }
  return x;
}

struct ConstantPad final : Node {  // y = x surrounded by `value`
  Margins margins;
  Array forward(const Array& x, const Margins& m, double value) {
    margins = m;
    Shape shape = x.shape();
    for (int i = 0; i < x.ndim(); ++i) shape[i] += m.before[i] + m.after[i];
    const MemoryFormat format = x.ndim() == 4 ? ops::output_format(x) : MemoryFormat::contiguous;
    const Array y = ops::full(shape, value, x.dtype(), x.device(), format);
    ops::copy_into(inside(y, m), inside(x, Margins::negated(m)));
    return y;
  }
  Grads backward(const Tensor& dy) override { return {apply<ConstantPad>("pad", dy, Margins::negated(margins), 0.0)}; }
};

Tensor constant_pad(OpScope& op, const Tensor& x, IntArrayRef pad, double value) {
  Margins margins{Dims::filled(ndim_of(x), 0), Dims::filled(ndim_of(x), 0)};
  for (int i = 0; i < pad.size() / 2; ++i) {
    const int axis = ndim_of(x) - 1 - i;
    margins.before[axis] = pad[2 * i], margins.after[axis] = pad[2 * i + 1];
    const int64_t size = checked_sum(x.size(axis), pad[2 * i] + pad[2 * i + 1]);
    GRADUS_CHECK(size >= 0 && x.size(axis) + std::min(pad[2 * i], pad[2 * i + 1]) >= 0, ShapeError, "padding ", pad,
                 " takes more from dimension ", axis, " than input of shape ", x.sizes(), " has");
  }
  return apply<ConstantPad>(op, x, margins, value);
}

// Lists, for each element of an axis that gets `before` and `after` more elements, the index of the element that it
// copies. Negative numbers crop. A circular axis is cropped first, and only the remaining elements are repeated. The
// other modes may also copy elements that are cropped at the opposite end.
ops::OwnedStencil source_stencil(PadMode mode, int64_t size, int64_t before, int64_t after, const Tensor& x) {
  const bool round = mode == kCircular;
  const int64_t first = round ? std::max<int64_t>(0, -before) : 0,
                last = size - (round ? std::max<int64_t>(0, -after) : 0);
  const int64_t most = mode == kReflect ? size - 1 : round ? last - first : int64_t{1} << 24;
  GRADUS_CHECK(size > 0 && before <= most && after <= most, ShapeError, "padding (", before, ", ", after, ") of a ",
               mode == kReflect ? "reflected"
               : round          ? "circular"
                                : "replicated",
               " axis of size ", size, " may be at most ", most, ": input of shape ", x.sizes());
  GRADUS_CHECK(size + before + after > 0 && size + std::min(before, after) >= 0, ShapeError, "padding (", before, ", ",
               after, ") leaves no element of an axis of size ", size, ": input of shape ", x.sizes());
  std::vector<int64_t> sources;
  for (int64_t i = -before; i < size + after; ++i) {
    if (i >= first && i < last) sources.push_back(i);
    else if (mode == kReplicate) sources.push_back(i < 0 ? 0 : size - 1);
    else if (round) sources.push_back(i < first ? i + (last - first) : i - (last - first));
    else sources.push_back(i < 0 ? -i : 2 * (size - 1) - i);
  }
  return ops::OwnedStencil::selection(size, sources);
}

// Pads the last two axes of x, which may have any rank, in one call. Then pads the third axis from the end if `pad`
// lists three.
Tensor source_pad(OpScope& op, const Tensor& x, IntArrayRef pad, PadMode mode) {
  const int count = pad.size() / 2;
  const auto stencil = [&](int i, int64_t size) {  // for the axis at -1 - i
    return i < count ? source_stencil(mode, size, pad[2 * i], pad[2 * i + 1], x) : ops::OwnedStencil::identity(size);
  };
  Shape shape = x.sizes();
  const int last = shape.size() - 1;
  const Tensor image = x.dim() == 4 ? x : x.reshape({1, -1, last > 0 ? shape[last - 1] : 1, shape[last]});
  Tensor y = resample2d(op, image, stencil(1, image.size(2)), stencil(0, image.size(3)));
  shape[last] = y.size(3);
  if (last > 0) shape[last - 1] = y.size(2);
  if (x.dim() != 4) y = y.reshape(shape);
  if (count < 3) return y;
  const int64_t depth = shape[last - 2], area = shape[last - 1] * shape[last];
  const ops::OwnedStencil rows = stencil(2, depth);
  shape[last - 2] = rows.size_out();
  return resample2d(op, y.reshape({1, -1, depth, area}), rows, ops::OwnedStencil::identity(area)).reshape(shape);
}

// ---- Windows as columns ----

struct Windows {
  int64_t H, W;  // of the image
  Pair kernel, dilation, padding, stride;
  int64_t P() const { return along(H, kernel.h, dilation.h, padding.h, stride.h); }
  int64_t Q() const { return along(W, kernel.w, dilation.w, padding.w, stride.w); }
  int64_t count() const { return checked_product(P(), Q()); }
  int64_t taps() const { return checked_product(kernel.h, kernel.w); }
  void check() const {
    const auto check_positive = [](Pair size, const char* name) {
      GRADUS_CHECK(size.h > 0 && size.w > 0, ValueError, name, " must be positive, got (", size.h, ", ", size.w, ")");
    };
    check_positive(kernel, "kernel_size"), check_positive(dilation, "dilation"), check_positive(stride, "stride");
    ops::check_padding(padding.h), ops::check_padding(padding.w);
    GRADUS_CHECK(P() > 0 && Q() > 0, ShapeError, "kernel (", kernel.h, ", ", kernel.w, ") with dilation (", dilation.h,
                 ", ", dilation.w, ") does not fit into images of ", H, " x ", W, " with padding (", padding.h, ", ",
                 padding.w, ")");
  }

 private:
  static int64_t along(int64_t size, int64_t kernel, int64_t dilation, int64_t padding, int64_t stride) {
    const __int128 room = static_cast<__int128>(size) + 2 * static_cast<__int128>(padding) -
                          static_cast<__int128>(dilation) * (kernel - 1) - 1;
    return room < 0 ? 0 : static_cast<int64_t>(room / stride) + 1;
  }
};

// Calls body(tap, elements) for every tap (r, s), where `elements` is the part of `image` that the tap reads, of shape
// (N, C, P, Q). `image` includes the padding.
template <class Body>
void for_each_tap(const Array& image, const Windows& w, Body&& body) {
  for (int64_t r = 0; r < w.kernel.h; ++r)
    for (int64_t s = 0; s < w.kernel.w; ++s) {
      const int64_t h = r * w.dilation.h, v = s * w.dilation.w;
      body(r * w.kernel.w + s, image.slice(2, h, h + (w.P() - 1) * w.stride.h + 1, w.stride.h)
                                   .slice(3, v, v + (w.Q() - 1) * w.stride.w + 1, w.stride.w));
    }
}

struct Fold;

struct Unfold final
    : ComposedNode {  // y[n, c, (r, s), p, q] = padded x[n, c, p stride + r dilation, q stride + s dilation]
  Windows windows{0, 0, 0, 0, 0, 0};
  Array forward(const Array& x, const Windows& w) {
    windows = w;
    const Shape& in = x.shape();
    const Array y = Array::empty({in[0], in[1], w.kernel.h * w.kernel.w, w.P(), w.Q()}, x.dtype(), x.device());
    for_each_tap(x, w, [&](int64_t tap, const Array& part) { ops::copy_into(y.select(2, tap), part); });
    return y;
  }
  Grads backward(const Tensor& dy) override;  // a sum over the taps
};

struct Fold final : Node {  // padded x[n, c, p stride + r dilation, q stride + s dilation] += y[n, c, (r, s), p, q]
  Windows windows{0, 0, 0, 0, 0, 0};
  Array forward(const Array& y, const Windows& w) {
    windows = w;
    const Array x =
        ops::zeros({y.shape()[0], y.shape()[1], checked_sum(w.H, 2 * w.padding.h), checked_sum(w.W, 2 * w.padding.w)},
                   y.dtype(), y.device());
    for_each_tap(x, w,
                 [&](int64_t tap, const Array& part) { ops::binary(BinaryOp::add, part, y.select(2, tap), &part); });
    return x;
  }
  Grads backward(const Tensor& dx) override { return {apply<Unfold>("unfold", dx, windows)}; }
};

Grads Unfold::backward(const Tensor& dy) { return {apply<Fold>("fold", dy, windows)}; }

}  // namespace

Tensor pad(const Tensor& x, IntArrayRef pad, PadMode mode, double value, Loc where) {
  OpScope op("pad", where);
  GRADUS_CHECK(pad.size() % 2 == 0 && pad.size() / 2 <= x.dim(), ShapeError,
               "pad must list two numbers for each of the last dimensions of input of shape ", x.sizes(), ", got ",
               pad);
  for (int64_t amount : pad)
    GRADUS_CHECK(amount < int64_t{1} << 40 && amount > -(int64_t{1} << 40), ShapeError, "pad ", pad, " is too large");
  if (mode == kConstant) return constant_pad(op, x, pad, value);
  const int64_t count = pad.size() / 2;
  GRADUS_CHECK(
      count >= 1 && count <= 3 && (x.dim() == count + 1 || x.dim() == count + 2), ShapeError,
      "reflected, replicated and circular padding of the last 1, 2 or 3 dimensions needs 1 or 2 more before them, "
      "got pad ",
      pad, " for input of shape ", x.sizes());
  const auto padded = [&](const Tensor& x) { return source_pad(op, x, pad, mode); };
  return count < 3 ? padded(x) : composed(op, padded, x);  // three axes take two calls: rounds the gradient only once
}

Tensor unfold(const Tensor& x, Pair kernel_size, Pair dilation, Pair padding, Pair stride, Loc where) {
  OpScope op("unfold", where);
  check_image(x);
  return batched(x, 4, [&](const Tensor& image) {
    const Windows windows{image.size(2), image.size(3), kernel_size, dilation, padding, stride};
    windows.check();
    const bool padded = padding.h > 0 || padding.w > 0;
    const Tensor wide = padded ? constant_pad(op, image, {padding.w, padding.w, padding.h, padding.h}, 0) : image;
    const int64_t rows = checked_product(image.size(1), windows.taps());
    return apply<Unfold>(op, wide, windows).reshape({image.size(0), rows, windows.count()});
  });
}

Tensor fold(const Tensor& columns, Pair output_size, Pair kernel_size, Pair dilation, Pair padding, Pair stride,
            Loc where) {
  OpScope op("fold", where);
  GRADUS_CHECK(columns.dim() == 2 || columns.dim() == 3, ShapeError,
               "input must be (N, C R S, windows) or (C R S, windows), got shape ", columns.sizes());
  return batched(columns, 3, [&](const Tensor& x) {
    const Windows windows{output_size.h, output_size.w, kernel_size, dilation, padding, stride};
    windows.check();
    const int64_t taps = windows.taps();
    GRADUS_CHECK(x.size(1) % taps == 0, ShapeError, "input of shape ", columns.sizes(), " has ", x.size(1),
                 " rows, which is not a multiple of the ", taps, " elements of kernel_size");
    GRADUS_CHECK(x.size(2) == windows.count(), ShapeError, "input of shape ", columns.sizes(), " has ", x.size(2),
                 " columns, but an image of ", output_size.h, " x ", output_size.w, " has ", windows.P(), " x ",
                 windows.Q(), " windows");
    const Tensor split = x.reshape({x.size(0), x.size(1) / taps, taps, windows.P(), windows.Q()});
    const Tensor wide = composed(
        op, [&](const Tensor& split) { return apply<Fold>(op, split, windows); }, split);
    return constant_pad(op, wide, {-padding.w, -padding.w, -padding.h, -padding.h}, 0);
  });
}

// ---- Pixels and channels ----

// Merges the dimensions before the last three: (…, C, H, W) -> (images, C, H, W).
static Tensor as_images(const Tensor& x, int64_t factor, const char* what) {
  GRADUS_CHECK(x.dim() >= 3, ShapeError, "input must have at least 3 dimensions (…, C, H, W), got shape ", x.sizes());
  GRADUS_CHECK(factor > 0, ValueError, what, " must be positive, got ", factor);
  return x.dim() == 3 ? x.unsqueeze(0) : x.flatten(0, -4);
}

// Returns y with the leading dimensions of x and the last three dimensions (c, h, w).
static Tensor with_last(const Tensor& y, const Tensor& x, int64_t c, int64_t h, int64_t w) {
  Shape shape = x.sizes();
  const int n = shape.size();
  shape[n - 3] = c, shape[n - 2] = h, shape[n - 1] = w;
  return y.reshape(shape);
}

Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor, Loc where) {
  OpScope op("pixel_shuffle", where);
  const int64_t r = upscale_factor;
  const Tensor images = as_images(x, r, "upscale_factor");
  const int64_t h = x.size(-2), w = x.size(-1), channels = x.size(-3);
  const int64_t area = checked_product(r, r);
  GRADUS_CHECK(channels % area == 0, ShapeError, "input of shape ", x.sizes(), " has ", channels,
               " channels, which is not a multiple of upscale_factor² = ", area);
  const Tensor split = images.reshape({images.size(0), channels / area, r, r, h, w});
  return with_last(split.permute({0, 1, 4, 2, 5, 3}), x, channels / area, checked_product(h, r), checked_product(w, r));
}

Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor, Loc where) {
  OpScope op("pixel_unshuffle", where);
  const int64_t r = downscale_factor;
  const Tensor images = as_images(x, r, "downscale_factor");
  const int64_t h = x.size(-2), w = x.size(-1), channels = x.size(-3);
  GRADUS_CHECK(h % r == 0 && w % r == 0, ShapeError, "input of shape ", x.sizes(), " has images of ", h, " x ", w,
               ", which is not a multiple of downscale_factor = ", r);
  const Tensor split = images.reshape({images.size(0), channels, h / r, r, w / r, r});
  return with_last(split.permute({0, 1, 3, 5, 2, 4}), x, checked_product(channels, checked_product(r, r)), h / r,
                   w / r);
}

Tensor channel_shuffle(const Tensor& x, int64_t groups, Loc where) {
  OpScope op("channel_shuffle", where);
  GRADUS_CHECK(x.dim() >= 3, ShapeError, "input must have at least 3 dimensions (N, C, L, …), got shape ", x.sizes());
  GRADUS_CHECK(groups > 0, ValueError, "groups must be positive, got ", groups);
  GRADUS_CHECK(x.size(1) % groups == 0, ShapeError, "input of shape ", x.sizes(), " has ", x.size(1),
               " channels, which is not a multiple of groups = ", groups);
  const Tensor split = x.reshape({x.size(0), groups, x.size(1) / groups, numel_of(x.sizes().slice(2))});
  return split.transpose(1, 2).reshape(x.sizes());
}

// ---- Resizing ----

namespace {

struct Resample2d final : Node {    // y = rows x columnsᵀ, plane by plane
  ops::OwnedStencil rows, columns;  // saved for backward, transposed
  Array forward(const Array& x, const ops::OwnedStencil& r, const ops::OwnedStencil& c) {
    if (needs_grad(0)) rows = r.transposed(), columns = c.transposed();
    return ops::resample2d(x, r, c);
  }
  Grads backward(const Tensor& dy) override { return {apply<Resample2d>("resample2d", dy, rows, columns)}; }
};

const char* name_of(InterpolateMode mode) {
  constexpr const char* names[] = {"nearest", "linear", "bilinear", "bicubic", "area", "nearest-exact"};
  return names[static_cast<int>(mode)];
}

// Input and output size of one axis, and the scale by which output positions are divided to get input positions.
struct Axis {
  int64_t in, out;
  double scale;

  ops::OwnedStencil stencil(InterpolateMode mode, bool align_corners) const {
    switch (mode) {
      case InterpolateMode::nearest: return ops::nearest_stencil(in, out, scale, false);
      case InterpolateMode::nearest_exact: return ops::nearest_stencil(in, out, scale, true);
      case InterpolateMode::bicubic: return ops::cubic_stencil(in, out, scale, align_corners);
      default: return ops::linear_stencil(in, out, scale, align_corners);
    }
  }
};

std::vector<Axis> resized_axes(const Tensor& x, const std::optional<IntArrayRef>& size,
                               const std::optional<std::vector<double>>& scale_factor, bool recompute) {
  GRADUS_CHECK(size.has_value() != scale_factor.has_value(), ValueError, "needs either size or scale_factor",
               (size ? ", got both" : ""));
  const auto count = static_cast<size_t>(x.dim() - 2);
  const size_t given = size ? static_cast<size_t>(size->size()) : scale_factor->size();
  GRADUS_CHECK(given == 1 || given == count, ShapeError, (size ? "size" : "scale_factor"), " has ", given,
               " numbers, but input of shape ", x.sizes(), " has ", count, " axes to resize");
  std::vector<Axis> axes;
  for (size_t i = 0; i < count; ++i) {
    const int64_t in = x.size(static_cast<int64_t>(i) + 2);
    Axis axis{in, 0, 0};
    if (size) {
      axis.out = (*size)[given == 1 ? 0 : static_cast<int>(i)];
    } else {
      axis.scale = (*scale_factor)[given == 1 ? 0 : i];
      GRADUS_CHECK(axis.scale > 0 && std::isfinite(axis.scale), ValueError, "scale_factor must be positive, got ",
                   axis.scale);
      const double out = std::floor(static_cast<double>(in) * axis.scale);
      GRADUS_CHECK(out < 0x1p40, ShapeError, "scale_factor ", axis.scale, " is too large for input of shape ",
                   x.sizes());
      axis.out = static_cast<int64_t>(out);
    }
    GRADUS_CHECK(in > 0 && axis.out > 0, ShapeError, "input and output sizes must be positive, got input of shape ",
                 x.sizes(), " and an output size of ", axis.out);
    check_axis(axis.out);
    if (size || recompute) axis.scale = static_cast<double>(axis.out) / static_cast<double>(in);
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace

Tensor resample2d(OpScope& op, const Tensor& x, const ops::OwnedStencil& rows, const ops::OwnedStencil& columns) {
  return apply<Resample2d>(op, x, rows, columns);
}

Tensor interpolate(const Tensor& x, std::optional<IntArrayRef> size, std::optional<std::vector<double>> scale_factor,
                   InterpolateMode mode, std::optional<bool> align_corners, std::optional<bool> recompute_scale_factor,
                   Loc where) {
  OpScope op("interpolate", where);
  const bool by_corners = mode == InterpolateMode::linear || mode == kBilinear || mode == kBicubic;
  const bool any = mode == kNearest || mode == kNearestExact || mode == kArea;
  const int64_t wanted = mode == InterpolateMode::linear ? 3 : 4;
  const char* const layout = any ? "(N, C, L) or (N, C, H, W)" : wanted == 3 ? "(N, C, L)" : "(N, C, H, W)";
  GRADUS_CHECK(x.dim() == wanted || (any && x.dim() == 3), ShapeError, "mode ", name_of(mode), " needs input ", layout,
               ", got shape ", x.sizes());
  GRADUS_CHECK(by_corners || !align_corners.has_value(), ValueError, "align_corners has no effect in mode ",
               name_of(mode));
  std::vector<Axis> axes = resized_axes(x, size, scale_factor, recompute_scale_factor.value_or(false));
  const bool sequence = x.dim() == 3;
  if (mode == kArea && sequence) return adaptive_avg_pool1d(x, axes[0].out);
  if (mode == kArea) return adaptive_avg_pool2d(x, {axes[0].out, axes[1].out});
  if (sequence) axes.insert(axes.begin(), Axis{1, 1, 1});
  const bool corners = align_corners.value_or(false);
  const Tensor image = sequence ? x.unsqueeze(2) : x;
  const Tensor y = resample2d(op, image, axes[0].stencil(mode, corners), axes[1].stencil(mode, corners));
  return sequence ? y.squeeze(2) : y;
}

// ---- Colours ----

namespace {

struct RgbToGrayscale final : Node {  // y = 0.2989 R + 0.5870 G + 0.1140 B
  Array forward(const Array& x) { return ops::rgb_to_grayscale(x); }
  Grads backward(const Tensor& dy) override { return {cat({dy * 0.2989, dy * 0.5870, dy * 0.1140}, -3)}; }
};

}  // namespace

Tensor rgb_to_grayscale(const Tensor& x, Loc where) { return apply<RgbToGrayscale>({"rgb_to_grayscale", where}, x); }

}  // namespace gradus
