// Update of the loss scale from step to step: it shrinks at once when gradients overflow, and grows after many steps
// without overflow (Micikevicius et al., "Mixed precision training", 2018; torch.amp.GradScaler).
#pragma once

#include <gradus/core/backend.h>

namespace gradus {

/// The scale multiplies float32 losses, so it must stay a finite float32.
inline constexpr double kLargestScale = 0x1.fffffep+127;

/// Updates the block for the next step; `step` is the distance between its entries in memory.
GRADUS_HOST_DEVICE inline void move_scale(double* block, int64_t step, const ScaleRule& rule) {
  double& scale = block[ScaleBlock::scale * step];
  double& tracker = block[ScaleBlock::growth_tracker * step];
  double& found_inf = block[ScaleBlock::found_inf * step];
  if (found_inf != 0) {
    scale *= rule.backoff_factor;
    tracker = 0;
  } else if (++tracker == static_cast<double>(rule.growth_interval)) {
    if (scale * rule.growth_factor <= kLargestScale) scale *= rule.growth_factor;
    tracker = 0;
  }
  found_inf = 0;
}

}  // namespace gradus
