#include <gradus/autograd/ops/resample.h>

#include <cmath>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/pool.h>
#include <gradus/autograd/ops/stencil.h>

namespace gradus {
namespace {

struct Resample2d final : Node {    // y = rows x columnsᵀ, plane by plane
  ops::OwnedStencil rows, columns;  // transposed for backward
  Array forward(const Array& x, const ops::OwnedStencil& r, const ops::OwnedStencil& c) {
    if (needs_grad(0)) rows = r.transposed(), columns = c.transposed();
    return ops::resample2d(x, r, c);
  }
  Grads backward(const Tensor& dy) override {
    OpScope op("resample2d", Loc{});
    return {apply<Resample2d>(op, dy, rows, columns)};
  }
};

const char* name_of(InterpolateMode mode) {
  constexpr const char* names[] = {"nearest", "linear", "bilinear", "bicubic", "area", "nearest-exact"};
  return names[static_cast<int>(mode)];
}

// Input and output size of one axis, and the scale that converts output positions to input positions.
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

std::vector<Axis> axes_of(const Tensor& x, const std::optional<IntArrayRef>& size,
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
  GRADUS_CHECK(x.dim() == wanted || (any && x.dim() == 3), ShapeError, "mode ", name_of(mode), " needs input ",
               (any           ? "(N, C, L) or (N, C, H, W)"
                : wanted == 3 ? "(N, C, L)"
                              : "(N, C, H, W)"),
               ", got shape ", x.sizes());
  GRADUS_CHECK(by_corners || !align_corners.has_value(), ValueError, "align_corners has no effect in mode ",
               name_of(mode));
  std::vector<Axis> axes = axes_of(x, size, scale_factor, recompute_scale_factor.value_or(false));
  const bool sequence = x.dim() == 3;
  if (mode == kArea && sequence) return adaptive_avg_pool1d(x, axes[0].out, where);
  if (mode == kArea) return adaptive_avg_pool2d(x, {axes[0].out, axes[1].out}, where);
  if (sequence) axes.insert(axes.begin(), Axis{1, 1, 1});
  const bool corners = align_corners.value_or(false);
  const Tensor image = sequence ? x.unsqueeze(2) : x;
  const Tensor y = resample2d(op, image, axes[0].stencil(mode, corners), axes[1].stencil(mode, corners));
  return sequence ? y.squeeze(2) : y;
}

}  // namespace gradus
