// summary(model, size): a table of a model's layers with output shapes, parameters and multiply-adds.
//
//   std::cout << nn::summary(net, {1, 1, 28, 28});
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <gradus/layers/module/module.h>

namespace gradus {
namespace nn {

/// A module of the model. The numbers do not include those of its submodules.
struct LayerSummary {
  std::string name;                  ///< dotted; "" for the model itself
  std::string type;                  ///< name of the type, such as "Conv2d"
  int depth = 0;                     ///< 0 for the model itself
  int calls = 0;                     ///< number of calls module(x); 0 if only forward() was called
  std::vector<Shape> output_shapes;  ///< of the last call; empty if the module was not called
  int64_t parameters = 0;            ///< number of elements; a tied parameter counts where it occurs first
  int64_t multiply_adds = 0;         ///< of the matrix products and convolutions of the module
};

struct ModelSummary {
  std::vector<LayerSummary> layers;  ///< depth first, the model itself first
  int64_t parameters = 0, trainable_parameters = 0, parameter_bytes = 0, buffers = 0;
  int64_t multiply_adds = 0;
};
std::ostream& operator<<(std::ostream& stream, const ModelSummary& summary);

namespace detail {
/// Zeros of shape `size` on the device of the module's parameters and of their type, unless `dtype` is given.
Tensor summary_input(const Module& module, const Shape& size, std::optional<DType> dtype);
/// Sets the model to evaluation mode, calls `run`, which must return the model's outputs, and collects the summary.
/// Then restores the mode.
ModelSummary summarize(Module& model, const std::function<TensorList()>& run);
}  // namespace detail

/// Calls the model on zeros of `size`, which includes the batch: multiply-adds are those of the whole batch. The
/// model is not changed. `dtype` is kLong for models whose inputs are indices.
template <class M>
requires std::is_base_of_v<Module, M> ModelSummary summary(M& model, const Shape& size,
                                                           std::optional<DType> dtype = std::nullopt) {
  return summary(model, detail::summary_input(model, size, dtype));
}
/// Like summary() of a size, for one or more inputs supplied by the caller.
template <class M, class... Inputs>
requires(std::is_base_of_v<Module, M> && (std::is_same_v<Inputs, Tensor> && ...)) ModelSummary
    summary(M& model, const Tensor& first, const Inputs&... inputs) {
  return detail::summarize(model, [&] {
    auto result = call(model, first, inputs...);
    TensorList outputs;
    detail::visit_tensors(result, [&](const Tensor& tensor) { outputs.push_back(tensor); });
    return outputs;
  });
}
/// The same for a holder of a module, or a shared_ptr to it.
template <class Pointer, class... Inputs>
requires requires(const Pointer& model) { static_cast<Module&>(*model); }
ModelSummary summary(const Pointer& model, const Tensor& first, const Inputs&... inputs) {
  return summary(*model, first, inputs...);
}
template <class Pointer>
requires requires(const Pointer& model) { static_cast<Module&>(*model); }
ModelSummary summary(const Pointer& model, const Shape& size, std::optional<DType> dtype = std::nullopt) {
  return summary(*model, size, dtype);
}

}  // namespace nn

using nn::summary;

}  // namespace gradus
