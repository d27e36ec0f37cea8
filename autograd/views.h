// Views and their history. A differentiable view refers to its base. If the base is changed in place, the view's
// history is derived from it again; if the view is changed in place, the change becomes part of the base's history.
#pragma once

#include <gradus/autograd/node.h>

namespace gradus {

/// Shape, strides and offset of a view, relative to the first element of its base.
struct ViewGeometry {
  Shape shape;
  Strides strides;
  int64_t offset = 0;
};

/// Gradient of a base from the gradient of a view: 0 for elements outside of the view; an element that the view
/// contains several times gets the sum.
Tensor gradient_of_base(const Tensor& dview, const ViewGeometry& base, const ViewGeometry& view);
/// Renews the view's grad_fn if its storage was written since the view was made.
void refresh_view(const Tensor& view);
/// Called after `node` wrote into `view`: adds the write to the history of the view's base.
void rebase_history(const Tensor& view, const Ref<Node>& node);

}  // namespace gradus
