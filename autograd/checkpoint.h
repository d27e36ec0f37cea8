// Activation checkpointing trades time for memory: the tensors that a part of a net saves for backward are dropped, and
// that part runs a second time when backward reaches it. Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear
// memory cost", 2016; semantics of torch.utils.checkpoint.checkpoint(use_reentrant=False).
//
//   Tensor h = autograd::checkpoint([&](const Tensor& x) { return block->forward(x); }, x);
//
// The graph is the same as without a checkpoint: parameters and other tensors that the function uses get their
// gradients, hooks run, grad() and create_graph work. Only the tensors that the nodes of the function save for backward
// are missing until the second run.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gradus/autograd/mixed_precision/autocast.h>
#include <gradus/autograd/node.h>

namespace gradus::autograd {

struct CheckpointOptions {
  /// The second run draws the same random numbers as the first, so that dropout uses the same mask.
  bool preserve_rng_state = true;
};

/// Stores the inputs of a function instead of the tensors that the function's nodes would save, and runs the function
/// again when backward needs these tensors.
class Recomputation final : public SavedKeeper {
 public:
  /// `run` calls the function with copies of `inputs` and discards its results.
  Recomputation(std::function<void(const TensorList&)> run, const TensorList& inputs, CheckpointOptions options);
  std::optional<size_t> take(const Array& array, const Tensor& tensor) override;
  Kept give(size_t place) override;
  void drop(size_t place) override;

  /// Calls visit(tensor) for `argument` if it is a tensor, and for each of its elements if it is a list of tensors.
  template <class Argument, class Visit>
  static void for_each_tensor(Argument& argument, const Visit& visit) {
    if constexpr (std::is_same_v<std::remove_const_t<Argument>, Tensor>) visit(argument);
    else if constexpr (std::is_same_v<std::remove_const_t<Argument>, TensorList>)
      for (auto& tensor : argument) visit(tensor);
  }
  /// Makes `keeper` the current keeper of this thread until the end of the scope.
  class Scope : ScopedValue<SavedKeeper*> {
   public:
    explicit Scope(SavedKeeper* keeper) : ScopedValue(current_, keeper) {}
  };

 private:
  /// One tensor that a node of the function saved. `kept` is empty until the second run.
  struct Place {
    Shape shape;
    DType dtype;
    bool dropped = false;
    Kept kept;
  };
  void run_again();

  std::function<void(const TensorList&)> run_;
  Node owner_;  // the node that owns inputs_; messages show its name, "checkpoint"
  std::vector<std::unique_ptr<Saved>> inputs_;
  std::vector<bool> input_has_history_;
  const bool preserve_rng_state_;
  uint64_t seed_, offset_;                // state of the default generator before the first run
  const amp::AutocastSettings autocast_;  // settings during the first run
  std::vector<Place> places_;
  std::recursive_mutex mutex_;  // guards the fields below, and places_ once the first run is over
  bool running_again_ = false;  // the second run is in progress
  size_t next_place_ = 0;       // the next element of places_ that the second run fills
  bool filled_ = false;         // the second run has filled places_
  bool with_history_ = false;   // the data in places_ have a history, because backward itself is differentiated
};

/// True while a checkpointed function runs for the second time. A layer that counts its calls must not count this one.
bool is_recomputing();

/// Returns function(inputs…) without storing the tensors that its operators save for backward. Inputs are tensors,
/// lists of tensors, or values that are copied; the result is whatever the function returns. The function may capture
/// other tensors. It must compute the same results from the same numbers in both runs: an AutogradError reports that
/// the second run saved other tensors, or that an input was changed in place between the runs. Checkpoints can be
/// nested. Under NoGradGuard this is a plain call.
template <class Function, class... Inputs>
auto checkpoint(const CheckpointOptions& options, Function function, const Inputs&... inputs) {
  if (!GradMode::is_enabled()) return function(inputs...);
  TensorList tensors;
  (Recomputation::for_each_tensor(inputs, [&](const Tensor& tensor) { tensors.push_back(tensor); }), ...);
  // The tensors in `arguments` are dropped, because these handles would keep the memory alive. The second run gets its
  // tensors from the Recomputation, which checks their versions.
  auto arguments = std::make_tuple(inputs...);
  const auto forget = [](Tensor& tensor) { tensor = Tensor(); };
  std::apply([&](auto&... argument) { (Recomputation::for_each_tensor(argument, forget), ...); }, arguments);
  auto run = [function, arguments = std::move(arguments)](const TensorList& list) {
    auto again = arguments;
    auto next = list.begin();
    const auto fill = [&](Tensor& tensor) { tensor = *next++; };
    const auto call = [&](auto&... argument) {
      (Recomputation::for_each_tensor(argument, fill), ...);
      function(std::as_const(argument)...);
    };
    std::apply(call, again);
  };
  const Ref<Recomputation> recomputation = make_ref<Recomputation>(std::move(run), tensors, options);
  const Recomputation::Scope scope(recomputation.get());
  return function(inputs...);
}
template <class Function, class... Inputs>
requires(!std::is_same_v<Function, CheckpointOptions>) auto checkpoint(Function function, const Inputs&... inputs) {
  return checkpoint(CheckpointOptions(), std::move(function), inputs...);
}

}  // namespace gradus::autograd
