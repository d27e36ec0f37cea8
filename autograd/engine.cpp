#include <gradus/autograd/engine.h>

#include <algorithm>
#include <queue>

#include <gradus/autograd/mixed_precision/autocast.h>
#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

// A gradient that a caller of grad() or backward() requested with `inputs`: the one that arrives at the edge `at`.
struct Capture {
  Edge at;
  Tensor gradient;
};

// State of a node during one backward pass.
struct NodeState {
  Node* node = nullptr;
  int waiting = 0;  // number of incoming edges that have not delivered a gradient yet
  bool queued = false;
  bool wanted = true;  // if there are captures: true if the node is or leads to one of their nodes
  Grads gradients;     // gradients of the node's outputs, summed so far
  Tensor addend;       // second summand of gradients[0], if the node is a BackwardOfSum
};

// Maps nodes to their states: a hash table with open addressing, hashed by sequence number. The nodes of a graph have
// nearly consecutive numbers, so collisions are rare.
class StateTable {
 public:
  // Returns the state of `node`. Invalidates references returned before.
  NodeState& find_or_add(Node* node) {
    if (2 * (states_.size() + 1) > places_.size()) grow();
    uint32_t& place = place_of(node);
    if (place == kFree) {
      place = static_cast<uint32_t>(states_.size());
      states_.emplace_back().node = node;
    }
    return states_[place];
  }
  NodeState& operator[](const Node* node) { return states_[place_of(node)]; }

  std::vector<NodeState>& all() { return states_; }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;

  uint32_t& place_of(const Node* node) {
    size_t at = node->sequence();
    while (places_[at &= places_.size() - 1] != kFree && states_[places_[at]].node != node) ++at;
    return places_[at];
  }
  void grow() {
    places_.assign(std::max<size_t>(64, 2 * places_.size()), kFree);
    for (size_t i = 0; i < states_.size(); ++i) place_of(states_[i].node) = static_cast<uint32_t>(i);
  }

  std::vector<NodeState> states_;
  std::vector<uint32_t> places_;  // indices into states_; the size is a power of two
};

// One backward pass over a graph. The caller's root edges keep all nodes alive while it runs.
class BackwardPass {
 public:
  BackwardPass(bool keep_graph, bool create_graph) : keep_graph_(keep_graph), create_graph_(create_graph) {}

  // Returns the gradients of the captures. If there are captures, only the nodes that lead to them run, and the grad()
  // of the leaves does not change.
  TensorList run(const std::vector<Edge>& roots, Grads root_gradients, std::vector<Capture> captures) {
    captures_ = std::move(captures);
    discover(roots);
    for (size_t i = 0; i < roots.size(); ++i)
      deliver(states_[roots[i].node.get()], roots[i].input, std::move(root_gradients[i]));
    for (const Edge& root : roots) {
      NodeState& state = states_[root.node.get()];
      if (state.waiting == 0 && !state.queued) enqueue(state);
    }
    const amp::detail::AutocastOff off;  // nodes run in the types of their forward pass
    const ScopedValue<BackwardPass*> current(current_, this);
    while (!ready_.empty()) {
      NodeState& state = *ready_.top().state;
      ready_.pop();
      execute(state);
    }
    for (size_t i = 0; i < callbacks_.size(); ++i) callbacks_[i]();
    TensorList gradients;
    for (Capture& capture : captures_) gradients.push_back(std::move(capture.gradient));
    return gradients;
  }

  static BackwardPass* current() { return current_; }
  // True if `dy` was passed to the node that is running and nothing else refers to its data.
  bool hands_over(const Tensor& dy) const {
    const auto is_dy = [&](const Tensor& given) { return &given == &dy; };
    return given_ && std::ranges::any_of(*given_, is_dy) && is_exclusive(dy);
  }
  void add_callback(std::function<void()> done) { callbacks_.push_back(std::move(done)); }

 private:
  struct Ready {
    uint64_t priority;
    NodeState* state;
    bool operator<(const Ready& other) const { return priority < other.priority; }
  };

