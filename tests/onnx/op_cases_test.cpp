// Writes a model for every op case and every type that onnxruntime supports; onnx_test.py runs the models. Cases that
// cannot be exported are listed here and in docs/guide/export.md.
#include <fstream>
#include <regex>

#include <gradus/core/io/npy.h>
#include <gradus/graph/recorder.h>
#include <gradus/onnx/exporter.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/onnx/exporting.h>
#include <gradus/tests/op_cases/op_case.h>

using namespace gradus;

namespace {

using PortArrays = std::vector<std::pair<std::string, Array>>;

PortArrays named_arrays(const std::string& name, const TensorList& tensors) {
  PortArrays arrays;
  for (const Tensor& tensor : tensors) arrays.emplace_back(name + std::to_string(arrays.size()), tensor.array());
  return arrays;
}

std::string model_of_case(const op_cases::OpCase& op_case, const TensorList& inputs) {
  graph::Recorder recorder;
  const TensorList outputs = op_case.run(inputs);
  graph::ForwardPass pass;
  pass.graph = recorder.finish();
  pass.inputs = named_arrays("input", inputs);
  pass.outputs = named_arrays("output", outputs);
  return graph::to_onnx(pass);
}

}  // namespace

TEST_CASE("op cases for onnxruntime", "[onnxruntime]") {
  const test::RuntimeFolder folder;
  const NoGradGuard no_grad;
  // Cases with special numbers for which ONNX's formulas differ, as in onnx_test.py.
  const std::regex differing(
      "^(avg_pool2d.special|(atan2|remainder).corner_pairs|remainder.special|div.floor_special)$");
  std::map<std::string, std::string> refused;
  int models = 0;
  for (const op_cases::OpCase& op_case : op_cases::all_cases())
    for (DType dtype : {kFloat, kDouble, kHalf, kLong, kBool}) {
      if (!op_case.runs_in(dtype)) continue;
      const std::string model = op_case.name + "-" + std::string(name(dtype));
      const TensorList inputs = op_cases::make_inputs(op_case, dtype);
      std::string bytes;
      try {
        bytes = model_of_case(op_case, inputs);
      } catch (const Error& error) {
        refused[model] = error.what();
        continue;
      }
      ++models;
      folder.save(model, bytes);
      const auto save = [&](const PortArrays& ports) {
        for (const auto& [port, array] : ports) folder.save(model, 0, port, array);
      };
      const TensorList outputs = op_case.run(inputs);
      save(named_arrays("input", inputs));
      save(named_arrays("output", outputs));
      INFO(model);
      if (std::regex_search(op_case.name, differing)) continue;
      CHECK(difference(test::ModelFile(bytes), inputs, outputs) == "");
    }
  // Everything that docs/guide/export.md lists as impossible to export.
  const std::regex known(
      "reading a number cannot be part|"
      "'(uniform|normal|bernoulli|randint|randperm|dropout)' |a running product|an operator on bits|"
      "'normalize' \\((batch|instance)_norm, .*\\) has no counterpart in ONNX here; its result is used by the model's|"
      "memory that no call and no input or weight has");
  for (const auto& [model, reason] : refused) {
    CAPTURE(model, reason);
    CHECK(std::regex_search(reason, known));
  }
  CHECK(models > 5 * static_cast<int>(refused.size()));
}
