#include <gradus/autograd/node.h>

#include <algorithm>
#include <mutex>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/op_scope.h>

namespace gradus {
namespace {

ViewGeometry geometry_of(const Array& array, int64_t base_offset) {
  return {array.shape(), array.strides(), array.offset() - base_offset};
}

// Number of elements from the base's first element to the last one that the geometry addresses.
int64_t span_of(const ViewGeometry& geometry) {
  int64_t last = geometry.offset;
  for (int i = 0; i < geometry.shape.size(); ++i) {
    if (geometry.shape[i] == 0) return geometry.offset;
    last += (geometry.shape[i] - 1) * geometry.strides[i];
  }
  return last + 1;
}

Tensor view_of(const Tensor& buffer, const ViewGeometry& geometry) {
  return buffer.as_strided(geometry.shape, geometry.strides, geometry.offset, Loc{});
}

// Adds `values` to the elements of `buffer` in `window`.
void add_to_window(const Tensor& buffer, ViewGeometry window, Tensor values) {
  // All positions along an axis with stride 0 are the same element, so their values are summed first.
  for (int i = 0; i < window.shape.size(); ++i)
    if (window.strides[i] == 0 && window.shape[i] > 1) {
      values = values.sum({i}, true);
      window.shape[i] = 1;
    }
  const Tensor target = view_of(buffer, window);
  if (!target.array().may_overlap()) {
    target.add_(values);
    return;
  }
  // Several positions of the window are the same element. Slices along the shortest axis are added one after another,
  // and sliced again until a slice contains no element twice.
  int axis = -1;
  for (int i = 0; i < window.shape.size(); ++i)
    if (window.shape[i] > 1 && (axis < 0 || window.shape[i] < window.shape[axis])) axis = i;
  ViewGeometry slice = window;
  slice.shape.erase(axis);
  slice.strides.erase(axis);
  for (int64_t i = 0; i < window.shape[axis]; ++i, slice.offset += window.strides[axis])
    add_to_window(buffer, slice, values.select(axis, i));
}

struct AsStridedView final : Node {
  ViewGeometry base, view;
  Grads backward(const Tensor& dy) override { return {gradient_of_base(dy, base, view)}; }
};

// A write into a view, as an operator on the base: the gradient of the written elements passes through the operator
// that wrote them, the gradient of all other elements is unchanged.
struct CopySlices final : Node {
  ViewGeometry base, view;
  Ref<Node> write;  // the operator that wrote; its input 0 is the view before the write

