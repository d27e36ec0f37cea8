#include <gradus/onnx/model.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include <gradus/core/io/array_bytes.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/protobuf.h>
#include <gradus/core/version.h>

namespace gradus::graph::onnx {
namespace {

using io::ProtobufMessage;

// Versions and enumerations from onnx/onnx.proto.
constexpr int kIrVersion = 8, kOpset = 17;
enum AttributeType : int64_t { kFloat = 1, kInt = 2, kString = 3, kInts = 7 };
ProtobufMessage message_of(const std::string& name, const Attribute& attribute) {
  ProtobufMessage message;
  message.text(1, name);
  if (const auto* number = std::get_if<int64_t>(&attribute)) message.integer(3, *number).integer(20, kInt);
  else if (const auto* real = std::get_if<double>(&attribute))
    message.number(2, static_cast<float>(*real)).integer(20, kFloat);
  else if (const auto* text = std::get_if<std::string>(&attribute)) message.text(4, *text).integer(20, kString);
  else {
    for (int64_t element : std::get<std::vector<int64_t>>(attribute)) message.integer(8, element);
    message.integer(20, kInts);
  }
  return message;
}

ProtobufMessage message_of(const Node& node) {
  ProtobufMessage message;
  for (const std::string& input : node.inputs) message.text(1, input);
  for (const std::string& output : node.outputs) message.text(2, output);
  const std::string module = node.call && !node.call->origin.module.empty() ? node.call->origin.module + "/" : "";
  message.text(3, module + node.outputs.front()).text(4, node.op);
  for (const auto& [name, attribute] : node.attributes) message.message(5, message_of(name, attribute));
  if (node.call) message.text(6, node.call->origin.str());
  return message;
}

ProtobufMessage message_of(const std::string& name, const Array& array) {
  const Array dense = io::contiguous_on_cpu(array);
  std::string bytes(static_cast<const char*>(dense.data()), dense.nbytes());
  const size_t size = size_of(dense.dtype());
  io::convert_byte_order(bytes.data(), bytes.size() / size, size, std::endian::little);
  ProtobufMessage message;
  for (int64_t extent : dense.shape()) message.integer(1, extent);
  return message.integer(2, element_type(dense.dtype())).text(8, name).text(9, bytes);
}

ProtobufMessage message_of(const std::string& name, const std::vector<Size>& sizes) {
  Array array = Array::empty({static_cast<int64_t>(sizes.size())}, DType::i64);
  for (size_t i = 0; i < sizes.size(); ++i) array.data<int64_t>()[i] = sizes[i].number;
  return message_of(name, array);
}

ProtobufMessage message_of(const Port& port) {
  ProtobufMessage shape;
  for (const Size& size : port.shape) {
    ProtobufMessage dimension;
    if (!size.is_of_batch) dimension.integer(1, size.number);
    else dimension.text(2, (size.number == 1 ? "" : std::to_string(size.number) + "*") + "batch");
    shape.message(1, dimension);
  }
  ProtobufMessage tensor, type, message;
  tensor.integer(1, element_type(port.dtype)).message(2, shape);
  type.message(1, tensor);
  return message.text(1, port.name).message(2, type);
}

/// Replaces each size that is proportional to the batch by a multiple of "batch": a size that is 8 for a batch of 2 and
/// 12 for a batch of 3 becomes 4 times the batch.
void unify(std::vector<Size>& sizes, const std::vector<Size>& larger_sizes, int64_t batch, int64_t larger_batch,
           const Call* call) {
  GRADUS_CHECK(sizes.size() == larger_sizes.size(), ValueError, "to_onnx: ", description_of(call),
               ": the number of dimensions depends on the batch");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t number = sizes[i].number, larger = larger_sizes[i].number;
    if (number == larger) continue;
    GRADUS_CHECK(number % batch == 0 && number / batch * larger_batch == larger, ValueError,
                 "to_onnx: ", description_of(call), ": with a batch of ", batch, " a size is ", number,
                 ", with one of ", larger_batch, " it is ", larger, ": it does not scale with the batch");
    sizes[i] = {number / batch, true};
  }
}

bool same_bytes(const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const Array x = io::contiguous_on_cpu(a), y = io::contiguous_on_cpu(b);
  return std::memcmp(x.data(), y.data(), x.nbytes()) == 0;
}

}  // namespace

int64_t element_type(DType dtype) {
  static constexpr int64_t numbers[] = {1, 11, 10, 16, 7, 6, 2, 9};  // in the order of DType
  static_assert(std::size(numbers) == kDTypeCount);
  return numbers[static_cast<int>(dtype)];
}

std::string description_of(const Call* call) {
  return call ? std::string("'") + call->name + "' (" + call->origin.str() + ")" : "the model's inputs and outputs";
}

std::string Model::add(const Call* call, const std::string& op, Names inputs, Attributes attributes, int outputs) {
  const std::string name = op + "_" + std::to_string(count_++);
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();  // omitted inputs at the end need no name
  Node node{op, std::move(inputs), {name}, std::move(attributes), call};
  for (int i = 1; i < outputs; ++i) node.outputs.push_back(name + "." + std::to_string(i));
  nodes.push_back(std::move(node));
  return name;
}

