// Node: one recorded operator. It has edges to the nodes of its inputs and the tensors it saved, and turns the gradient
// of its output into gradients of its inputs. Nodes are structs in autograd/ops with forward and backward side by side:
//
//   struct MatMul final : Node {                              // Y = A B
//     Saved a{this, "a"}, b{this, "b"};
//     Array forward(const Array& A, const Array& B) {
//       if (needs_grad(0)) b = input(1);
//       if (needs_grad(1)) a = input(0);
//       return ops::matmul(A, B);
//     }
//     Grads backward(const Tensor& dY) override { … }         // dA = dY Bᵀ,  dB = Aᵀ dY
//   };
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <typeinfo>

#include <gradus/autograd/tensor.h>
#include <gradus/core/array/small_vector.h>

namespace gradus {

/// Gradients, one per input or output of a node, undefined where there is none. backward may return the gradient of a
/// broadcast input in the broadcast shape and in another dtype: the engine sums it to the input's shape and converts
/// it.
using Grads = SmallVector<Tensor, 4>;

namespace detail {
/// Locks a node or a leaf's AutogradMeta until the end of the scope. Objects have no mutex of their own: a fixed pool
/// of mutexes serves all objects, so two objects may share a mutex. A thread that holds this lock must not lock a
/// second object, call a user's function or destroy a part of a graph.
class ObjectLock {
 public:
  explicit ObjectLock(const void* object);

 private:
  const std::unique_lock<std::recursive_mutex> lock_;
};

/// Returns the id for a new hook of a tensor or module. No two hooks of any kind share an id.
unsigned new_hook_id();

/// A list of functions (hooks) that are called with a gradient or a tensor, in the order in which they were added.
/// Several threads may add, remove and call them. No lock is held while a hook runs, so a hook may change the list and
/// wait for other threads.
template <class Function>
class HookList {
 public:
  struct Hook {
    unsigned id;
    uint32_t output_nr;  // the output of a node to which the hook belongs; 0 for leaves
    Function call;
  };
  /// Returns the id of the hook.
  unsigned add(Function call, uint32_t output_nr = 0) {
    const ObjectLock lock(this);
    hooks_.push_back({new_hook_id(), output_nr, std::move(call)});
    any_ = true;
    return hooks_.back().id;
  }
  /// Returns false if there is no hook with this id.
  bool remove(unsigned id, uint32_t output_nr = 0) {
    Hook removed;  // destroyed after the lock is released, because its captures may run any destructor
    const ObjectLock lock(this);
    for (size_t i = 0; i < hooks_.size(); ++i) {
      if (hooks_[i].id != id || hooks_[i].output_nr != output_nr) continue;
      removed = std::move(hooks_[i]);
      hooks_.erase(hooks_.begin() + static_cast<std::ptrdiff_t>(i));
      any_ = !hooks_.empty();
      return true;
    }
    return false;
  }
  /// True if there are hooks.
  bool any() const { return any_.load(std::memory_order_acquire); }
  /// Calls visit(hook) with a copy of each hook, without a lock.
  template <class Visit>
  void for_each(const Visit& visit) const {
    if (!any()) return;
    unsigned next = 0;
    while (const std::optional<Hook> hook = first_from(next)) {
      visit(*hook);
      next = hook->id + 1;
    }
  }
  /// Calls visit(id) for each hook, under the lock.
  template <class Visit>
  void for_each_id(const Visit& visit) const {
    const ObjectLock lock(this);
    for (const Hook& hook : hooks_) visit(hook.id);
  }

