// Views and their history. A differentiable view remembers its base; when the base changes in place the view's history
// is made anew from it, and when a view is written in place the base's history is extended by the write.
#pragma once

#include <gradus/autograd/node.h>

namespace gradus {

/// Where a view's elements lie, relative to the first element of its base.
struct ViewGeometry {
  Shape shape;
  Strides strides;
  int64_t offset = 0;
};

/// Gradient of a base from that of a view of it: 0 but for the elements that the view shows; those that it shows
/// several times get the sum.
Tensor gradient_of_base(const Tensor& dview, const ViewGeometry& base, const ViewGeometry& view);
/// Makes the view's grad_fn anew if its storage was written since it was made.
void refresh_view(const Tensor& view);
/// After `node` wrote into `view`: makes the write part of the base's history.
void rebase_history(const Tensor& view, const Ref<Node>& node);

}  // namespace gradus
