// Changing the size of images.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// torch::kNearest, …; linear is for sequences (N, C, L), bilinear and bicubic for images (N, C, H, W).
enum class InterpolateMode : uint8_t { nearest, linear, bilinear, bicubic, area, nearest_exact };
inline constexpr InterpolateMode kNearest = InterpolateMode::nearest, kBilinear = InterpolateMode::bilinear,
                                 kBicubic = InterpolateMode::bicubic, kArea = InterpolateMode::area,
                                 kNearestExact = InterpolateMode::nearest_exact;

/// x (N, C, L) or (N, C, H, W) at another size: `size` or x's times `scale_factor`, one number for all axes or one per
/// axis. Output pixel p is at p (size_in - 1) / (size_out - 1) with `align_corners` (the corners of both images
/// coincide), else at (p + 1/2) / scale - 1/2 (the images' edges do); nearest takes floor(p / scale). The scale is
/// scale_factor where that is given, unless recompute_scale_factor asks for the quotient of the sizes. bicubic
/// convolves with Keys' kernel, a = -0.75; area is adaptive_avg_pool. (torch.nn.functional.interpolate)
Tensor interpolate(const Tensor& x, std::optional<IntArrayRef> size,
                   std::optional<std::vector<double>> scale_factor = {}, InterpolateMode mode = kNearest,
                   std::optional<bool> align_corners = {}, std::optional<bool> recompute_scale_factor = {},
                   Loc where = Loc::current());

}  // namespace gradus
