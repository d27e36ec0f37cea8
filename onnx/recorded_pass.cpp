#include <gradus/onnx/recorded_pass.h>

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
