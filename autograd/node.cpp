#include <gradus/autograd/node.h>

#include <algorithm>
#include <atomic>

#include <gradus/core/ops/elementwise.h>

namespace gradus {
namespace {

std::atomic<uint64_t> next_sequence{1};
// Nodes waiting to be deleted by the outermost Node::destroy of this thread.
thread_local constinit std::vector<Node*>* condemned = nullptr;

}  // namespace

unsigned detail::new_hook_id() {
  static std::atomic<unsigned> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

Node::Node() : sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)) {}

void Node::destroy(Node* node) {
  // Deleting a node drops its edges and saved tensors, which may drop the next node, and so on down the graph: collect
  // instead of recursing.
  if (condemned) {
    condemned->push_back(node);
    return;
  }
  std::vector<Node*> list;
  condemned = &list;
  delete node;
  while (!list.empty()) {
    Node* next = list.back();
    list.pop_back();
    delete next;
  }
  condemned = nullptr;
}

Grads Node::backward(const Tensor&) { GRADUS_FAIL(AutogradError, name_, " has no derivative"); }
Grads Node::backward_of_sum(const Tensor&, const Tensor&) { GRADUS_FAIL(AutogradError, name_, " takes no parts"); }

void Node::release_saved() {
  for (Saved* saved = first_saved_; saved; saved = saved->next_) saved->release();
}

Tensor Node::input(size_t i) const {
  const Tensor& tensor = *inputs_[i];
  const bool overwritten = in_place_ && tensor.array().storage() == inputs_[0]->array().storage();
  if (!overwritten) return tensor;
  // The operator will write over these numbers: keep a copy, with the history that they had.
  Tensor copy(ops::clone(tensor.array()));
  const Edge& edge = edges_[i];
  if (edge.node) {
    copy.impl()->need_meta().grad_fn = edge.node;
    copy.impl()->need_meta().output_nr = edge.input;
  }
  return copy;
}

Saved::Saved(Node* owner, const char* name) : owner_(owner), name_(name), next_(owner->first_saved_) {
  owner->first_saved_ = this;
}

void Saved::keep(const Array& array, const Tensor& tensor) {
  SavedKeeper* keeper = SavedKeeper::current();
  if (const AutogradMeta* meta = tensor.defined() ? tensor.impl()->meta.get() : nullptr; meta && meta->keeper)
      [[unlikely]]
    keeper = meta->keeper.get();
  if (keeper) [[unlikely]] {
    if (const std::optional<size_t> place = keeper->take(array, tensor)) {
      keeper_ = Ref<SavedKeeper>(keeper);
      place_ = *place;
      return;
    }
  }
  array_ = array;
  tensor_ = tensor;
  version_ = array.version();
}

Saved& Saved::operator=(const Tensor& tensor) {
  if (!tensor.defined()) return *this;
  const bool recorded = !owner_->edges().empty();  // else the node lives for the call alone
  GRADUS_CHECK(
      !(recorded && tensor.impl()->inference), AutogradError,
      "Inference tensors cannot be saved for backward. This one was made in InferenceMode; clone() it outside");
  keep(tensor.array(), tensor);
  return *this;
}

Saved& Saved::operator=(const Array& array) {
  if (array.defined()) keep(array, Tensor());
  return *this;
}

Saved& Saved::operator=(Own own) {
  own_output_ = true;
  output_nr_ = own.output_nr;
  return *this = own.array;
}

// Numbers of the keeper's are its to keep: asked for each time, so that a pass which wants history gets it.
void Saved::fetch() const {
  if (!keeper_) return;
  SavedKeeper::Kept kept = keeper_->give(place_);
  array_ = std::move(kept.array);
  tensor_ = std::move(kept.tensor);
  version_ = array_.version();
}

void Saved::check() const {
  GRADUS_CHECK(!released_, AutogradError, "the graph was already used: what ", owner_->name(),
               " saved was freed by the first backward pass; pass retain_graph = true to the first one");
  GRADUS_CHECK(!array_.defined() || array_.version() == version_, AutogradError,
               "one of the variables needed for gradient computation has been modified by an inplace operation: '",
               name_, "' of shape ", array_.shape(), ", which ", owner_->name(),
               " saved for backward, was changed in place since: version ", array_.version(), ", expected ", version_,
               "; use an operator that makes a new tensor, or clone() first");
}

Tensor Saved::operator()() const {
  fetch();
  check();
  if (tensor_.defined() || !array_.defined()) return tensor_;
  Tensor tensor(array_);
  if (own_output_ && is_floating(array_.dtype())) {
    tensor.impl()->need_meta().grad_fn = Ref<Node>(owner_);
    tensor.impl()->need_meta().output_nr = output_nr_;
  }
  return tensor;
}

const Array& Saved::array() const {
  fetch();
  check();
  return array_;
}

void Saved::release() {
  if (defined()) released_ = true;
  array_ = Array();
  tensor_ = Tensor();
  if (keeper_) keeper_->drop(place_);
  keeper_ = nullptr;
}

TensorImpl::~TensorImpl() {
  if (meta && meta->retains_grad && meta->grad_fn)
    std::erase_if(meta->grad_fn->retains(), [this](const Node::Retain& retain) { return retain.tensor == this; });
}

}  // namespace gradus