 private:
  std::optional<Hook> first_from(unsigned id) const {
    const ObjectLock lock(this);
    for (const Hook& hook : hooks_)
      if (hook.id >= id) return hook;
    return std::nullopt;
  }
  std::vector<Hook> hooks_;  // in the order of their ids
  std::atomic<bool> any_ = false;
};
using GradientHooks = HookList<std::function<Tensor(const Tensor&)>>;

}  // namespace detail

/// The destination of a gradient: `node`, whose backward takes the gradient of its output number `input` as an
/// argument. A null node means that no gradient is needed.
struct Edge {
  Ref<Node> node;
  uint32_t input = 0;
};

class Node;

/// Stores what the Saved objects of a part of the graph would store. Such a Saved holds no data; in backward it asks
/// its keeper for them. Activation checkpointing (autograd/checkpoint.h) and sharded parameters use keepers.
class SavedKeeper : public RefCounted {
 public:
  struct Kept {
    Array array;
    Tensor tensor;  ///< with history, if backward is differentiated
  };
  virtual ~SavedKeeper() = default;
  /// Called when a Saved of this thread is assigned. Returns the index of the data in this keeper, or nothing if the
  /// Saved must store the data itself.
  virtual std::optional<size_t> take(const Array& array, const Tensor& tensor) = 0;
  /// Returns the data with this index. Throws if they cannot be computed again.
  virtual Kept give(size_t place) = 0;
  /// Called when the Saved to which take() gave this index is released.
  virtual void drop(size_t place) = 0;

  /// The current keeper of this thread, null if there is none.
  static SavedKeeper* current() { return current_; }

 protected:
  static inline thread_local constinit SavedKeeper* current_ = nullptr;
};

/// A tensor that a node, its owner, keeps for backward; Node::saved() lists them. Reading it throws if the tensor was
/// changed in place after it was saved. An output of the owner is saved without its history, so that the node does not
/// keep itself alive.
class Saved {
 public:
  Saved(Node* owner, const char* name);
  /// Saves an input (see Node::input) with its history, so that backward itself can be differentiated.
  Saved& operator=(const Tensor& tensor);
  /// Saves data that are never differentiated, such as masks and indices.
  Saved& operator=(const Array& array);
  /// An output of the node, wrapped by Node::own. Its history is attached when it is read.
  struct Own {
    Array array;
    uint32_t output_nr;
  };
  Saved& operator=(Own own);

  /// Returns the saved tensor, in float32 if Node::backward_in_float32 is true. Throws an AutogradError if it was
  /// released or changed in place. Safe to call while other threads read or release it.
  Tensor operator()() const;
  /// The saved data, with the same checks.
  Array array() const;
  /// True if something was saved, even if it has been released since.
  bool defined() const { return given_; }

  const char* name() const { return name_; }
  const Saved* next() const { return next_; }
  /// The data without checks, for listings; undefined if released or held by a keeper.
  const Array& peek() const { return array_; }
  void release();

 private:
  friend class Node;
  void keep(const Array& array, const Tensor& tensor);
  SavedKeeper::Kept read() const;
  Node* owner_;
  const char* name_;
  Saved* next_;  // next in the list of its node
  Array array_;
  Tensor tensor_;  // a saved input, with history
  uint32_t version_ = 0;
  uint32_t output_nr_ = 0;
  Ref<SavedKeeper> keeper_;  // holds the data or can recompute them
  size_t place_ = 0;         // index in the keeper
  bool given_ = false, has_keeper_ = false, own_output_ = false;
  bool released_ = false;
  mutable std::atomic_flag busy_;  // held while a thread copies or releases the saved tensor
};

class Node : public RefCounted {
 public:
  Node();
  virtual ~Node() = default;
  /// Deletes a node and the nodes that only it keeps alive. Works without recursion, because a long graph would
  /// overflow the stack.
  static void destroy(Node* node);

  /// Computes the gradients of the inputs from the gradient of the only output.
  virtual Grads backward(const Tensor& dy);
  /// Nodes with several outputs override this instead of backward(). The gradient of an output that nothing used is
  /// undefined.
  virtual Grads backward_all(const Grads& dys) { return backward(dys[0]); }
  /// True only for AccumulateGrad, the last node of a path.
  virtual bool is_accumulator() const { return false; }
  /// True if backward_all() must also run when all gradients are undefined. Other nodes are skipped then.
  virtual bool handles_undefined() const { return false; }
  /// True if backward consists of several operators, each of which would round its result to a half type. The engine
  /// then passes half gradients and saved tensors in float32 and rounds what backward returns.
  virtual bool backward_in_float32() const { return false; }
  /// Releases everything saved for backward.
  virtual void release_saved();

