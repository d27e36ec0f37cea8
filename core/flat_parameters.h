// Parameters whose optimizer step is a single loop.
#pragma once

#include <gradus/core/array/strided_loop.h>

namespace gradus {

/// True if a parameter, its gradient and its states have the same element order in memory and no gaps, so that one
/// running index addresses all of them.
inline bool fill_memory_alike(const ParameterViews& views) {
  const Strides& p = views.parameter.strides;
  const auto strides_of = [&](const MutableView& view) { return view.data ? &view.strides : &p; };
  return StridedLoop<6>(views.parameter.shape,
                        {&p, &views.gradient.strides, strides_of(views.states[0]), strides_of(views.states[1]),
                         strides_of(views.states[2]), strides_of(views.half)})
      .all_contiguous();
}

}  // namespace gradus
