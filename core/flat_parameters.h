// Parameters whose optimizer step is one loop.
#pragma once

#include <gradus/core/array/strided_loop.h>

namespace gradus {

/// If a parameter and all that goes with it are in memory in the same order, without gaps: one running index serves.
inline bool fill_memory_alike(const ParameterViews& views) {
  const Strides& p = views.parameter.strides;
  const auto strides_of = [&](const MutableView& view) { return view.data ? &view.strides : &p; };
  return StridedLoop<6>(views.parameter.shape,
                        {&p, &views.gradient.strides, strides_of(views.states[0]), strides_of(views.states[1]),
                         strides_of(views.states[2]), strides_of(views.half)})
      .all_contiguous();
}

}  // namespace gradus
