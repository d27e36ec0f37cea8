// export_onnx: a model's forward pass as an ONNX file, for other runtimes (onnxruntime, TensorRT, OpenVINO, a browser).
//
//   export_onnx(net, randn({1, 3, 32, 32}), "net.onnx");      // for batches of any size
#pragma once

#include <string>

#include <gradus/core/options.h>
#include <gradus/layers/any_module.h>

namespace gradus {

struct OnnxOptions {
  /// Axis of the input along which models take any size; nullopt: the model takes the input's size alone.
  GRADUS_ARG(std::optional<int64_t>, batch_axis) = 0;
  GRADUS_ARG(std::string, input_name) = "input";
  GRADUS_ARG(std::string, output_name) = "output";
};

/// Writes what `model` computes of an input like this one (its shape and type count, not its numbers), in evaluation
/// mode: dropout does nothing, batch norm uses its running statistics. Weights have their names in the model. Opset 17.
/// The model is on the CPU, else a DeviceError. What ONNX cannot express here, or does not scale with the batch, is a
/// ValueError with module and line (docs/guide/export.md).
void export_onnx(const nn::AnyModule& model, const Tensor& input, const std::string& path,
                 const OnnxOptions& options = {});
/// A holder of a module, or a shared_ptr to one.
template <class M>
void export_onnx(const M& model, const Tensor& input, const std::string& path, const OnnxOptions& options = {}) {
  export_onnx(nn::AnyModule(model), input, path, options);
}

}  // namespace gradus
