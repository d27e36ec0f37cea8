// Padding, window extraction, and rearranging pixels and channels.
#pragma once

#include <gradus/autograd/ops/conv.h>

namespace gradus {

/// The values outside of the image: a constant, the image mirrored at its edge pixel, the edge pixel, or the opposite
/// end of the image.
enum class PadMode : uint8_t { constant, reflect, replicate, circular };
inline constexpr PadMode kConstant = PadMode::constant, kReflect = PadMode::reflect, kReplicate = PadMode::replicate,
                         kCircular = PadMode::circular;

/// Adds `pad` elements at the start and end of x's last dimensions, listed from the last dimension backwards: {left,
/// right, top, bottom, …}. Negative numbers crop; in circular mode x is cropped before it is continued.
/// (torch.nn.functional.pad)
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

}  // namespace gradus
