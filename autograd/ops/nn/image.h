// Operators on images: padding, window extraction, rearranging pixels and channels, resizing.
#pragma once

#include <gradus/autograd/ops/nn/conv.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus {

/// What pad() writes outside of the image: a constant, the image mirrored at its edge pixel, the edge pixel, or the
/// pixels from the opposite end of the image.
enum class PadMode : uint8_t { constant, reflect, replicate, circular };
inline constexpr PadMode kConstant = PadMode::constant, kReflect = PadMode::reflect, kReplicate = PadMode::replicate,
                         kCircular = PadMode::circular;

/// Adds `pad` elements at the start and end of x's last dimensions, listed from the last dimension backwards: {left,
/// right, top, bottom, …}. Negative numbers crop. In circular mode x is first cropped, and only the remaining pixels
/// are repeated. (torch.nn.functional.pad)
Tensor pad(const Tensor& x, IntArrayRef pad, PadMode mode = kConstant, double value = 0, Loc where = Loc::current());

/// The windows of x (N, C, H, W) or (C, H, W) as columns (N, C R S, windows), also called im2col.
Tensor unfold(const Tensor& x, Pair kernel_size, Pair dilation = 1, Pair padding = 0, Pair stride = 1,
              Loc where = Loc::current());
/// The transpose of unfold: sums columns (N, C R S, windows) into (N, C, H, W), adding where windows overlap.
Tensor fold(const Tensor& columns, Pair output_size, Pair kernel_size, Pair dilation = 1, Pair padding = 0,
            Pair stride = 1, Loc where = Loc::current());

/// pixel_shuffle maps (…, C r r, H, W) to (…, C, H r, W r): r x r channels become a block of pixels (Shi et al. 2016).
/// pixel_unshuffle is its inverse.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor, Loc where = Loc::current());
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor, Loc where = Loc::current());
/// Moves channel g (C / groups) + i to i groups + g (ShuffleNet, Zhang et al. 2017).
Tensor channel_shuffle(const Tensor& x, int64_t groups, Loc where = Loc::current());

/// The modes of interpolate(). linear is for sequences (N, C, L), bilinear and bicubic are for images (N, C, H, W).
enum class InterpolateMode : uint8_t { nearest, linear, bilinear, bicubic, area, nearest_exact };
inline constexpr InterpolateMode kNearest = InterpolateMode::nearest, kBilinear = InterpolateMode::bilinear,
                                 kBicubic = InterpolateMode::bicubic, kArea = InterpolateMode::area,
                                 kNearestExact = InterpolateMode::nearest_exact;

/// Resizes x (N, C, L) or (N, C, H, W) to `size`, or to its size times `scale_factor`; both take one number for all
/// axes or one per axis. With `align_corners`, output pixel p samples position p (size_in - 1) / (size_out - 1), so
/// that the centres of the corner pixels coincide; otherwise position (p + 1/2) / scale - 1/2, so that the images'
/// edges coincide. nearest takes pixel floor(p / scale). scale is scale_factor if given, unless recompute_scale_factor
/// requests the quotient of the sizes. bicubic uses Keys' kernel with a = -0.75; area is adaptive_avg_pool.
/// (torch.nn.functional.interpolate)
Tensor interpolate(const Tensor& x, std::optional<IntArrayRef> size,
                   std::optional<std::vector<double>> scale_factor = {}, InterpolateMode mode = kNearest,
                   std::optional<bool> align_corners = {}, std::optional<bool> recompute_scale_factor = {},
                   Loc where = Loc::current());

/// 0.2989 R + 0.5870 G + 0.1140 B (ITU-R BT.601). Shape: (…, 3, H, W) -> (…, 1, H, W), floating types.
Tensor rgb_to_grayscale(const Tensor& x, Loc where = Loc::current());

class OpScope;

/// Applies a stencil to each of the last two axes of x (N, C, H, W). The gradient applies the transposed stencils, so
/// it can be differentiated any number of times.
Tensor resample2d(OpScope& op, const Tensor& x, const ops::OwnedStencil& rows, const ops::OwnedStencil& columns);

/// Throws if an axis is too long for a stencil, which stores an entry for every position.
inline void check_axis(int64_t size) {
  GRADUS_CHECK(size <= int64_t{1} << 24, ShapeError, "an axis of ", size, " elements is too long: at most ", 1 << 24);
}

/// Throws unless x is an image.
inline void check_image(const Tensor& x) {
  GRADUS_CHECK(x.dim() == 3 || x.dim() == 4, ShapeError, "input must be (N, C, H, W) or (C, H, W), got shape ",
               x.sizes());
}

/// Returns a sequence (N, C, L) or (C, L) as an image of one row.
inline Tensor as_row(const Tensor& x) {
  GRADUS_CHECK(x.dim() == 2 || x.dim() == 3, ShapeError, "input must be (N, C, L) or (C, L), got shape ", x.sizes());
  return x.unsqueeze(-2);
}

/// Returns body(x). If x has dims - 1 dimensions, passes it with a batch dimension of size 1, which is removed from the
/// result.
template <class Body>
Tensor batched(const Tensor& x, int64_t dims, Body&& body) {
  return x.dim() == dims - 1 ? body(x.unsqueeze(0)).squeeze(0) : body(x);
}

}  // namespace gradus
