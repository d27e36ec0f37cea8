#include <gradus/onnx/exporter.h>

#include <algorithm>
#include <limits>

#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/core/platform/file.h>
#include <gradus/graph/recorder.h>
#include <gradus/onnx/export.h>

namespace gradus::graph::onnx {

void Exporter::run(Call& call) {
  using Translate = void (Exporter::*)();
  static const std::map<std::string_view, Translate> translations = {
      {"fill", &Exporter::fill},
      {"copy", &Exporter::copy},
      {"arange", &Exporter::arange},
      {"unary", &Exporter::unary},
      {"binary", &Exporter::binary},
      {"binary_scalar", &Exporter::binary_scalar},
      {"where", &Exporter::where},
      {"reduce", &Exporter::reduce},
      {"arg_reduce", &Exporter::arg_reduce},
      {"matmul", &Exporter::matmul},
      {"linear", &Exporter::linear},
      {"conv2d", &Exporter::convolution},
      {"conv2d_bias_relu", &Exporter::convolution},
      {"conv2d_backward_data", &Exporter::transposed_convolution},
      {"max_pool2d", &Exporter::max_pool},
      {"resample2d", &Exporter::resample},
      {"scan", &Exporter::scan},
      {"sort", &Exporter::sort},
      {"topk", &Exporter::sort},
      {"gather", &Exporter::gather},
      {"scatter", &Exporter::scatter},
      {"pick", &Exporter::pick},
      {"softmax", &Exporter::softmax},
      {"normalize", &Exporter::normalize},
      {"recurrent_sequence", &Exporter::recurrent},
      {"attention", &Exporter::attention},
      {"cross_entropy", &Exporter::cross_entropy},
      {"rgb_to_grayscale", &Exporter::grayscale},
  };
  const auto translation = translations.find(call.name);
  call_ = &call;
  // Unknown calls only mark their results as having no value. Values::read() throws if a later call reads one of them.
  if (translation == translations.end()) {
    for (const Operand& operand : call.operands)
      if (operand.is_written) values_.write(&call, operand, "");
    return;
  }
  const Arguments arguments(call);
  arguments_ = &arguments;
  (this->*translation->second)();
}

void Exporter::reduce() {
  if (numel_of(shape("x")) == 0) {  // the result is a constant, because runtimes disagree on empty inputs
    const Array y = Array::empty(shape("y"), dtype("y"));
    backend("naive").reduce(choice<ReduceOp>("op"), Array::empty(shape("x"), dtype("x")), mask(), y);
    return write("y", model_.add_constant(y));
  }
  // Runtimes lack ReduceMax and ReduceMin for booleans, for which all() is the minimum and any() the maximum.
  const DType type = dtype("y"), ordered = type == DType::boolean ? DType::i32 : type;
  const std::string x = cast(read("x"), dtype("x"), type);
  switch (choice<ReduceOp>("op")) {
    case ReduceOp::sum:  // since opset 13 the axes of ReduceSum are an input instead of an attribute
      return write("y", node("ReduceSum", {x, model_.add_sizes(axes())}, {{"keepdims", 1}}));
    case ReduceOp::mean: return write("y", reduced("ReduceMean", x, axes()));
    case ReduceOp::prod: return write("y", reduced("ReduceProd", x, axes()));
    case ReduceOp::max:
    case ReduceOp::any: return write("y", cast(reduced("ReduceMax", cast(x, type, ordered), axes()), ordered, type));
    case ReduceOp::min:
    case ReduceOp::all: return write("y", cast(reduced("ReduceMin", cast(x, type, ordered), axes()), ordered, type));
  }
}

// ONNX's TopK breaks ties like gradus: equal elements keep their order. Runtimes implement TopK for few types, so x is
// cast to one of them.
void Exporter::sort() {
  const bool largest = value<bool>(call_->name == std::string_view("topk") ? "largest" : "descending");
  const DType type = dtype("x");
  const DType wide =
      is_floating(type) ? (type == DType::f64 ? type : DType::f32) : (type == DType::i64 ? type : DType::i32);
  const std::string x = read("x");
  if (shape("x").empty()) {  // a scalar has no axis
    if (has("values")) write("values", x);
    return write("indices", constant(0, DType::i64));
  }
  const int64_t axis = value<int64_t>("axis");
  const std::string count = model_.add_sizes(shape("indices")[static_cast<int>(axis)]);
  const std::string values =
      model_.add(call_, "TopK", {cast(x, type, wide), count}, {{"axis", axis}, {"largest", largest}}, 2);
  if (has("values")) write("values", cast(values, wide, type));
  write("indices", values + ".1");
}

// If the index is the same along all axes except `axis`, as in embeddings and index_select, whole slices of x are
// gathered (Gather), else single elements (GatherElements).
void Exporter::gather() {
  const auto axis = static_cast<int>(value<int64_t>("axis"));
  const StridedLayout& index = operand("index").layout;
  bool takes_slices = true;
  for (int i = 0; i < index.ndim(); ++i)
    takes_slices &= i == axis || (index.strides[i] == 0 && index.shape[i] == shape("x")[i]) || shape("x")[i] == 1;
  const Attributes attributes = {{"axis", axis}};
  if (takes_slices)
    return write("y",
                 node("Gather", {read("x"), read("index", {index.shape[axis]}, {index.strides[axis]})}, attributes));
  write("y", node("GatherElements", {read("x"), read("index")}, attributes));
}

// ---- Convolutions, pooling, normalisation, recurrent layers and attention ----

void Exporter::convolution() {
  const Shape& w = shape("w");
  Attributes attributes = window({w[2], w[3]}, geometry("padding"));
  attributes.emplace_back("group", value<int64_t>("geometry.groups"));
  const std::string y = node("Conv", {read("x"), read("w"), read_if_present("bias")}, attributes);
  const bool relu = arguments_->values.count("relu") && value<bool>("relu");
  write("y", relu ? node("Relu", {y}) : y);
}

// ConvTranspose cuts `padding` elements off the start of each axis. At the end it cuts as many as the size of `dx`
// requires; if `dx` reaches beyond the last window, a Pad node adds zeros. ONNX's attribute output_padding cannot
// express this, because it allows smaller values than gradus.
void Exporter::transposed_convolution() {
  const Shape &x = shape("dy"), &w = shape("w"), &y = shape("dx");
  std::vector<int64_t> cut;
  Dims beyond = Dims::filled(2 * x.size(), 0);
  for (int i = 0; i < 2; ++i) {
    const int64_t reach = (x[2 + i] - 1) * geometry("stride")[i] + geometry("dilation")[i] * (w[2 + i] - 1) + 1;
    const int64_t end = reach - geometry("padding")[i] - y[2 + i];
    cut.push_back(std::max<int64_t>(end, 0));
    beyond[x.size() + 2 + i] = std::max<int64_t>(-end, 0);
  }
  Attributes attributes = window({w[2], w[3]}, cut);
  attributes.emplace_back("group", value<int64_t>("geometry.groups"));
  const std::string result = node("ConvTranspose", {read("dy"), read("w")}, attributes);
  const bool is_whole = std::ranges::count(beyond, 0) == beyond.size();
  write("dx", is_whole ? result : node("Pad", {result, model_.add_sizes(beyond)}));
}

void Exporter::max_pool() {
  Attributes attributes = window(geometry("kernel"), geometry("padding"));
  for (size_t i = 0; i < 2; ++i) {
    const int axis = 2 + static_cast<int>(i);
    const int64_t reach =
        shape("x")[axis] + 2 * geometry("padding")[i] - geometry("dilation")[i] * (geometry("kernel")[i] - 1) - 1;
    if (shape("y")[axis] == reach / geometry("stride")[i] + 1) continue;
    attributes.emplace_back("ceil_mode", 1);
    break;
  }
  const std::string x = read("x");
  write("y", node("MaxPool", {x}, attributes));
  // ONNX's indices count through the whole tensor, those of gradus through one image. A second MaxPool node with two
  // outputs computes them; remove_unused() removes it if nothing reads the indices.
  const std::string places = model_.add(call_, "MaxPool", {x}, attributes, 2) + ".1";
  const std::string pixels = constant(shape("x")[2] * shape("x")[3], DType::i64);
  write("indices", cast(node("Mod", {places, pixels}), DType::i64, DType::i32));
}

std::string Exporter::stencil_matrix(const std::string& name, bool transposed) {
  const int64_t in = value<int64_t>(name + ".size_in"), out = value<int64_t>(name + ".size_out");
  const auto& begin = value<std::vector<int64_t>>(name + ".begin");
  const auto& source = value<std::vector<int64_t>>(name + ".source");
  const auto& weight = value<std::vector<double>>(name + ".weight");
  const Array matrix = ops::zeros({out, in}, DType::f64);
  for (size_t p = 0; p < static_cast<size_t>(out); ++p)
    for (auto k = static_cast<size_t>(begin[p]); k < static_cast<size_t>(begin[p + 1]); ++k)
      matrix.data<double>()[p * static_cast<size_t>(in) + static_cast<size_t>(source[k])] += weight[k];
  return model_.add_constant(ops::cast(transposed ? matrix.transpose(0, 1) : matrix, type_));
}

// Average pooling and interpolation are linear along rows and along columns: y = R x Cᵀ with two constant matrices.
void Exporter::resample() {
  type_ = dtype("y");
  const std::string rows = node("MatMul", {stencil_matrix("rows", false), read("x")});
  write("y", node("MatMul", {rows, stencil_matrix("columns", true)}));
}

void Exporter::normalize() {
  type_ = dtype("x");
  const StridedLayout& x = operand("x").layout;
  const std::vector<int64_t> axes = this->axes();
  const bool fixed = value<bool>("fixed_statistics");
  const double eps = value<double>("eps");
  // Reads a parameter with only the axes [first, last).
  const auto parameter = [&](const std::string& name, int first, int last) {
    const auto count = static_cast<size_t>(last - first);
    const Strides strides(operand(name).layout.strides.begin() + first, count);
    return cast(read(name, Shape(x.shape.begin() + first, count), strides), dtype(name), type_);
  };
  // Returns true if weight and bias, unless they are absent, vary only along the axes [first, last).
  const auto parameters_are_along = [&](int first, int last) {
    for (const char* name : {"weight", "bias"})
      for (int i = 0; has(name) && i < x.ndim(); ++i)
        if ((i < first || i >= last) && x.shape[i] > 1 && operand(name).layout.strides[i] != 0) return false;
    return true;
  };
  const uint32_t all = (1u << x.ndim()) - 1;
  const bool is_batch_norm = fixed && x.ndim() >= 2 && mask() == (all & ~2u) && parameters_are_along(1, 2);
  const int first = x.ndim() - static_cast<int>(axes.size());  // a layer norm normalises over the last axes
  const bool is_layer_norm =
      !fixed && !axes.empty() && axes.front() == first && has("weight") && parameters_are_along(first, x.ndim());
  std::string y;
  if (is_batch_norm) {
    const auto filled = [&](double number) { return model_.add_constant(ops::full({x.shape[1]}, number, type_)); };
    y = node("BatchNormalization",
             {read("x"), has("weight") ? parameter("weight", 1, 2) : filled(1),
              has("bias") ? parameter("bias", 1, 2) : filled(0), parameter("mean", 1, 2), parameter("variance", 1, 2)},
             {{"epsilon", eps}});
  } else if (is_layer_norm) {
    y = node("LayerNormalization",
             {read("x"), parameter("weight", first, x.ndim()), has("bias") ? parameter("bias", first, x.ndim()) : ""},
             {{"axis", first}, {"epsilon", eps}});
  } else {
    const std::string input = read("x");
    const std::string mean = fixed ? cast(read("mean"), dtype("mean"), type_) : reduced("ReduceMean", input, axes);
    const std::string deviation = node("Sub", {input, mean});
    const std::string variance = fixed ? cast(read("variance"), dtype("variance"), type_)
                                       : reduced("ReduceMean", node("Mul", {deviation, deviation}), axes);
    y = node("Div", {deviation, node("Sqrt", {node("Add", {variance, number(eps)})})});
    if (has("weight")) y = node("Mul", {y, cast(read("weight", ~0u), dtype("weight"), type_)});
    if (has("bias")) y = node("Add", {y, cast(read("bias", ~0u), dtype("bias"), type_)});
  }
  if (has("residual")) y = node("Add", {y, read("residual")});
  write("y", value<bool>("relu") ? node("Relu", {y}) : y);
  // An ONNX model keeps no state between runs, so it has no values for updated running statistics.
  for (const char* statistic : {"running.mean", "running.variance", "running.batches"})
    if (has(statistic)) write(statistic, "");
}

// ONNX's LSTM computes a layer without a projection. All others are written step by step.
void Exporter::recurrent() {
  const auto cell = choice<RecurrentCell>("cell");
  const bool is_lstm = cell == RecurrentCell::lstm;
  if (is_lstm && !has("w_hr")) return lstm();
  const int64_t length = shape("gates")[0], size = shape("w_hh")[0] / gates_of(cell);
  std::vector<Names> sums(static_cast<size_t>(length));
  for (int64_t t = 0; t < length; ++t)
    for (int k = 0; k < sums_of(cell); ++k)
      sums[static_cast<size_t>(t)].push_back(values_.read(call_, at_step("gates", t, k * size, size)));
  for (const char* written : {"gates", "outputs", "cells", "hidden"}) write(written, "");
  std::string h = read("h0"), c = is_lstm ? read("c0") : h;
  const std::string sizes = model_.add_sizes(Dims::filled(gates_of(cell), size));
  const std::string w_hh = model_.add(call_, "Split", {read("w_hh"), sizes}, {{"axis", 0}}, gates_of(cell));
  for (int64_t i = 0; i < length; ++i) {
    const int64_t t = value<bool>("reverse") ? length - 1 - i : i;
    Names& all = sums[static_cast<size_t>(t)];
    for (size_t k = 0; k < static_cast<size_t>(gates_of(cell)); ++k)
      all[k] = node("Gemm", {h, k == 0 ? w_hh : w_hh + "." + std::to_string(k), all[k]}, {{"transB", 1}});
    std::tie(c, h) = step_of(cell, all, c);
    if (has("w_hr")) h = node("Gemm", {h, read("w_hr"), ""}, {{"transB", 1}});
    values_.replace(operand("hidden"), at_step("hidden", t, 0, shape("hidden")[2]), h);
    if (is_lstm && i + 1 == length) values_.replace(operand("cells"), at_step("cells", t, 0, size), c);
  }
}

// ONNX's LSTM multiplies the input by w_ih itself. In gradus, an earlier `linear` call does this, so the node gets the
// operands of that call. The gates of ONNX are in the order i, o, f, g, those of gradus in the order i, f, g, o.
void Exporter::lstm() {
  const Shape& gates = shape("gates");  // (L, N, 4 H)
  const int64_t length = gates[0], batch = gates[1], hidden = gates[2] / 4;
  const auto product = linears_.find(read("gates", {length * batch, gates[2]}, {gates[2], 1}));
  if (product == linears_.end()) unsupported("a sequence whose gates are no product x wᵀ + bias");
  const Linear linear = product->second;
  const auto reordered = [&](const std::string& parameter) {
    const std::string split =
        model_.add(call_, "Split", {parameter, model_.add_sizes({hidden, hidden, hidden, hidden})}, {{"axis", 0}}, 4);
    return node("Concat", {split, split + ".3", split + ".1", split + ".2"}, {{"axis", 0}});
  };
  const std::string axis_0 = model_.add_sizes(0);
  // The shape changes from (L N, F) to (L, N, F); the runtime infers F from -1.
  const std::string x = node("Reshape", {linear.x, model_.add_sizes({length, batch, -1})});
  std::string bias;
  if (!linear.bias.empty()) {
    // ONNX has a second bias, for the product with w_hh, which gradus does not have.
    const std::string zeros = model_.add_constant(ops::zeros({gates[2]}, dtype("gates")));
    bias = node("Unsqueeze", {node("Concat", {reordered(linear.bias), zeros}, {{"axis", 0}}), axis_0});
  }
  const bool reverse = value<bool>("reverse");
  const Attributes attributes = {{"hidden_size", hidden}, {"direction", reverse ? "reverse" : "forward"}};
  const std::string w_ih = node("Unsqueeze", {reordered(linear.w), axis_0});
  const std::string w_hh = node("Unsqueeze", {reordered(read("w_hh")), axis_0});
  const std::string h0 = node("Unsqueeze", {read("h0"), axis_0}), c0 = node("Unsqueeze", {read("c0"), axis_0});
  const std::string y = model_.add(call_, "LSTM", {x, w_ih, w_hh, bias, "", h0, c0}, attributes, 3);
  write("gates", "");
  write("hidden", node("Squeeze", {y, model_.add_sizes(1)}));
  // ONNX's LSTM outputs only the cell of the last step; the cells of other steps have no value in the model.
  values_.replace(operand("cells"), at_step("cells", reverse ? 0 : length - 1, 0, hidden),
                  node("Squeeze", {y + ".2", axis_0}));
}

// The rows and columns of a step's sums, states or outputs, (N, …), in an operand (L, N, …).
Operand Exporter::at_step(const std::string& name, int64_t step, int64_t column, int64_t columns) const {
  Operand part = operand(name);
  StridedLayout& layout = part.layout;
  part.offset += static_cast<size_t>(step * layout.strides[0] + column) * size_of(layout.dtype);
  layout.shape = {layout.shape[1], columns}, layout.strides = {layout.strides[1], 1};
  return part;
}

void Exporter::attention() {
  type_ = dtype("q");
  if (value<double>("rule.dropout") > 0) unsupported("attention with dropout");
  const int64_t queries = shape("q")[2], keys = shape("k")[2];
  const std::string transposed = node("Transpose", {read("k")}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  std::string scores = node("MatMul", {node("Mul", {read("q"), number(value<double>("rule.scale"))}), transposed});
  const double nothing = -std::numeric_limits<double>::infinity();
  if (value<bool>("rule.causal")) {
    const Array seen = Array::empty({queries, keys}, DType::boolean);
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) seen.data<bool>()[i * keys + j] = j <= i;
    scores = node("Where", {model_.add_constant(seen), scores, number(nothing)});
  }
  if (has("mask")) {
    const std::string mask = read("mask", ~0u);
    scores =
        dtype("mask") == DType::boolean ? node("Where", {mask, scores, number(nothing)}) : node("Add", {scores, mask});
  }
  std::string weights = node("Softmax", {scores}, {{"axis", -1}});
  if (has("mask")) {  // rows without keys
    const std::string is_empty = node("Equal", {reduced("ReduceMax", scores, {3}), number(nothing)});
    weights = node("Where", {is_empty, number(0), weights});
  }
  write("weights", weights);
  write("y", node("MatMul", {weights, read("v")}));
}

}  // namespace gradus::graph::onnx

