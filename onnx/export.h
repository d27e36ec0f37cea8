// export_onnx writes a model's forward pass to an ONNX file for other runtimes (onnxruntime, TensorRT, OpenVINO, a
// browser).
//
//   export_onnx(net, randn({1, 3, 32, 32}), "net.onnx");      // for batches of any size
#pragma once

#include <string>

#include <gradus/core/options.h>
#include <gradus/layers/module/containers.h>

namespace gradus {

struct OnnxOptions {
  /// Axis of the input that is the batch: the exported model accepts any size of it. nullopt: the model accepts only
  /// the sizes of the given input.
  GRADUS_ARG(std::optional<int64_t>, batch_axis) = 0;
  GRADUS_ARG(std::string, input_name) = "input";
  GRADUS_ARG(std::string, output_name) = "output";
};

/// Exports what `model` computes for an input of this shape and type in evaluation mode: dropout does nothing and batch
/// norm uses its running statistics. The values of `input` do not matter. Weights keep their names. The file has opset
/// 17. Throws a DeviceError if the model is not on the CPU. Throws a ValueError that names module and line for an
/// operation that cannot be expressed in ONNX, or that has a size which is not a multiple of the batch
/// (docs/guide/export.md).
void export_onnx(const nn::AnyModule& model, const Tensor& input, const std::string& path,
                 const OnnxOptions& options = {});
/// The same for a model that is the holder of a module or a shared_ptr to a module.
template <class M>
void export_onnx(const M& model, const Tensor& input, const std::string& path, const OnnxOptions& options = {}) {
  export_onnx(nn::AnyModule(model), input, path, options);
}

}  // namespace gradus
