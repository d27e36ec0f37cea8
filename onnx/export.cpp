#include <gradus/onnx/export.h>

#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/platform/file.h>
#include <gradus/graph/recorder.h>
#include <gradus/onnx/recorded_pass.h>

namespace gradus {
namespace {

/// Sets evaluation mode during its lifetime, then restores the mode of each module.
class Evaluation {
 public:
  explicit Evaluation(nn::Module& model) {
    for (const auto& module : model.modules()) training_.emplace_back(module, module->is_training());
    model.eval();
  }
  ~Evaluation() {
    for (const auto& [module, is_training] : training_) module->train(is_training);
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<nn::Module>, bool>> training_;  // outer modules first
};

/// The recording and the result, whose memory belongs to the recording.
std::pair<graph::ForwardPass, Tensor> record_forward(const nn::AnyModule& model, const Tensor& input,
                                                     const OnnxOptions& options) {
  graph::Recorder recorder;
  // A copy, because the result may be a view of the input or a parameter that no call of the pass uses.
  const Tensor output = model.forward(input).clone();
  graph::ForwardPass pass;
  pass.graph = recorder.finish();
  pass.inputs = {{options.input_name(), input.array()}};
  pass.outputs = {{options.output_name(), output.array()}};
  for (const auto& entry : model.ptr()->named_parameters())
    pass.weights.emplace_back(entry.key(), entry.value().array());
  for (const auto& entry : model.ptr()->named_buffers()) pass.weights.emplace_back(entry.key(), entry.value().array());
  return {std::move(pass), output};
}

}  // namespace

void export_onnx(const nn::AnyModule& model, const Tensor& input, const std::string& path, const OnnxOptions& options) {
  GRADUS_CHECK(!model.is_empty() && input.defined(), ValueError, "export_onnx needs a model and an input");
  GRADUS_CHECK(input.device().is_cpu(), DeviceError,
               "export_onnx: the model and its input must be on the cpu: model->to(kCPU)");
  const NoGradGuard no_grad;
  const Evaluation evaluation(*model.ptr());
  std::string bytes;
  if (!options.batch_axis()) {
    bytes = graph::to_onnx(record_forward(model, input, options).first);
  } else {
    const int axis = normalize_axis(*options.batch_axis(), static_cast<int>(input.dim()));
    const auto with_batch = [&](int64_t batch) {
      Shape shape = input.sizes();
      shape[axis] = batch;
      return record_forward(model, zeros(shape, input.options()), options);
    };
    const auto small = with_batch(2), large = with_batch(3);
    bytes = graph::to_onnx(small.first, large.first, axis);
  }
  io::write_file(path, std::string_view(bytes));
}

}  // namespace gradus
