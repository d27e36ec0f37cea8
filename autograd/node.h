// Node: one recorded operator. It knows its inputs (edges), what it saved, and how to turn the gradient of its output
// into gradients of its inputs. Nodes are structs; forward and backward stand together in autograd/ops:
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
#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/core/array/small_vector.h>

namespace gradus {

/// Gradients, one per input or output; undefined where there is none. The engine sums a gradient of broadcast shape
/// down to its input's and converts its dtype, so that backward need not.
using Grads = SmallVector<Tensor, 4>;

/// Input `input` of `node`: where a gradient goes next. A null node means that nobody wants it.
struct Edge {
  Ref<Node> node;
  uint32_t input = 0;
};

class Node;

/// Takes over from the Saved objects of a part of the graph: they keep nothing and ask for the numbers when backward
/// wants them. Activation checkpointing (autograd/checkpoint.h) is made of this.
class SavedKeeper : public RefCounted {
 public:
  struct Kept {
    Array array;
    Tensor tensor;  ///< with history, where backward is differentiated
  };
  virtual ~SavedKeeper() = default;
  /// Called when a Saved of this thread is given numbers. Returns their place with this keeper, or nothing: the Saved
  /// keeps them itself.
  virtual std::optional<size_t> take(const Array& array, const Tensor& tensor) = 0;
  /// The numbers of a place. Throws where they cannot be made again.
  virtual Kept give(size_t place) = 0;
  /// The Saved of that place needs them no more.
  virtual void drop(size_t place) = 0;

  /// The keeper of what this thread records, null where there is none.
  static SavedKeeper* current() { return current_; }

 protected:
  static inline thread_local constinit SavedKeeper* current_ = nullptr;
};

/// A tensor kept for backward. Checks on use that it was not changed in place since, can be listed, and does not keep
/// its own node alive when it is that node's output.
class Saved {
 public:
  Saved(Node* owner, const char* name);
  Saved(const Saved&) = delete;
  /// Keeps an input (see Node::input), with its history, so that backward can be differentiated through it.
  Saved& operator=(const Tensor& tensor);
  /// Keeps numbers that are never differentiated through (masks, indices), or, from Node::own, an output.
  Saved& operator=(const Array& array);
  struct Own {
    Array array;
    uint32_t output_nr;
  };
  Saved& operator=(Own own);

  /// The saved tensor (in float32, where Node::backward_in_float32 says so). AutogradError when it was released or
  /// changed in place. Several passes may ask, and one may release, at the same time.
  Tensor operator()() const;
  /// The saved numbers, same checks.
  Array array() const;
  /// True if something was saved, even if it has been released since.
  bool defined() const { return given_; }

  const char* name() const { return name_; }
  const Saved* next() const { return next_; }
  /// Numbers without checks, for listings; undefined when released or with a keeper.
  const Array& peek() const { return array_; }
  bool is_own_output() const { return own_output_; }
  bool is_released() const { return released_; }
  void release();

 private:
  friend class Node;
  void keep(const Array& array, const Tensor& tensor);
  Tensor as_saved() const;
  void check() const;
  std::optional<SavedKeeper::Kept> from_keeper() const;
  Tensor with_history(const Array& array, const Tensor& tensor) const;
  Node* owner_;
  const char* name_;
  Saved* next_;  // next in the owner's list
  Array array_;
  Tensor tensor_;  // an input, with history
  uint32_t version_ = 0;
  uint32_t output_nr_ = 0;
  Ref<SavedKeeper> keeper_;  // has the numbers, or can make them
  size_t place_ = 0;         // with the keeper
  bool given_ = false, has_keeper_ = false, own_output_ = false;
  bool released_ = false;
  mutable std::atomic_flag busy_;  // while somebody copies or drops what is kept
};

class Node : public RefCounted {
 public:
  Node();
  virtual ~Node() = default;
  /// Deletes without recursion however long the graph behind is.
  static void destroy(Node* node);

  /// Gradients of the inputs from the gradient of the only output.
  virtual Grads backward(const Tensor& dy);
  /// Nodes with several outputs override this one; missing gradients are undefined.
  virtual Grads backward_all(const Grads& dys) { return backward(dys[0]); }
  /// True where backward_of_sum() takes the gradient of the only output as two parts: one pass less than to add them.
  virtual bool takes_parts() const { return false; }
  /// Gradients of the inputs from dy + addend.
  virtual Grads backward_of_sum(const Tensor& dy, const Tensor& addend);
  /// True for AccumulateGrad: the end of the line.
  virtual bool is_accumulator() const { return false; }
  /// False where an undefined gradient may reach backward_all; else such a node is passed over when all are undefined.
  virtual bool handles_undefined() const { return false; }
  /// True where backward consists of several operators, which would round their results to half types one after the
  /// other: it then gets half gradients and saved tensors in float32, and the engine rounds what it returns.
  virtual bool backward_in_float32() const { return false; }
  /// Drops what backward needed.
  virtual void release_saved();

  /// "MatMul": set by apply from the type; a string that outlives the node.
  virtual const char* name() const { return name_; }
  void set_name(const char* name) { name_ = name; }
  /// Dotted path of the layer in whose forward this node was made, "" outside.
  const std::string& module_path() const { return module_path_; }
  void set_module_path(std::string path) { module_path_ = std::move(path); }