// ---- Models of whole passes ----

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
  model.weights = pass.weights;
  for (const auto& [name, array] : pass.weights) exporter.values().define(array, name);
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

/// Puts a model into evaluation mode for its lifetime, and then restores the mode of each module.
class Evaluation : NoCopy {
 public:
  explicit Evaluation(nn::Module& model) {
    for (const auto& module : model.modules()) training_.emplace_back(module, module->is_training());
    model.eval();
  }
  ~Evaluation() {
    // train() also sets the mode of all submodules, so outer modules must come before inner ones.
    for (const auto& [module, is_training] : training_) module->train(is_training);
  }

 private:
  std::vector<std::pair<std::shared_ptr<nn::Module>, bool>> training_;  // outer modules first
};

/// Records model.forward(input).
graph::ForwardPass record_forward(const nn::AnyModule& model, const Tensor& input, const OnnxOptions& options) {
  graph::Recorder recorder;
  // The result is copied, because forward() may return a view of the input or a parameter that no call of the pass
  // uses.
  const Tensor output = model.forward(input).clone();
  graph::ForwardPass pass;
  pass.graph = recorder.finish();
  pass.inputs = {{options.input_name(), input.array()}};
  pass.outputs = {{options.output_name(), output.array()}};
  for (const auto& entry : model.ptr()->named_parameters())
    pass.weights.emplace_back(entry.key(), entry.value().array());
  for (const auto& entry : model.ptr()->named_buffers()) pass.weights.emplace_back(entry.key(), entry.value().array());
  return pass;
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
    bytes = graph::to_onnx(record_forward(model, input, options));
  } else {
    const int axis = normalize_axis(*options.batch_axis(), static_cast<int>(input.dim()));
    const auto with_batch = [&](int64_t batch) {
      Shape shape = input.sizes();
      shape[axis] = batch;
      return record_forward(model, zeros(shape, input.options()), options);
    };
    const graph::ForwardPass small = with_batch(2), large = with_batch(3);
    bytes = graph::to_onnx(small, large, axis);
  }
  io::write_file(path, std::string_view(bytes));
}

}  // namespace gradus