  /// Type name such as "MatMul", set by apply(). The string must outlive the node.
  virtual const char* name() const { return name_; }
  void set_name(const char* name) { name_ = name; }
  /// Dotted path of the layer whose forward made this node, "" outside of layers.
  const std::string& module_path() const { return module_path_; }
  void set_module_path(std::string path) { module_path_ = std::move(path); }

  const SmallVector<Edge, 3>& edges() const { return edges_; }
  SmallVector<Edge, 3>& edges() { return edges_; }
  /// True if input i needs a gradient. forward asks this before it saves anything.
  bool needs_grad(size_t i) const { return i < edges_.size() && edges_[i].node; }
  /// Number of the node in the order of creation. Edges lead to lower numbers, except to an AccumulateGrad. The engine
  /// runs the ready node with the highest number first.
  uint64_t sequence() const { return sequence_; }

  /// Properties of an output. The engine converts a gradient of this output to the shape and type, and checks its
  /// device.
  struct OutputInfo {
    Shape shape;
    DType dtype;
    Device device;
  };
  const SmallVector<OutputInfo, 1>& outputs() const { return outputs_; }
  uint32_t add_output(const Array& array) {
    outputs_.push_back({array.shape(), array.dtype(), array.device()});
    return static_cast<uint32_t>(outputs_.size() - 1);
  }

  const Saved* saved() const { return first_saved_; }

  /// Called by apply() before and after forward, which overwrites input 0 if `in_place`.
  void set_inputs(TensorPointers inputs, bool in_place) {
    inputs_ = inputs;
    in_place_ = in_place;
  }

  /// Hooks that the engine calls with the gradients of outputs before it calls backward. A defined result replaces the
  /// gradient.
  detail::GradientHooks& output_hooks() { return output_hooks_; }
  const detail::GradientHooks& output_hooks() const { return output_hooks_; }
  /// Makes the engine store the gradient of an output in the grad() of `tensor` (retain_grad). Does not keep `tensor`
  /// alive.
  void add_retain(uint32_t output_nr, TensorImpl* tensor);
  void remove_retain(const TensorImpl* tensor);
  /// The tensors that retain gradients and still exist.
  std::vector<std::pair<uint32_t, Tensor>> retaining() const;
  /// True if an output has a hook or a tensor that retains its gradient.
  bool is_watched() const { return output_hooks_.any() || retaining_.load(std::memory_order_acquire); }

 protected:
  /// Input i as the user passed it, or a copy of its data if the operator overwrites it. Valid only during forward.
  Tensor input(size_t i) const;
  /// True if forward broadcasts an input, whose gradient is then a sum over the broadcast dimensions.
  bool has_broadcast_input() const;
  /// The array into which forward must write: input 0 for the in-place form of the operator, null if forward must
  /// allocate its result.
  const Array* destination(const Array& input0) const { return in_place_ ? &input0 : nullptr; }
  /// Wraps an output of this node for saving:  y = own(Y);
  static Saved::Own own(const Array& output, uint32_t output_nr = 0) { return {output, output_nr}; }