  // Finds all nodes that the roots lead to and counts the edges into each.
  void discover(const std::vector<Edge>& roots) {
    for (const Edge& root : roots) states_.find_or_add(root.node.get());
    for (size_t next = 0; next < states_.all().size(); ++next)
      for (const Edge& edge : states_.all()[next].node->edges())
        if (edge.node) ++states_.find_or_add(edge.node.get()).waiting;
    if (captures_.empty()) return;
    // Edges lead to nodes made earlier, and accumulators have no edges. If accumulators are visited first and then the
    // other nodes from the oldest to the newest, `wanted` of a node is decided after that of all nodes to which its
    // edges lead.
    std::vector<Node*> found;
    for (const NodeState& state : states_.all()) found.push_back(state.node);
    std::ranges::sort(found, [](Node* a, Node* b) {
      if (a->is_accumulator() != b->is_accumulator()) return a->is_accumulator();
      return a->sequence() < b->sequence();
    });
    for (Node* node : found) {
      const auto is_for_node = [&](const Capture& capture) { return capture.at.node.get() == node; };
      bool wanted = std::ranges::any_of(captures_, is_for_node);
      for (const Edge& edge : node->edges()) wanted = wanted || (edge.node && states_[edge.node.get()].wanted);
      states_[node].wanted = wanted;
    }
  }

  void enqueue(NodeState& state) {
    state.queued = true;
    ready_.push({state.node->is_accumulator() ? UINT64_MAX : state.node->sequence(), &state});
  }

  // True if nothing else refers to the data of `gradient`, so that they may be overwritten.
  static bool is_exclusive(const Tensor& gradient) {
    return gradient.use_count() == 1 && gradient.array().storage().is_exclusive() && !gradient.array().may_overlap();
  }

  // Adds a gradient to the sum of those that have arrived for output `output_nr` of a node.
  void deliver(NodeState& state, uint32_t output_nr, Tensor gradient) {
    if (state.gradients.size() <= output_nr)
      state.gradients.resize(std::max<size_t>(output_nr + 1, state.node->outputs().size()));
    Tensor& sum = state.gradients[output_nr];
    if (!sum.defined()) {
      sum = std::move(gradient);
      return;
    }
    const bool may_split = state.waiting == 1 && !state.addend.defined();
    if (may_split && accepts_sum(*state.node)) {
      state.addend = std::move(gradient);
    } else if (!create_graph_ && is_exclusive(sum)) {
      ops::binary(BinaryOp::add, sum.array(), gradient.array(), &sum.array());
    } else {
      AutoGradMode mode(create_graph_);
      sum = sum + gradient;
    }
  }

  // True if the node accepts two summands and nothing else needs their sum.
  bool accepts_sum(const Node& node) const {
    if (create_graph_ || !captures_.empty() || node.is_watched()) return false;
    const auto* const by_sum = dynamic_cast<const BackwardOfSum*>(&node);
    return by_sum && by_sum->accepts_sum();
  }

  void execute(NodeState& state) {
    Node* const node = state.node;
    std::optional<ModuleFrame> frame;  // of the layer that made the node, so that messages name the layer
    const auto path = [](const void* of) { return static_cast<const Node*>(of)->module_path(); };
    if (!node->module_path().empty()) frame.emplace(node, path);
    Grads dys = std::move(state.gradients);
    dys.resize(std::max(dys.size(), node->outputs().size()));
    AutoGradMode mode(create_graph_);
    if (node->is_watched()) run_output_hooks(*node, dys);
    if (!captures_.empty()) {
      if (node->is_accumulator() && dys[0].defined())
        dys[0] = run_hooks(static_cast<AccumulateGrad*>(node)->leaf(), dys[0]);
      for (Capture& capture : captures_)
        if (capture.at.node.get() == node) capture.gradient = dys[capture.at.input];
      const auto leads_on = [&](const Edge& edge) { return edge.node && states_[edge.node.get()].wanted; };
      if (!std::ranges::any_of(node->edges(), leads_on)) return;
    }

    const bool nothing = std::ranges::none_of(dys, &Tensor::defined);
    if (node->is_accumulator()) {
      const EventScope event(node->name());
      if (!nothing) static_cast<const AccumulateGrad*>(node)->accumulate(std::move(dys[0]));
      return;
    }
    Grads gradients;
    const bool checks = AnomalyGuard::is_enabled();
    std::string before;  // the anomaly found in what backward reads
    if (!nothing || node->handles_undefined()) {
      EventScope event(node->name());
      if (checks) before = detail::anomaly_before_backward(*node, dys, state.addend);
      if (node->backward_in_float32())
        for (Tensor& dy : dys) dy = widened(dy);
      given_ = &dys;
      const Tensor addend = std::move(state.addend);
      gradients = addend.defined() ? dynamic_cast<BackwardOfSum&>(*node).backward_of_sum(dys[0], addend)
                                   : node->backward_all(dys);
      given_ = nullptr;
      if (!keep_graph_) node->release_saved();
    }
    GRADUS_CHECK(gradients.size() <= node->edges().size(), AutogradError, node->name(), " returned ", gradients.size(),
                 " gradients for ", node->edges().size(), " inputs");
    gradients.resize(node->edges().size());
    dys.clear();
    for (size_t i = 0; i < node->edges().size(); ++i) {
      const Edge& edge = node->edges()[i];
      if (!edge.node) continue;
      Tensor gradient = std::move(gradients[i]);
      NodeState& next = states_[edge.node.get()];
      if (gradient.defined() && next.wanted) {
        if (checks) detail::check_gradient(*node, gradient.array(), before);
        if (!stays_half(next, gradient)) gradient = fitting(*edge.node, edge.input, std::move(gradient), node->name());
        deliver(next, edge.input, std::move(gradient));
      }
      if (--next.waiting == 0 && next.wanted) enqueue(next);
    }
  }

