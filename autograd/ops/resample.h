// Resizing of images and sequences.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// torch::kNearest and others. linear is for sequences (N, C, L), bilinear and bicubic are for images (N, C, H, W).
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

}  // namespace gradus
