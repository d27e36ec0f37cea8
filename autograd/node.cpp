#include <gradus/autograd/node.h>

#include <array>
#include <atomic>
#include <thread>

#include <gradus/core/ops/ops.h>

namespace gradus {
namespace {

std::atomic<uint64_t> next_sequence{1};
// Nodes that the outermost Node::destroy of this thread will delete.
thread_local constinit std::vector<Node*>* condemned = nullptr;

// The mutex that guards an object.
std::recursive_mutex& mutex_of(const void* object) {
  struct alignas(64) Padded {
    std::recursive_mutex mutex;
  };
  static std::array<Padded, 64> pool;
  const auto address = reinterpret_cast<uintptr_t>(object);
  return pool[(address / 64 ^ address / 4096) % pool.size()].mutex;
}

// A spin lock on a flag, held while a few handles are copied.
class FlagLock : NoCopy {
 public:
  explicit FlagLock(std::atomic_flag& flag) : flag_(flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  ~FlagLock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

}  // namespace

detail::ObjectLock::ObjectLock(const void* object) : lock_(mutex_of(object)) {}

unsigned detail::new_hook_id() {
  static std::atomic<unsigned> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

Node::Node() : sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)) {}

void Node::destroy(Node* node) {
  // Deleting a node releases its edges and saved tensors, which may delete the next node, and so on through the graph.
  // Nodes are therefore collected and deleted in a loop instead of recursively.
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

void Node::release_saved() {
  for (Saved* saved = first_saved_; saved; saved = saved->next_) saved->release();
}

void Node::add_retain(uint32_t output_nr, TensorImpl* tensor) {
  const detail::ObjectLock lock(this);
  retains_.push_back({output_nr, tensor});
  retaining_ = true;
}

void Node::remove_retain(const TensorImpl* tensor) {
  const detail::ObjectLock lock(this);
  std::erase_if(retains_, [tensor](const Retain& retain) { return retain.tensor == tensor; });
  retaining_ = !retains_.empty();
}

std::vector<std::pair<uint32_t, Tensor>> Node::retaining() const {
  std::vector<std::pair<uint32_t, Tensor>> tensors;
  const detail::ObjectLock lock(this);
  for (const Retain& retain : retains_)
    // Returns null if the tensor is being destroyed. Its destructor waits for this lock, so the pointer is still valid.
    if (Ref<TensorImpl> alive = Ref<TensorImpl>::lock(retain.tensor))
      tensors.emplace_back(retain.output_nr, Tensor(std::move(alive)));
  return tensors;
}

Tensor Node::input(size_t i) const {
  const Tensor& tensor = *inputs_[i];
  const bool overwritten = in_place_ && tensor.array().storage() == inputs_[0]->array().storage();
  if (!overwritten) return tensor;
  // The operator overwrites this data. Return a copy with the same history.
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
  given_ = true;
  SavedKeeper* keeper = SavedKeeper::current();
  if (const AutogradMeta* meta = tensor.defined() ? tensor.impl()->meta.get() : nullptr; meta && meta->keeper)
      [[unlikely]]
    keeper = meta->keeper.get();
  if (keeper) [[unlikely]] {
    if (const std::optional<size_t> place = keeper->take(array, tensor)) {
      has_keeper_ = true;
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
  const bool recorded = !owner_->edges().empty();  // otherwise the node exists only during the call of forward
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

// Returns the data and, if it was saved with its history, the tensor. What comes from a keeper is not stored here, so
// that a later pass that needs a history can ask again.
SavedKeeper::Kept Saved::read() const {
  Ref<SavedKeeper> keeper;
  {
    const FlagLock lock(busy_);
    GRADUS_CHECK(!released_, AutogradError, "the graph was already used: what ", owner_->name(),
                 " saved was freed by the first backward pass; pass retain_graph = true to the first one");
    GRADUS_CHECK(!array_.defined() || array_.version() == version_, AutogradError,
                 "one of the variables needed for gradient computation has been modified by an inplace operation: '",
                 name_, "' of shape ", array_.shape(), ", which ", owner_->name(),
                 " saved for backward, was changed in place since: version ", array_.version(), ", expected ", version_,
                 "; use an operator that makes a new tensor, or clone() first");
    if (!has_keeper_) return {array_, tensor_};
    keeper = keeper_;
  }
  return keeper->give(place_);
}

Tensor Saved::operator()() const {
  auto [array, tensor] = read();
  if (!tensor.defined() && array.defined()) {
    tensor = Tensor(array);
    if (own_output_ && is_floating(array.dtype())) {
      tensor.impl()->need_meta().grad_fn = Ref<Node>(owner_);
      tensor.impl()->need_meta().output_nr = output_nr_;
    }
  }
  return owner_->backward_in_float32() ? widened(tensor) : tensor;
}

Array Saved::array() const { return read().array; }

Tensor widened(const Tensor& x) {
  return x.defined() && is_half(x.dtype()) ? x.to(DType::f32, false, false, Loc{}) : x;
}

bool Node::has_broadcast_input() const {
  for (const Edge& edge : edges_)
    if (edge.node && !(edge.node->outputs_[edge.input].shape == outputs_[0].shape)) return true;
  return false;
}

void Saved::release() {
  // The data are moved here under the lock and destroyed after it is released, because destructors may run any code.
  Array array;
  Tensor tensor;
  Ref<SavedKeeper> keeper;
  {
    const FlagLock lock(busy_);
    released_ = given_;
    array = std::move(array_);
    tensor = std::move(tensor_);
    keeper = std::move(keeper_);
  }
  if (keeper) keeper->drop(place_);
}

LeafFeatures::~LeafFeatures() {
  LeafFeature* feature = first_;
  while (feature) delete std::exchange(feature, feature->next_);
}

TensorImpl::~TensorImpl() {
  if (meta && meta->retains_grad && meta->grad_fn) meta->grad_fn->remove_retain(this);
}

}  // namespace gradus
