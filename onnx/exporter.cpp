#include <gradus/onnx/exporter.h>

namespace gradus::graph::onnx {

std::vector<int64_t> axes_of(uint32_t mask) {
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < kMaxDims; ++axis)
    if (mask >> axis & 1) axes.push_back(axis);
  return axes;
}

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
      {"topk", &Exporter::topk},
      {"gather", &Exporter::gather},
      {"scatter", &Exporter::scatter},
      {"pick", &Exporter::pick},
      {"softmax", &Exporter::softmax},
      {"normalize", &Exporter::normalize},
      {"lstm_cell", &Exporter::lstm_cell},
      {"lstm_sequence", &Exporter::lstm},
      {"attention", &Exporter::attention},
      {"cross_entropy", &Exporter::cross_entropy},
      {"rgb_to_grayscale", &Exporter::grayscale},
  };
  const auto translation = translations.find(call.name);
  call_ = &call;
  if (translation == translations.end()) {  // an error only if something reads the results
    for (const Operand& operand : call.operands)
      if (operand.is_written) values_.write(&call, operand, "");
    return;
  }
  const Arguments arguments(call);
  arguments_ = &arguments;
  (this->*translation->second)();
}

void Exporter::reduce() {
  const std::vector<int64_t> axes = axes_of(static_cast<uint32_t>(value<int64_t>("axes")));
  if (numel_of(shape("x")) == 0) {  // runtimes disagree on empty inputs
    const Array y = Array::empty(shape("y"), dtype("y"));
    backend("naive").reduce(choice<ReduceOp>("op"), Array::empty(shape("x"), dtype("x")),
                            static_cast<uint32_t>(value<int64_t>("axes")), y);
    return write("y", model_.add_constant(y));
  }
  const auto reduced = [&](const char* op, const std::string& x) {
    return node(op, {x}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  };
  const std::string x = read("x"), wide = cast(x, dtype("x"), dtype("y"));
  const DType type = dtype("y"), ordered = type == DType::boolean ? DType::i32 : type;
  switch (choice<ReduceOp>("op")) {
    case ReduceOp::sum:  // its axes are an input since opset 13
      return write("y", node("ReduceSum", {wide, model_.add_sizes(axes)}, {{"keepdims", int64_t{1}}}));
    case ReduceOp::mean: return write("y", reduced("ReduceMean", wide));
    case ReduceOp::prod: return write("y", reduced("ReduceProd", wide));
    case ReduceOp::max: return write("y", cast(reduced("ReduceMax", cast(wide, type, ordered)), ordered, type));
    case ReduceOp::min: return write("y", cast(reduced("ReduceMin", cast(wide, type, ordered)), ordered, type));
    case ReduceOp::all:
    case ReduceOp::any: {
      const std::string truth = cast(cast(x, dtype("x"), DType::boolean), DType::boolean, DType::i32);
      const bool all = choice<ReduceOp>("op") == ReduceOp::all;
      return write("y", cast(reduced(all ? "ReduceMin" : "ReduceMax", truth), DType::i32, dtype("y")));
    }
  }
}

// ONNX's TopK breaks ties like gradus: equal elements keep their order. Runtimes implement it for few types.
void Exporter::sort_by(bool largest) {
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
      model_.add(call_, "TopK", {cast(x, type, wide), count}, {{"axis", axis}, {"largest", int64_t{largest}}}, 2);
  if (has("values")) write("values", cast(values, wide, type));
  write("indices", values + ".1");
}

// If the index is constant along all other axes, as in embeddings and index_select, whole slices are gathered.
void Exporter::gather() {
  const auto axis = static_cast<int>(value<int64_t>("axis"));
  const StridedLayout& index = operand("index").layout;
  bool takes_slices = true;
  for (int i = 0; i < index.ndim(); ++i)
    takes_slices &= i == axis || (index.strides[i] == 0 && index.shape[i] == shape("x")[i]) || shape("x")[i] == 1;
  const Attributes attributes = {{"axis", int64_t{axis}}};
  if (takes_slices)
    return write("y",
                 node("Gather", {read("x"), read("index", {index.shape[axis]}, {index.strides[axis]})}, attributes));
  write("y", node("GatherElements", {read("x"), read("index")}, attributes));
}

}  // namespace gradus::graph::onnx