 private:
  friend class Saved;
  SmallVector<Edge, 3> edges_;
  SmallVector<OutputInfo, 1> outputs_;
  Saved* first_saved_ = nullptr;
  TensorPointers inputs_;  // the inputs during forward, otherwise empty
  bool in_place_ = false;  // during forward: input 0 is overwritten
  const char* name_ = "Node";
  std::string module_path_;
  const uint64_t sequence_;
  struct Retain {
    uint32_t output_nr;
    TensorImpl* tensor;
  };
  detail::GradientHooks output_hooks_;
  std::vector<Retain> retains_;  // guarded by the node's ObjectLock
  std::atomic<bool> retaining_ = false;
};

// ---- Views. A differentiable view refers to its base. If the base is changed in place, the view's history is derived
// from it again; if the view is changed in place, the change becomes part of the base's history. ----

/// How a view was made: enough to derive it from its base again.
struct ViewInfo {
  Tensor base;  // never itself a view
  // The storage's version when the view's grad_fn was last correct. refresh_view writes grad_fn first and this last, so
  // that a thread that reads the new version also sees the new grad_fn.
  std::atomic<uint32_t> version{0};
  // "no_grad" or "inference" if the view was made in that mode, else null. Such a view records no history.
  const char* made_in = nullptr;
};

/// Shape, strides and offset of a view, relative to the first element of its base.
struct ViewGeometry {
  Shape shape;
  Strides strides;
  int64_t offset = 0;
};

/// Gradient of a base from the gradient of a view: 0 for elements outside of the view; an element that the view
/// contains several times gets the sum.
Tensor gradient_of_base(const Tensor& dview, const ViewGeometry& base, const ViewGeometry& view);
/// Renews the view's grad_fn if the storage was written since grad_fn was last correct.
void refresh_view(const Tensor& view);
/// Called after `node` wrote into `view`: adds the write to the history of the view's base.
void rebase_history(const Tensor& view, const Ref<Node>& node);

// ---- The state of tensors ----

/// State that an optional feature keeps for a leaf, in a type that only the feature knows: the half-type copies and
/// gradients of mixed precision (half_copy.cpp), the storage that bind_grad sets (accumulate_grad.cpp).
class LeafFeature {
 public:
  virtual ~LeafFeature() = default;

 private:
  friend class LeafFeatures;
  LeafFeature* next_ = nullptr;
};

/// The features that a leaf uses; most tensors use none. They belong to AutogradMeta, because they live as long as the
/// leaf does and a lookup elsewhere would need a lock. A feature is found by its type without a lock, and is never
/// removed.
class LeafFeatures {
 public:
  ~LeafFeatures();
  /// True if a feature uses the leaf.
  bool any() const { return first_.load(std::memory_order_relaxed); }
  /// The leaf's state of feature T, null if it has none.
  template <class T>
  T* find() const {
    for (LeafFeature* feature = first_.load(std::memory_order_acquire); feature; feature = feature->next_)
      if (typeid(*feature) == typeid(T)) return static_cast<T*>(feature);  // several times faster than dynamic_cast
    return nullptr;
  }
  /// The leaf's state of feature T, made on first use.
  template <class T>
  T& need() {
    if (T* found = find<T>()) return *found;
    const std::lock_guard lock(adding_);
    if (T* found = find<T>()) return *found;
    T* const made = new T;
    made->next_ = first_.load(std::memory_order_relaxed);
    first_.store(made, std::memory_order_release);
    return *made;
  }

 private:
  static inline constinit std::mutex adding_;  // held while a feature is added to any leaf
  std::atomic<LeafFeature*> first_ = nullptr;
};

/// The autograd state of a tensor, made on first use. The gradient of a leaf is guarded by an ObjectLock on this
/// object, because several threads may run backward.
struct AutogradMeta {
  bool requires_grad = false;  // only for leaves; other tensors have a grad_fn
  bool retains_grad = false;
  uint32_t output_nr = 0;
  Ref<Node> grad_fn;
  Node* accumulator = nullptr;  // weak: this leaf's AccumulateGrad while a graph holds it
  Tensor grad;
  Ref<SavedKeeper> keeper;  // set for a sharded parameter; restores its data for backward
  std::unique_ptr<ViewInfo> view;
  // For leaves. Other tensors' hooks are in their grad_fn.
  detail::GradientHooks hooks;
  detail::HookList<std::function<void(const Tensor&)>> post_hooks;
  LeafFeatures features;
};

struct TensorImpl : RefCounted {
  explicit TensorImpl(Array numbers) : array(std::move(numbers)) {}
  ~TensorImpl();
  Array array;
  std::unique_ptr<AutogradMeta> meta;
  bool inference = false;  // made in InferenceMode
  AutogradMeta& need_meta() {
    if (!meta) meta = std::make_unique<AutogradMeta>();
    return *meta;
  }
};

constexpr bool is_half(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2; }
/// x converted to float32 if it is of a half type, else x.
Tensor widened(const Tensor& x);

/// Where the gradient of `tensor` goes: to its grad_fn, to its AccumulateGrad, or nowhere.
Edge gradient_edge(const Tensor& tensor);

}  // namespace gradus
