// User-defined operators: forward and backward as static functions of a struct (torch::autograd::Function).
//
//   struct Square : autograd::Function<Square> {
//     static Tensor forward(AutogradContext* ctx, const Tensor& x) {
//       ctx->save_for_backward({x});
//       return x * x;
//     }
//     static TensorList backward(AutogradContext* ctx, const TensorList& dy) {
//       return {2 * ctx->get_saved_variables()[0] * dy[0]};
//     }
//   };
//   Tensor y = Square::apply(x);
#pragma once

#include <any>
#include <map>
#include <mutex>
#include <string>

#include <gradus/autograd/op_scope.h>

namespace gradus {
namespace autograd {

using variable_list = TensorList;

/// A value kept in ctx->saved_data. Reading it as another type is a ValueError.
class SavedValue {
 public:
  SavedValue() = default;
  // NOLINTBEGIN(google-explicit-constructor)
  SavedValue(bool value) : value_(value) {}
  SavedValue(int value) : SavedValue(int64_t{value}) {}
  SavedValue(int64_t value) : value_(value) {}
  SavedValue(double value) : value_(value) {}
  SavedValue(std::string value) : value_(std::move(value)) {}
  SavedValue(const char* value) : SavedValue(std::string(value)) {}
  SavedValue(Tensor value) : value_(std::move(value)) {}
  SavedValue(std::vector<int64_t> value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)
  bool toBool() const { return get<bool>("bool"); }
  int64_t toInt() const { return get<int64_t>("int"); }
  double toDouble() const { return get<double>("double"); }
  const std::string& toStringRef() const { return get<std::string>("string"); }
  const Tensor& toTensor() const { return get<Tensor>("tensor"); }
  const std::vector<int64_t>& toIntVector() const { return get<std::vector<int64_t>>("list of int"); }

 private:
  template <class T>
  const T& get(const char* wanted) const {
    const T* const found = std::any_cast<T>(&value_);
    GRADUS_CHECK(found, ValueError, "this entry of saved_data is not a ", wanted);
    return *found;
  }
  std::any value_;
};

class FunctionNode;

/// The object through which forward passes to backward what backward needs. Every call of apply() has its own.
class AutogradContext {
 public:
  /// Saves inputs or outputs of forward for backward. get_saved_variables() throws an AutogradError if one of them was
  /// changed in place since.
  void save_for_backward(TensorList tensors) { to_save_ = std::move(tensors); }
  TensorList get_saved_variables() const;
  /// Declares inputs that forward changed in place and returns.
  void mark_dirty(const TensorList& inputs) { dirty_ = inputs; }
  void mark_non_differentiable(const TensorList& outputs) { non_differentiable_ = outputs; }
  /// If true (default), backward gets zeros for an output that nothing used, else an undefined tensor.
  void set_materialize_grads(bool materialize) { materialize_ = materialize; }
  bool needs_input_grad(size_t input) const;
  std::map<std::string, SavedValue> saved_data;

 private:
  friend class FunctionNode;
  TensorList to_save_, dirty_, non_differentiable_;
  bool materialize_ = true;
  FunctionNode* node_ = nullptr;
};

/// The node of every custom Function<T>. It is not a template, because it receives T's functions as arguments.
class FunctionNode final : public Node {
 public:
  using Backward = TensorList (*)(AutogradContext*, const TensorList&);
  FunctionNode(Backward formula, const char* name) : backward_(formula) {
    context.node_ = this;
    set_name(name);
  }
  Grads backward_all(const Grads& dys) override;
  bool handles_undefined() const override { return true; }
  void release_saved() override;
  /// Runs `forward` with gradients disabled and makes `node` the history of its results.
  static TensorList run(const Ref<FunctionNode>& node, const TensorList& inputs, std::vector<int> input_of_argument,
                        const std::function<TensorList(AutogradContext*)>& forward);

  AutogradContext context;

 private:
  friend class AutogradContext;
  Backward backward_;
  std::recursive_mutex mutex_;  // serializes calls of backward_, because user functions may change their context
  std::vector<std::unique_ptr<Saved>> kept_;
  std::vector<int> input_of_argument_;  // index of each argument's edge, -1 if it is not a tensor
};

template <class T>
struct Function {
  /// Calls T::forward(ctx, args…). backward must return one gradient per argument: an undefined one for an argument
  /// that is not a tensor, and one per tensor for a list. It may return further undefined gradients for parameters of
  /// forward that were left at their defaults.
  template <class... Args>
  static auto apply(Args&&... args) {
    TensorList inputs;
    std::vector<int> input_of_argument;
    auto note = [&](const auto& arg) {
      const auto add = [&](const Tensor& tensor) {
        input_of_argument.push_back(static_cast<int>(inputs.size()));
        inputs.push_back(tensor);
      };
      if constexpr (detail::is_tensor<decltype(arg)>) {
        add(arg);
      } else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(arg)>, TensorList>) {
        for (const Tensor& tensor : arg) add(tensor);
      } else {
        input_of_argument.push_back(-1);
      }
    };
    (note(args), ...);
    using Result = decltype(T::forward(static_cast<AutogradContext*>(nullptr), args...));
    const Ref<FunctionNode> node = make_ref<FunctionNode>(
        [](AutogradContext* context, const TensorList& dys) -> TensorList { return T::backward(context, dys); },
        detail::node_name<T>());
    TensorList results =
        FunctionNode::run(node, inputs, std::move(input_of_argument), [&](AutogradContext* context) -> TensorList {
          if constexpr (std::is_same_v<Result, Tensor>) return {T::forward(context, args...)};
          else return T::forward(context, args...);
        });
    if constexpr (std::is_same_v<Result, Tensor>) return std::move(results[0]);
    else return results;
  }
};

}  // namespace autograd

using autograd::AutogradContext;

}  // namespace gradus