  // Passes the gradients of a node's outputs to its hooks, which may replace them, and to tensors that retain them.
  static void run_output_hooks(const Node& node, Grads& dys) {
    node.output_hooks().for_each([&](const auto& hook) {
      Tensor& dy = dys[hook.output_nr];
      if (!dy.defined()) return;
      const Tensor replaced = hook.call(dy);
      if (replaced.defined()) dy = fitting(node, hook.output_nr, replaced, "a hook on its output");
    });
    for (const auto& [output_nr, tensor] : node.retaining())
      if (dys[output_nr].defined()) accumulate_grad(tensor, dys[output_nr]);
  }

  // True if `gradient` is the only gradient of a leaf, and the leaf accepts it in a half type.
  bool stays_half(const NodeState& next, const Tensor& gradient) const {
    const bool only = next.waiting <= 1 && next.gradients.empty();
    if (!next.node->is_accumulator() || !only || !captures_.empty() || create_graph_) return false;
    const Node::OutputInfo& leaf = next.node->outputs()[0];
    return is_half(gradient.dtype()) && gradient.sizes() == leaf.shape && gradient.device() == leaf.device &&
           static_cast<const AccumulateGrad*>(next.node)->takes_half();
  }

  // Converts a gradient to the shape and type of its output, and checks its device.
  static Tensor fitting(const Node& node, uint32_t output_nr, Tensor gradient, const char* from) {
    const Node::OutputInfo& info = node.outputs()[output_nr];
    if (!(gradient.sizes() == info.shape)) {
      bool expanded = gradient.dim() >= info.shape.size();
      for (int i = 1; expanded && i <= info.shape.size(); ++i) {
        const int64_t want = info.shape[info.shape.size() - i], have = gradient.sizes()[ndim_of(gradient) - i];
        expanded = want == have || want == 1;
      }
      GRADUS_CHECK(expanded, AutogradError, from, " returned a gradient of shape ", gradient.sizes(),
                   ", expected shape ", info.shape);
      const int lead = ndim_of(gradient) - info.shape.size();
      Dims dims;
      for (int i = 0; i < gradient.dim(); ++i)
        if (i < lead || (info.shape[i - lead] == 1 && gradient.size(i) != 1)) dims.push_back(i);
      gradient = gradient.sum(dims, true).reshape(info.shape);
    }
    GRADUS_CHECK(gradient.device() == info.device, DeviceError, from, " returned a gradient on ", gradient.device(),
                 " for a tensor on ", info.device);
    if (gradient.dtype() != info.dtype) gradient = gradient.to(info.dtype);
    return gradient;
  }

  const bool keep_graph_, create_graph_;
  const Grads* given_ = nullptr;  // the gradients that the running node's backward got; null outside of backward
  std::vector<Capture> captures_;
  StateTable states_;
  std::priority_queue<Ready> ready_;
  std::vector<std::function<void()>> callbacks_;
  static thread_local constinit BackwardPass* current_;
};

thread_local constinit BackwardPass* BackwardPass::current_ = nullptr;