  Grads backward(const Tensor& dy) override {
    Tensor buffer = zeros({std::max(span_of(base), span_of(view))}, dy.options());
    view_of(buffer, base).copy_(dy);
    const Tensor window = view_of(buffer, view), dwindow = window.clone();
    Grads gradients = write->backward_all({write->backward_in_float32() ? widened(dwindow) : dwindow});
    if (gradients.size() > 0 && gradients[0].defined()) window.copy_(gradients[0]);
    else window.zero_();
    Grads result = {view_of(buffer, base)};
    for (size_t i = 1; i < gradients.size(); ++i) result.push_back(gradients[i]);
    return result;
  }
  void release_saved() override {
    // A second derivative may have its own edges to the operator, which then runs after this node in the same pass.
    if (write->use_count() == 1) write->release_saved();
  }
};

// Makes `node` the history of `self`.
void replace_history(const Tensor& self, const Ref<Node>& node) {
  AutogradMeta& meta = self.impl()->need_meta();
  if (meta.retains_grad && meta.grad_fn) meta.grad_fn->remove_retain(self.impl());
  meta.output_nr = node->add_output(self.array());
  meta.grad_fn = node;
  meta.requires_grad = false;
  if (meta.retains_grad) node->add_retain(meta.output_nr, self.impl());
}

// Throws if gradients are recorded and `self` is a leaf that requires them.
void check_not_leaf(const Tensor& self) {
  const AutogradMeta* meta = self.impl()->meta.get();
  GRADUS_CHECK(!(GradMode::is_enabled() && meta && meta->requires_grad && self.is_leaf()), AutogradError,
               "a leaf that requires gradients cannot be changed in place; use NoGradGuard for updates, or an operator "
               "that makes a new tensor");
}

std::mutex refresh_mutex;

}  // namespace

Tensor gradient_of_base(const Tensor& dview, const ViewGeometry& base, const ViewGeometry& view) {
  const Tensor buffer = zeros({std::max(span_of(base), span_of(view))}, dview.options());
  add_to_window(buffer, view, dview);
  return view_of(buffer, base);
}

void refresh_view(const Tensor& view) {
  AutogradMeta& meta = *view.impl()->meta;
  ViewInfo& info = *meta.view;
  const bool current = info.version.load(std::memory_order_acquire) == view.version();
  if (info.made_in || current || !info.base.requires_grad()) return;
  Edge edge = gradient_edge(info.base);  // before the lock below, because it may lock another mutex
  Ref<Node> old;                         // destroyed after the lock is released
  std::lock_guard lock(refresh_mutex);
  if (info.version.load(std::memory_order_relaxed) == view.version()) return;
  const Array& base = info.base.array();
  Ref<AsStridedView> node = make_ref<AsStridedView>();
  node->set_name("AsStridedView");
  node->edges().push_back(std::move(edge));
  node->base = geometry_of(base, base.offset());
  node->view = geometry_of(view.array(), base.offset());
  meta.output_nr = node->add_output(view.array());
  old = std::exchange(meta.grad_fn, std::move(node));
  info.version.store(view.version(), std::memory_order_release);
}

void rebase_history(const Tensor& view, const Ref<Node>& node) {
  ViewInfo& info = *view.impl()->meta->view;
  const Array& base = info.base.array();
  Ref<CopySlices> slices = make_ref<CopySlices>();
  slices->set_name("CopySlices");
  slices->edges().push_back(gradient_edge(info.base));
  for (size_t i = 1; i < node->edges().size(); ++i) slices->edges().push_back(node->edges()[i]);
  slices->base = geometry_of(base, base.offset());
  slices->view = geometry_of(view.array(), base.offset());
  slices->write = node;
  AutogradMeta& base_meta = info.base.impl()->need_meta();
  base_meta.output_nr = slices->add_output(base);
  base_meta.grad_fn = std::move(slices);
  // The histories of the view and of other views of the base are outdated now. They are derived from the base's history
  // when they are next needed.
}

namespace detail {

bool is_recorded(TensorPointers inputs) {
  const auto requires_grad = [](const Tensor* input) { return input->requires_grad(); };
  return GradMode::is_enabled() && std::ranges::any_of(inputs, requires_grad);
}

void check_inputs(TensorPointers inputs) {
  GRADUS_CHECK(inputs.empty() || inputs[0]->defined(), ValueError, "the first tensor is undefined");
}

void begin_node(Node& node, TensorPointers inputs, const char* name) {
  node.set_name(name);
  node.set_module_path(ModuleFrame::current_path());
  for (const Tensor* input : inputs) node.edges().push_back(gradient_edge(*input));
  if (AnomalyGuard::is_enabled()) note_inputs(node, inputs);
}

Tensor finish_output(const Ref<Node>& node, Array output) {
  if (!node) return Tensor(std::move(output));
  if (AnomalyGuard::is_enabled()) check_result(*node, output);
  const uint32_t number = node->add_output(output);
  Tensor result(std::move(output));
  if (!is_floating(result.dtype())) return result;
  AutogradMeta& meta = result.impl()->need_meta();
  meta.grad_fn = node;
  meta.output_nr = number;
  return result;
}

Tensor finish_view(const Ref<Node>& node, const Tensor& of, Array output) {
  Tensor view = finish_output(node, std::move(output));
  view.impl()->inference = of.impl()->inference;
  if (view.impl()->inference || !is_floating(view.dtype())) return view;
  auto info = std::make_unique<ViewInfo>();
  const bool nested = of.is_view();
  info->base = nested ? of.impl()->meta->view->base : of;
  info->version = view.version();
  if (nested) info->made_in = of.impl()->meta->view->made_in;
  if (InferenceMode::is_enabled()) info->made_in = "inference";
  else if (!GradMode::is_enabled() && !info->made_in) info->made_in = "no_grad";
  view.impl()->need_meta().view = std::move(info);
  return view;
}

void check_in_place(const Tensor& self, bool recording) {
  check_not_leaf(self);
  GRADUS_CHECK(!self.impl()->inference || InferenceMode::is_enabled(), AutogradError,
               "Inplace update to inference tensor outside InferenceMode is not allowed; clone() it first");
  const AutogradMeta* meta = self.impl()->meta.get();
  if (recording && meta && meta->view) {
    GRADUS_CHECK(!meta->view->made_in, AutogradError, "A view was created in ", meta->view->made_in,
                 " mode and is being modified inplace with grad mode enabled; make the view outside, or clone() it");
    const Tensor& base = meta->view->base;
    GRADUS_CHECK(!(base.requires_grad() && base.is_leaf()), AutogradError,
                 "a view of a leaf that requires gradients cannot be written in place; use NoGradGuard for updates, or "
                 "clone() first");
  }
  GRADUS_CHECK(!recording || is_floating(self.dtype()), DTypeError,
               "a result with gradients cannot be written into a tensor of ", self.dtype());
  GRADUS_CHECK(!self.array().may_overlap(), ShapeError, "several elements of this tensor of shape ", self.sizes(),
               " and strides ", self.strides(),
               " share memory (an expanded tensor); clone() it before writing in place");
}

void finish_in_place(const Tensor& self, const Ref<Node>& node) {
  if (AnomalyGuard::is_enabled()) check_result(*node, self.array());
  if (self.is_view()) {
    node->add_output(self.array());
    rebase_history(self, node);
    return;
  }
  replace_history(self, node);
}

void finish_view_in_place(const Tensor& self, const Ref<Node>& node, Array view) {
  check_not_leaf(self);
  self.set_data(Tensor(std::move(view)));
  if (node) replace_history(self, node);
}

}  // namespace detail
}  // namespace gradus
