// Reads ONNX files without a protobuf library, and computes what a model in such a file computes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::test {

struct ModelFile {
  using Attribute = std::variant<int64_t, float, std::string, std::vector<int64_t>>;
  struct Node {
    std::string name, op, doc;
    std::vector<std::string> inputs, outputs;
    std::map<std::string, Attribute> attributes;
  };
  struct Port {
    std::string name;
    DType dtype;
    std::vector<std::string> sizes;  ///< numbers, "batch" or multiples of it such as "4*batch"
  };

  /// Reads the bytes of a file. Throws an Error for fields that no exported model has.
  explicit ModelFile(std::string_view bytes);
  static ModelFile read(const std::string& path);

  std::vector<std::string> ops() const;

  int64_t ir_version = 0, opset = 0;
  std::string producer, producer_version, graph;
  std::vector<Node> nodes;
  std::map<std::string, Tensor> weights;
  std::vector<Port> inputs, outputs;

 private:
  void read_graph(std::string_view text);
};

/// "input (batch, 3)"
std::string to_string(const ModelFile::Port& port);
std::vector<std::string> to_strings(const std::vector<ModelFile::Port>& ports);

/// The outputs of a model for these inputs, in the order of the model's ports: each node is computed as the ONNX
/// specification defines it. Throws an Error for a model that is not valid, that has parts which no output depends on
/// or nodes without effect, or that needs what onnxruntime does not implement, such as IsNaN of half types.
TensorList evaluate(const ModelFile& model, const TensorList& inputs);

}  // namespace gradus::test