// The gradient with which the pass begins at tensor number i: the one that the caller passed, or 1 if the tensor has a
// single element.
Tensor root_gradient(size_t i, const Tensor& tensor, Tensor gradient, bool create_graph) {
  if (!gradient.defined()) {
    GRADUS_CHECK(tensor.numel() == 1, AutogradError, "a gradient is implied for scalars only; tensor ", i,
                 " has shape ", tensor.sizes(), ": pass one, or reduce with sum() or mean()");
    NoGradGuard no_grad;
    return ones_like(tensor);
  }
  GRADUS_CHECK(gradient.sizes() == tensor.sizes(), ShapeError, "gradient ", i, " has shape ", gradient.sizes(),
               " but its tensor has ", tensor.sizes());
  GRADUS_CHECK(gradient.device() == tensor.device(), DeviceError, "gradient ", i, " is on ", gradient.device(),
               " but its tensor on ", tensor.device());
  if (!create_graph) gradient = gradient.detach();
  return gradient.dtype() == tensor.dtype() ? gradient : gradient.to(tensor.dtype());
}

// Runs a pass from `tensors` and returns the gradients of `inputs`, undefined where the tensors do not depend on the
// input. Without inputs, the pass adds the gradients of the leaves to their grad().
TensorList run_pass(const TensorList& tensors, const TensorList& gradients, const TensorList& inputs,
                    std::optional<bool> retain_graph, bool create_graph) {
  GRADUS_CHECK(gradients.empty() || gradients.size() == tensors.size(), ValueError, tensors.size(), " tensors but ",
               gradients.size(), " gradients");
  std::vector<Edge> roots;
  Grads root_gradients;
  for (size_t i = 0; i < tensors.size(); ++i) {
    roots.push_back(gradient_edge(tensors[i]));
    GRADUS_CHECK(roots.back().node, AutogradError, "tensor ", i, " of shape ", tensors[i].sizes(),
                 " does not require gradients: element ", i,
                 " of tensors does not require grad and does not have a grad_fn");
    const Tensor given = gradients.empty() ? Tensor() : gradients[i];
    root_gradients.push_back(root_gradient(i, tensors[i], given, create_graph));
  }
  std::vector<Capture> captures;
  for (size_t i = 0; i < inputs.size(); ++i) {
    captures.push_back({gradient_edge(inputs[i]), {}});
    GRADUS_CHECK(captures.back().at.node, AutogradError, "input ", i, " of shape ", inputs[i].sizes(),
                 " does not require gradients");
  }
  BackwardPass pass(retain_graph.value_or(create_graph), create_graph);
  return pass.run(roots, std::move(root_gradients), std::move(captures));
}

}  // namespace

namespace autograd {

void backward(const TensorList& tensors, const TensorList& grad_tensors, std::optional<bool> retain_graph,
              bool create_graph, const TensorList& inputs, Loc where) {
  OpScope op("backward", where);
  TensorList gradients = run_pass(tensors, grad_tensors, inputs, retain_graph, create_graph);
  AutoGradMode mode(create_graph);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (gradients[i].defined()) accumulate_and_notify(inputs[i], std::move(gradients[i]));
}

TensorList grad(const TensorList& outputs, const TensorList& inputs, const TensorList& grad_outputs,
                std::optional<bool> retain_graph, bool create_graph, bool allow_unused, Loc where) {
  OpScope op("grad", where);
  GRADUS_CHECK(!inputs.empty(), ValueError, "grad requires non-empty inputs.");
  TensorList gradients = run_pass(outputs, grad_outputs, inputs, retain_graph, create_graph);
  for (size_t i = 0; i < inputs.size(); ++i)
    GRADUS_CHECK(allow_unused || gradients[i].defined(), AutogradError, "input ", i, " of shape ", inputs[i].sizes(),
                 " was not used to compute the outputs. Set allow_unused=True if that is intended");
  return gradients;
}

void queue_callback(std::function<void()> done) {
  GRADUS_CHECK(BackwardPass::current(), AutogradError,
               "queue_callback needs a backward pass in progress on this thread");
  BackwardPass::current()->add_callback(std::move(done));
}

}  // namespace autograd

bool detail::is_handed_over(const Tensor& dy) {
  return BackwardPass::current() && BackwardPass::current()->hands_over(dy);
}

}  // namespace gradus