std::string Model::add_sizes(const Dims& numbers) {
  const std::string name = "sizes_" + std::to_string(count_++);
  for (int64_t number : numbers) sizes[name].push_back({number, false});
  sizes[name];  // creates the entry if there are no numbers
  return name;
}

std::string Model::add_constant(const Array& array) {
  const std::string name = "constant_" + std::to_string(count_++);
  weights.emplace_back(name, array);
  return name;
}

void Model::remove_unused() {
  std::set<std::string> wanted;
  for (const Port& output : outputs) wanted.insert(output.name);
  std::vector<Node> kept;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::ranges::none_of(node->outputs, [&](const auto& out) { return wanted.count(out); })) continue;
    wanted.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(std::move(*node));
  }
  nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  std::erase_if(weights, [&](const auto& weight) { return !wanted.count(weight.first); });
  std::erase_if(sizes, [&](const auto& entry) { return !wanted.count(entry.first); });
}

void Model::make_dynamic(const Model& larger, int64_t batch, int64_t larger_batch) {
  const auto fail = [&](const Call* call) {
    GRADUS_FAIL(ValueError, "to_onnx: ", description_of(call), ": the pass recorded with a batch of ", batch,
                " differs from the one with a batch of ", larger_batch);
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i >= larger.nodes.size()) fail(nodes[i].call);
    const Node &a = nodes[i], &b = larger.nodes[i];
    if (a.inputs != b.inputs || a.outputs != b.outputs || a.attributes != b.attributes) fail(a.call);
    for (const std::string& input : a.inputs)
      if (const auto entry = sizes.find(input); entry != sizes.end() && larger.sizes.count(input))
        unify(entry->second, larger.sizes.at(input), batch, larger_batch, a.call);
  }
  if (larger.nodes.size() > nodes.size()) fail(larger.nodes[nodes.size()].call);
  for (size_t i = 0; i < weights.size(); ++i) {  // as many as in `larger`, because the nodes read the same names
    const auto user = std::ranges::find_if(
        nodes, [&](const Node& node) { return std::ranges::find(node.inputs, weights[i].first) != node.inputs.end(); });
    if (larger.weights[i].first != weights[i].first || !same_bytes(weights[i].second, larger.weights[i].second))
      fail(user == nodes.end() ? nullptr : user->call);
  }
  for (auto ports : {&Model::inputs, &Model::outputs})
    for (size_t i = 0; i < (this->*ports).size(); ++i)
      unify((this->*ports)[i].shape, (larger.*ports)[i].shape, batch, larger_batch, nullptr);
}

void Model::compute_sizes(int64_t batch_axis) {
  std::map<std::string, bool> only_reshapes;  // by name: whether only Reshape nodes use the value
  for (const Node& node : nodes)
    for (const std::string& input : node.inputs)
      only_reshapes[input] = node.op == "Reshape" && (!only_reshapes.count(input) || only_reshapes[input]);
  const auto count = static_cast<std::ptrdiff_t>(nodes.size());
  std::string batch;
  for (auto& [name, numbers] : std::exchange(sizes, {})) {
    if (std::ranges::count_if(numbers, &Size::is_of_batch) == 1 && only_reshapes[name] &&
        std::ranges::count(numbers, -1, &Size::number) == 0)
      *std::ranges::find_if(numbers, &Size::is_of_batch) = {-1, false};  // Reshape infers a size of -1
    if (std::ranges::none_of(numbers, &Size::is_of_batch)) {
      sizes[name] = numbers;
      continue;
    }
    if (batch.empty())
      batch = add(nullptr, "Shape", {inputs.front().name}, {{"start", batch_axis}, {"end", batch_axis + 1}});
    Names parts;
    for (const Size& size : numbers) {
      const std::string number = add_sizes(size.number);
      parts.push_back(!size.is_of_batch ? number : size.number == 1 ? batch : add(nullptr, "Mul", {batch, number}));
    }
    add(nullptr, "Concat", parts, {{"axis", 0}});
    nodes.back().outputs = {name};
  }
  std::rotate(nodes.begin(), nodes.begin() + count, nodes.end());  // moves the new nodes to the front
  remove_unused();
}

std::string Model::bytes() const {
  ProtobufMessage graph;
  for (const Node& node : nodes) graph.message(1, message_of(node));
  graph.text(2, "forward");
  for (const auto& [name, array] : weights) graph.message(5, message_of(name, array));
  for (const auto& [name, numbers] : sizes) graph.message(5, message_of(name, numbers));
  for (const Port& port : inputs) graph.message(11, message_of(port));
  for (const Port& port : outputs) graph.message(12, message_of(port));
  ProtobufMessage model, opset;
  model.integer(1, kIrVersion).text(2, "gradus").text(3, version()).message(7, graph);
  model.message(8, opset.text(1, "").integer(2, kOpset));
  GRADUS_CHECK(model.bytes().size() < size_t{1} << 31, ValueError, "to_onnx: the model has ", model.bytes().size(),
               " bytes, a file of this format at most 2 GiB");
  return model.bytes();
}

}  // namespace gradus::graph::onnx