  const SmallVector<Edge, 3>& edges() const { return edges_; }
  SmallVector<Edge, 3>& edges() { return edges_; }
  /// True if input i wants a gradient; what forward asks before it saves.
  bool needs_grad(size_t i) const { return i < edges_.size() && edges_[i].node; }
  /// Made later means higher; a node's edges lead to lower numbers. The engine runs the highest first.
  uint64_t sequence() const { return sequence_; }

  /// What a gradient of output i must look like.
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

  /// Called by the engine with the gradient of output `output_nr` before backward; a defined result replaces it.
  struct OutputHook {
    unsigned id;
    uint32_t output_nr;
    std::function<Tensor(const Tensor&)> call;
  };
  unsigned add_output_hook(uint32_t output_nr, std::function<Tensor(const Tensor&)> hook);
  /// Returns whether there was one with this id.
  bool remove_output_hook(uint32_t output_nr, unsigned id);
  /// A copy of the first hook whose id is at least `id`. The engine goes from hook to hook with it, without a lock
  /// during the calls: hooks and other threads may add and remove some.
  std::optional<OutputHook> output_hook_from(unsigned id) const;
  /// Fills the grad() of `tensor`, which is not kept alive, with the gradient of an output (retain_grad).
  void add_retain(uint32_t output_nr, TensorImpl* tensor);
  void remove_retain(const TensorImpl* tensor);
  /// The tensors that retain gradients and still live.
  std::vector<std::pair<uint32_t, Tensor>> retaining() const;
  /// False if no hook or tensor waits for the gradient of an output.
  bool is_watched() const { return watched_.load(std::memory_order_acquire); }

 protected:
  /// Input i as the user passed it; valid inside forward. Where the operator writes into that input, a copy of the
  /// old numbers.
  Tensor input(size_t i) const;
  /// True if the gradient of an input is a sum over dimensions along which forward broadcast it.
  bool has_broadcast_input() const;
  /// Where forward writes: input 0 for the in-place form of the operator, else null (a fresh result).
  const Array* destination(const Array& input0) const { return in_place_ ? &input0 : nullptr; }
  /// Marks an output of this node for saving:  y = own(Y);
  static Saved::Own own(const Array& output, uint32_t output_nr = 0) { return {output, output_nr}; }

 private:
  friend class Saved;
  friend struct ApplyAccess;
  SmallVector<Edge, 3> edges_;
  SmallVector<OutputInfo, 1> outputs_;
  Saved* first_saved_ = nullptr;
  const Tensor* const* inputs_ = nullptr;  // during forward
  bool in_place_ = false;                  // during forward: input 0 is written
  const char* name_ = "Node";
  std::string module_path_;
  const uint64_t sequence_;
  struct Retain {
    uint32_t output_nr;
    TensorImpl* tensor;
  };
  // Under the node's ObjectLock, with a flag that is read without it.
  std::vector<OutputHook> output_hooks_;
  std::vector<Retain> retains_;
  std::atomic<bool> watched_ = false;
};

/// How a view came to be: enough to make it again from its base.
struct ViewInfo {
  Tensor base;  // never itself a view
  // Of the storage when the view's grad_fn was last right. Written last when a reader makes the history anew, so that
  // another thread that sees the version also sees the history.
  std::atomic<uint32_t> version{0};
  // "no_grad" or "inference" where the view was made in that mode, else null: then it has no history of its own.
  const char* made_in = nullptr;
};

namespace amp::detail {
struct HalfCopy;
}

/// The autograd half of a tensor; made when first needed. Backward passes of several threads read and write the
/// gradients and the hooks of a leaf under its ObjectLock.
struct AutogradMeta {
  bool requires_grad = false;  // leaves only; others have a grad_fn
  bool retains_grad = false;
  uint32_t output_nr = 0;
  Ref<Node> grad_fn;
  Node* accumulator = nullptr;  // weak: the AccumulateGrad of this leaf while somebody holds it
  Tensor grad;
  Array bound_grad;         // bind_grad's storage
  Ref<SavedKeeper> keeper;  // gives this leaf's numbers to backward, where they come and go
  std::unique_ptr<ViewInfo> view;
  struct LeafHook {
    unsigned id;
    std::function<Tensor(const Tensor&)> call;
  };
  // Of leaves; others keep theirs in grad_fn. In the order of their ids.
  std::vector<LeafHook> hooks;
  struct PostHook {
    unsigned id;
    std::function<void(const Tensor&)> call;
  };
  std::vector<PostHook> post_hooks;
  std::atomic<bool> has_hooks = false;               // of either kind
  std::shared_ptr<amp::detail::HalfCopy> half_copy;  // of leaves (autograd/half_copy.h)
  Array half_grad;  // of leaves: what grad() converts when somebody asks; grad is undefined then
  std::atomic<bool> has_half_grad = false;
  bool recorded_half_grad = false;  // a recording made it
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

namespace detail {
/// The id of a new hook of a tensor or module: no two hooks of any kind share one.
unsigned new_hook_id();
}  // namespace detail

constexpr bool is_half(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2; }
/// x, of a half type in float32.
Tensor widened(const Tensor& x);

/// Where the gradient of `tensor` goes: its grad_fn, its AccumulateGrad, or nowhere.
Edge gradient_edge(const Tensor& tensor);

}  // namespace gradus
