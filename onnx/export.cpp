#include <gradus/onnx/export.h>

#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/platform/file.h>
#include <gradus/graph/recorder.h>
#include <gradus/onnx/exporter.h>

namespace gradus::graph {
namespace {

using namespace onnx;

Port port_of(const std::string& name, const Array& array) {
  Port port{name, array.dtype(), {}};
  for (int64_t size : array.shape()) port.shape.push_back({size, false});
  return port;
}

Model model_of(const ForwardPass& pass) {
  Model model;
  Exporter exporter(model, pass.graph);
  for (const auto& [name, array] : pass.inputs) {
    model.inputs.push_back(port_of(name, array));
    exporter.values().define(array, name);
  }
  for (const auto& [name, array] : pass.weights) {
    model.weights.emplace_back(name, array);
    exporter.values().define(array, name);
  }
  for (const auto& call : pass.graph.calls()) exporter.run(*call);
  for (const auto& [name, array] : pass.outputs) {
    model.outputs.push_back(port_of(name, array));
    const std::string value = exporter.values().read(nullptr, exporter.values().operand_of(array));
    model.add(nullptr, "Identity", {value});
    model.nodes.back().outputs = {name};
  }
  model.remove_unused();
  return model;
}

}  // namespace

std::string to_onnx(const ForwardPass& pass) { return model_of(pass).bytes(); }

std::string to_onnx(const ForwardPass& pass, const ForwardPass& larger, int64_t batch_axis) {
  GRADUS_CHECK(!pass.inputs.empty() && pass.inputs.size() == larger.inputs.size() &&
                   pass.outputs.size() == larger.outputs.size(),
               ValueError, "to_onnx: both recordings need the same inputs and outputs, and at least one input");
  const int64_t axis = normalize_axis(batch_axis, pass.inputs.front().second.ndim());
  const int64_t batch = pass.inputs.front().second.size(axis), larger_batch = larger.inputs.front().second.size(axis);
  GRADUS_CHECK(batch > 1 && batch < larger_batch, ValueError,
               "to_onnx: the second recording needs a larger batch than "
               "the first, and that one at least 2: got ",
               batch, " and ", larger_batch);
  Model model = model_of(pass);
  model.make_dynamic(model_of(larger), batch, larger_batch);
  model.compute_sizes(axis);
  return model.bytes();
}

}  // namespace gradus::graph

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
