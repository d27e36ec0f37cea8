// Computes ONNX models with the operators of gradus. Definitions: opset 17 of
// https://github.com/onnx/onnx/blob/main/docs/Operators.md.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/onnx/model_file.h>

namespace gradus::test {
namespace {

/// The inputs and attributes of a node, and the check that all of them are used.
class Arguments {
 public:
  Arguments(const ModelFile::Node& node, const std::map<std::string, Tensor>& values) : node_(node) {
    for (const std::string& name : node.inputs) {
      require(name.empty() || values.contains(name), "the input " + name + " has no value");
      inputs_.push_back(name.empty() ? Tensor() : values.at(name));
    }
    require(node.inputs.empty() || !node.inputs.back().empty(), "the last input is omitted but named");
  }

  void require(bool condition, const std::string& what) const {
    GRADUS_CHECK(condition, ValueError, node_.name, " (", node_.op, ", ", node_.doc, "): ", what);
  }
  const std::string& op() const { return node_.op; }
  size_t outputs() const { return node_.outputs.size(); }
  size_t count() const { return inputs_.size(); }

  bool has(size_t input) const { return input < inputs_.size() && inputs_[input].defined(); }
  const Tensor& operator[](size_t input) {
    require(has(input), "input " + std::to_string(input) + " is missing");
    used_ = std::max(used_, input + 1);
    return inputs_[input];
  }
  Tensor optional(size_t input) { return has(input) ? (*this)[input] : Tensor(); }
  /// An input of int64 with one dimension.
  std::vector<int64_t> integers(size_t input) {
    const Tensor x = (*this)[input];
    require(x.dtype() == kLong && x.dim() == 1, "input " + std::to_string(input) + " is no list of int64");
    return {x.array().data<int64_t>(), x.array().data<int64_t>() + x.numel()};
  }

  template <class T>
  T attribute(const std::string& name, std::optional<T> absent = {}) {
    attributes_.insert(name);
    const auto found = node_.attributes.find(name);
    require(found != node_.attributes.end() || absent.has_value(), "the attribute " + name + " is missing");
    if (found == node_.attributes.end()) return *absent;
    require(std::holds_alternative<T>(found->second), "the attribute " + name + " has a wrong type");
    return std::get<T>(found->second);
  }
  bool flag(const std::string& name, bool absent = false) {
    const auto value = attribute<int64_t>(name, absent);
    require(value == 0 || value == 1, "the attribute " + name + " is neither 0 nor 1");
    return value == 1;
  }
  std::vector<int64_t> list(const std::string& name) { return attribute<std::vector<int64_t>>(name); }
  /// An attribute "axis", from 0 to the number of dimensions.
  int axis(const Tensor& x, std::optional<int64_t> absent = {}) {
    return valid_axis(attribute<int64_t>("axis", absent), x.dim());
  }
  int valid_axis(int64_t axis, int64_t dimensions) const {
    require(axis >= -dimensions && axis < dimensions, "no dimension has the number " + std::to_string(axis));
    return static_cast<int>(axis < 0 ? axis + dimensions : axis);
  }
  Shape valid_axes(const std::vector<int64_t>& axes, int64_t dimensions) const {
    Shape valid;
    for (int64_t axis : axes) valid.push_back(valid_axis(axis, dimensions));
    return valid;
  }

  void check_all_used() const {
    require(used_ == inputs_.size(), std::to_string(inputs_.size()) + " inputs, of which " + std::to_string(used_) +
                                         " are defined for the operator");
    for (const auto& [name, value] : node_.attributes)
      require(attributes_.contains(name), "the operator has no attribute " + name);
  }

 private:
  const ModelFile::Node& node_;
  TensorList inputs_;
  size_t used_ = 0;
  std::set<std::string> attributes_;
};

bool is_in(const std::vector<DType>& types, const Tensor& x) { return std::ranges::count(types, x.dtype()) > 0; }
const std::vector<DType> kNumbers = {kFloat, kDouble, kHalf, kBFloat16, kLong, kInt, kByte};
const std::vector<DType> kReals = {kFloat, kDouble, kHalf, kBFloat16};

Tensor softplus_of(const Tensor& x) { return x.relu() + (-x.abs()).exp().log1p(); }

// ---- Element-wise ----

using Unary = Tensor (*)(const Tensor&);
const std::map<std::string, Unary> kUnary = {
    {"Abs", [](const Tensor& x) { return x.abs(); }},
    {"Atan", [](const Tensor& x) { return x.atan(); }},
    {"Ceil", [](const Tensor& x) { return x.ceil(); }},
    {"Cos", [](const Tensor& x) { return x.cos(); }},
    {"Erf", [](const Tensor& x) { return x.erf(); }},
    {"Exp", [](const Tensor& x) { return x.exp(); }},
    {"Floor", [](const Tensor& x) { return x.floor(); }},
    {"HardSwish", [](const Tensor& x) { return x * (x / 6 + 0.5).clamp(0, 1); }},
    {"Log", [](const Tensor& x) { return x.log(); }},
    {"Neg", [](const Tensor& x) { return -x; }},
    {"Reciprocal", [](const Tensor& x) { return x.reciprocal(); }},
    {"Relu", [](const Tensor& x) { return x.relu(); }},
    {"Round", [](const Tensor& x) { return x.round(); }},
    {"Sigmoid", [](const Tensor& x) { return x.sigmoid(); }},
    {"Sign", [](const Tensor& x) { return x.sign(); }},
    {"Sin", [](const Tensor& x) { return x.sin(); }},
    {"Softplus", &softplus_of},
    {"Sqrt", [](const Tensor& x) { return x.sqrt(); }},
    {"Tanh", [](const Tensor& x) { return x.tanh(); }},
};
const std::set<std::string> kUnaryOfIntegers = {"Abs", "Neg", "Relu", "Sign"};

Tensor unary_node(Arguments& node) {
  const Tensor x = node[0];
  node.require(is_in(kUnaryOfIntegers.contains(node.op()) ? kNumbers : kReals, x), "undefined for the element type");
  return kUnary.at(node.op())(x);
}

using Binary = Tensor (*)(const Tensor&, const Tensor&);
const std::map<std::string, Binary> kBinary = {
    {"Add", [](const Tensor& a, const Tensor& b) { return a + b; }},
    {"Sub", [](const Tensor& a, const Tensor& b) { return a - b; }},
    {"Mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
    {"Div", [](const Tensor& a, const Tensor& b) { return a.is_floating_point() ? a / b : div(a, b, "trunc"); }},
    {"Pow", [](const Tensor& a, const Tensor& b) { return a.pow(b); }},
    {"Max", [](const Tensor& a, const Tensor& b) { return a.maximum(b); }},
    {"Min", [](const Tensor& a, const Tensor& b) { return a.minimum(b); }},
    {"Less", [](const Tensor& a, const Tensor& b) { return a < b; }},
    {"LessOrEqual", [](const Tensor& a, const Tensor& b) { return a <= b; }},
    {"Greater", [](const Tensor& a, const Tensor& b) { return a > b; }},
    {"GreaterOrEqual", [](const Tensor& a, const Tensor& b) { return a >= b; }},
    {"Equal", [](const Tensor& a, const Tensor& b) { return a == b; }},
    {"And", [](const Tensor& a, const Tensor& b) { return a.logical_and(b); }},
    {"Or", [](const Tensor& a, const Tensor& b) { return a.logical_or(b); }},
    {"Xor", [](const Tensor& a, const Tensor& b) { return a.logical_xor(b); }},
};

Tensor binary_node(Arguments& node) {
  const Tensor a = node[0], b = node[1];
  node.require(a.dtype() == b.dtype(), "two element types");
  const bool is_logical = node.op() == "And" || node.op() == "Or" || node.op() == "Xor";
  node.require(is_logical ? a.dtype() == kBool : node.op() == "Equal" || is_in(kNumbers, a),
               "undefined for the element type");
  return kBinary.at(node.op())(a, b);
}

Tensor mod(Arguments& node) {
  const Tensor a = node[0], b = node[1];
  node.require(a.dtype() == b.dtype() && is_in(kNumbers, a), "wrong element types");
  if (node.flag("fmod")) return a.fmod(b);
  node.require(!a.is_floating_point(), "floating-point numbers need the attribute fmod");
  return a.remainder(b);
}

Tensor clip(Arguments& node) {
  Tensor x = node[0];
  node.require(is_in(kNumbers, x), "undefined for booleans");
  for (size_t bound : {1, 2}) {
    if (node.has(bound)) {
      const Tensor given = node[bound];
      node.require(given.dtype() == x.dtype() && given.dim() == 0, "a bound is no scalar of the input's type");
      x = bound == 1 ? x.maximum(given) : x.minimum(given);
    } else if (x.is_floating_point()) {  // the bound is then the lowest or largest finite number
      const double largest = x.dtype() == kHalf ? 65504 : x.dtype() == kDouble ? DBL_MAX : FLT_MAX;
      x = bound == 1 ? x.clamp_min(-largest) : x.clamp_max(largest);
    }
  }
  return x;
}

Tensor leaky_relu_node(Arguments& node) {
  const Tensor x = node[0];
  return where(x < 0, x * node.attribute<float>("alpha", 0.01f), x);
}
Tensor elu_node(Arguments& node) {
  const Tensor x = node[0];
  return where(x < 0, x.expm1() * node.attribute<float>("alpha", 1.0f), x);
}
Tensor celu_node(Arguments& node) {
  const Tensor x = node[0];
  node.require(x.dtype() == kFloat, "defined for float32 only");
  const float alpha = node.attribute<float>("alpha", 1.0f);
  return x.relu() + ((x / alpha).expm1() * alpha).minimum(zeros({}));
}

/// IsNaN and IsInf, which onnxruntime has for float32 and float64.
Tensor is_special(Arguments& node) {
  const Tensor x = node[0];
  node.require(x.dtype() == kFloat || x.dtype() == kDouble, "onnxruntime has it for float32 and float64");
  return node.op() == "IsNaN" ? x.isnan() : x.isinf();
}
Tensor logical_not_node(Arguments& node) {
  node.require(node[0].dtype() == kBool, "undefined for numbers");
  return node[0].logical_not();
}
Tensor where_node(Arguments& node) {
  const Tensor condition = node[0], a = node[1], b = node[2];
  node.require(condition.dtype() == kBool && a.dtype() == b.dtype(), "wrong element types");
  return where(condition, a, b);
}
Tensor cast_node(Arguments& node) {
  static const std::map<int64_t, DType> types = {{1, kFloat}, {2, kByte},  {6, kInt},     {7, kLong},
                                                 {9, kBool},  {10, kHalf}, {11, kDouble}, {16, kBFloat16}};
  const DType to = types.at(node.attribute<int64_t>("to"));
  node.require(node[0].dtype() != to, "casts to the type that the input already has");
  return node[0].to(to);
}

// ---- Shapes ----

Tensor identity(Arguments& node) { return node[0]; }

Tensor shape_node(Arguments& node) {
  const Tensor x = node[0];
  const int64_t start = node.attribute<int64_t>("start", 0), end = node.attribute<int64_t>("end", x.dim());
  node.require(0 <= start && start < end && end <= x.dim(), "no dimensions");
  return tensor(std::vector<int64_t>(x.sizes().begin() + start, x.sizes().begin() + end), TensorOptions(kLong));
}

Tensor reshape_node(Arguments& node) {
  const Tensor x = node[0];
  std::vector<int64_t> sizes = node.integers(1);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0) sizes[i] = x.size(static_cast<int64_t>(i));  // since allowzero is 0
  const Tensor y = x.reshape(sizes);
  node.require(!(y.sizes() == x.sizes()), "the input already has this shape");
  return y;
}

Tensor transpose_node(Arguments& node) {
  const Tensor x = node[0];
  const std::vector<int64_t> order = node.list("perm");
  std::vector<int64_t> moved;  // axes with more than one element
  for (int64_t axis : order)
    if (x.size(axis) > 1) moved.push_back(axis);
  node.require(!std::ranges::is_sorted(moved), "moves no elements");
  return x.permute(order);
}

Tensor slice_node(Arguments& node) {
  Tensor x = node[0];
  const auto starts = node.integers(1), ends = node.integers(2), axes = node.integers(3), steps = node.integers(4);
  node.require(
      !axes.empty() && starts.size() == axes.size() && ends.size() == axes.size() && steps.size() == axes.size(),
      "lists of different lengths");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = node.valid_axis(axes[i], x.dim());
    const int64_t size = x.size(axis), step = steps[i];
    node.require(step != 0, "a step is 0");
    const auto place = [&](int64_t k) {
      return std::clamp<int64_t>(k < 0 && k > std::numeric_limits<int64_t>::min() / 2 ? k + size : k, step < 0 ? -1 : 0,
                                 step < 0 ? size - 1 : size);
    };
    const int64_t start = place(starts[i]), end = place(ends[i]);
    std::vector<int64_t> places;
    for (int64_t k = start; step > 0 ? k < end : k > end; k += step) places.push_back(k);
    node.require(step < 0 || static_cast<int64_t>(places.size()) < size, "takes all elements of an axis");
    x = x.index_select(axis, tensor(places, TensorOptions(kLong)));
  }
  return x;
}

Tensor gather_node(Arguments& node) {
  const Tensor x = node[0], index = node[1];
  node.require(is_in({kLong, kInt}, index), "an index has a wrong type");
  const int axis = node.axis(x, 0);
  Shape shape;
  for (int i = 0; i < axis; ++i) shape.push_back(x.size(i));
  for (int64_t size : index.sizes()) shape.push_back(size);
  for (int i = axis + 1; i < x.dim(); ++i) shape.push_back(x.size(i));
  return x.index_select(axis, index.reshape({-1})).reshape(shape);
}
Tensor gather_elements(Arguments& node) {
  const Tensor x = node[0];
  return x.gather(node.axis(x, 0), node[1]);
}
Tensor scatter_elements(Arguments& node) {
  const Tensor x = node[0], index = node[1], source = node[2];
  node.require(x.dtype() == source.dtype(), "two element types");
  const int axis = node.axis(x, 0);
  const auto reduction = node.attribute<std::string>("reduction", "none");
  node.require(reduction == "none" || reduction == "add", "unknown reduction " + reduction);
  return reduction == "add" ? x.scatter_add(axis, index, source) : x.scatter(axis, index, source);
}

Tensor concat(Arguments& node) {
  TensorList parts;
  for (size_t i = 0; i < node.count(); ++i) {
    parts.push_back(node[i]);
    node.require(parts[i].dtype() == parts[0].dtype(), "several element types");
  }
  return cat(parts, node.axis(parts.at(0)));
}
TensorList split_node(Arguments& node) {
  const TensorList parts = node[0].split(node.integers(1), node.axis(node[0], 0));
  node.require(parts.size() == node.outputs(), "not as many parts as outputs");
  return parts;
}

Tensor squeeze_node(Arguments& node) {
  const Tensor x = node[0];
  Shape shape = x.sizes();
  Shape axes = node.valid_axes(node.integers(1), x.dim());
  std::sort(axes.begin(), axes.end(), std::greater());
  for (int64_t axis : axes) {
    node.require(shape[axis] == 1, "a dimension of another size than 1");
    shape.erase(static_cast<int>(axis));
  }
  return x.reshape(shape);
}
Tensor unsqueeze_node(Arguments& node) {
  const Tensor x = node[0];
  const std::vector<int64_t> added = node.integers(1);
  Shape axes = node.valid_axes(added, x.dim() + static_cast<int64_t>(added.size())), shape = x.sizes();
  std::sort(axes.begin(), axes.end());
  for (int64_t axis : axes) shape.insert(static_cast<int>(axis), 1);
  return x.reshape(shape);
}

Tensor expand_node(Arguments& node) {
  const Tensor x = node[0], shape = broadcast_tensors({x, zeros(node.integers(1), TensorOptions(x.dtype()))})[0];
  node.require(!(x.sizes() == shape.sizes()), "the input already has this shape");
  return shape;
}

/// x with elements before and after each axis, which are `value`.
Tensor padded(const Tensor& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
              const Tensor& value) {
  Shape shape = x.sizes();
  for (int i = 0; i < shape.size(); ++i) shape[i] += before[static_cast<size_t>(i)] + after[static_cast<size_t>(i)];
  const Tensor y = value.expand(shape).clone(), inner = y.contiguous();
  Tensor part = inner;
  for (int i = 0; i < shape.size(); ++i) part = part.narrow(i, before[static_cast<size_t>(i)], x.size(i));
  part.copy_(x);
  return inner;
}
Tensor pad_node(Arguments& node) {
  const Tensor x = node[0];
  const std::vector<int64_t> pads = node.integers(1);
  const auto dimensions = static_cast<std::ptrdiff_t>(x.dim());
  node.require(static_cast<std::ptrdiff_t>(pads.size()) == 2 * dimensions, "not two numbers for each dimension");
  node.require(std::ranges::min(pads) >= 0 && std::ranges::max(pads) > 0, "does not pad");
  const Tensor value = node.has(2) ? node[2] : zeros({}, TensorOptions(x.dtype()));
  node.require(value.dtype() == x.dtype() && value.dim() == 0, "the padding is no scalar of the input's type");
  return padded(x, {pads.begin(), pads.begin() + dimensions}, {pads.begin() + dimensions, pads.end()}, value);
}

// ---- Reductions and sorting ----

Tensor reduce_node(Arguments& node) {
  Tensor x = node[0];
  node.require(is_in(node.op() == "ReduceMean" ? kReals : kNumbers, x), "undefined for the element type");
  const bool keep = node.flag("keepdims", true);
  node.require(keep, "the exporter always keeps dimensions");
  const std::vector<int64_t> list = node.op() == "ReduceSum" ? node.integers(1) : node.list("axes");
  const Shape axes = node.valid_axes(list, x.dim());
  if (node.op() == "ReduceSum") return x.sum(axes, keep, x.dtype());
  if (node.op() == "ReduceMean") return x.mean(axes, keep);
  if (node.op() == "ReduceMax") return x.amax(axes, keep);
  if (node.op() == "ReduceMin") return x.amin(axes, keep);
  for (int64_t axis : axes) x = x.prod(axis, keep, x.dtype());
  return x;
}
Tensor arg_reduce_node(Arguments& node) {
  const Tensor x = node[0];
  node.require(is_in(kNumbers, x), "undefined for booleans");
  const int axis = node.axis(x, 0);
  const bool keep = node.flag("keepdims", true);
  return node.op() == "ArgMax" ? x.argmax(axis, keep) : x.argmin(axis, keep);
}
TensorList topk_node(Arguments& node) {
  const Tensor x = node[0];
  node.require(is_in({kFloat, kDouble, kLong, kInt}, x), "onnxruntime has it for float32, float64, int32 and int64");
  const auto [values, indices] =
      topk(x, node.integers(1).at(0), node.axis(x, -1), node.flag("largest", true), node.flag("sorted", true));
  return {values, indices};
}
Tensor cumsum_node(Arguments& node) {
  const Tensor x = node[0];
  node.require(is_in(kNumbers, x) && x.dtype() != kByte && node[1].numel() == 1, "wrong inputs");
  const int axis = node.valid_axis(node[1].item<int64_t>(), x.dim());
  return node.flag("reverse") ? x.flip(axis).cumsum(axis).flip(axis) : x.cumsum(axis);
}

// ---- Products, convolutions and pooling ----

Tensor matmul_node(Arguments& node) {
  node.require(node[0].dtype() == node[1].dtype(), "two element types");
  return node[0].matmul(node[1]);
}
Tensor gemm(Arguments& node) {
  const bool transposed = node.flag("transB");
  const Tensor a = node[0], b = transposed ? node[1].t() : node[1];
  node.require(a.dim() == 2 && b.dim() == 2 && a.dtype() == b.dtype(), "no matrices of one type");
  const Tensor y = a.matmul(b);
  return node.has(2) ? y + node[2].expand_as(y) : y;
}

/// The attributes of a window that moves over an image.
struct Window {
  Window(Arguments& node, const Tensor& x)
      : kernel(node.list("kernel_shape")), strides(node.list("strides")), pads(node.list("pads")),
        dilations(node.list("dilations")) {
    node.require(x.dim() == 4 && kernel.size() == 2 && strides.size() == 2 && pads.size() == 4 && dilations.size() == 2,
                 "no image or no window of two dimensions");
    node.require(std::ranges::min(pads) >= 0, "pads are negative");
  }
  std::vector<int64_t> before() const { return {0, 0, pads[0], pads[1]}; }
  std::vector<int64_t> after() const { return {0, 0, pads[2], pads[3]}; }
  std::vector<int64_t> kernel, strides, pads, dilations;
};

Tensor conv(Arguments& node) {
  const Tensor x = node[0], w = node[1];
  const Window window(node, x);
  node.require(w.sizes().slice(2) == Shape(window.kernel), "the weight has another size than the kernel");
  const Tensor padded_x = padded(x, window.before(), window.after(), zeros({}, TensorOptions(x.dtype())));
  return conv2d(padded_x, w, node.optional(2), Pair(window.strides), 0, Pair(window.dilations),
                node.attribute<int64_t>("group", 1));
}
Tensor conv_transpose(Arguments& node) {
  const Tensor x = node[0], w = node[1];
  const Window window(node, x);
  node.require(w.sizes().slice(2) == Shape(window.kernel), "the weight has another size than the kernel");
  const Tensor y = conv_transpose2d(x, w, node.optional(2), Pair(window.strides), 0, 0,
                                    node.attribute<int64_t>("group", 1), Pair(window.dilations));
  return y.slice(2, window.pads[0], y.size(2) - window.pads[2]).slice(3, window.pads[1], y.size(3) - window.pads[3]);
}

TensorList max_pool(Arguments& node) {
  const Tensor x = node[0];
  const Window window(node, x);
  const bool ceil_mode = node.flag("ceil_mode");
  std::vector<int64_t> after = window.after(), counts;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = x.size(static_cast<int64_t>(2 + i)), stride = window.strides[i];
    const int64_t reach = size + window.pads[i] + window.pads[2 + i] - window.dilations[i] * (window.kernel[i] - 1) - 1;
    int64_t count = (reach + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    if ((count - 1) * stride >= size + window.pads[i]) --count;  // a window must not begin in the padding at the end
    counts.push_back(count);
    after[2 + i] += stride;
  }
  const double lowest = -std::numeric_limits<double>::infinity();
  const Tensor numbers = arange(x.numel(), TensorOptions(kLong)).view(x.sizes());
  const Tensor all = padded(x, window.before(), after, full({}, lowest, TensorOptions(x.dtype())));
  const Tensor places = padded(numbers, window.before(), after, full({}, -1, TensorOptions(kLong)));
  Tensor best, best_places;
  for (int64_t i = 0; i < window.kernel[0]; ++i)
    for (int64_t j = 0; j < window.kernel[1]; ++j) {
      const auto part = [&](const Tensor& image) {
        const int64_t h = i * window.dilations[0], w = j * window.dilations[1];
        return image.slice(2, h, h + (counts[0] - 1) * window.strides[0] + 1, window.strides[0])
            .slice(3, w, w + (counts[1] - 1) * window.strides[1] + 1, window.strides[1]);
      };
      const Tensor y = part(all), k = part(places);
      const Tensor is_better = best.defined() ? ((y > best).logical_or(y.isnan())).logical_or(best_places < 0) : y == y;
      best_places = best.defined() ? where(is_better, k, best_places) : k;
      best = best.defined() ? where(is_better, y, best) : y;
    }
  return {best, best_places};
}

// ---- Normalisation, losses and recurrent layers ----

Tensor batch_normalization(Arguments& node) {
  const Tensor x = node[0];
  Shape shape = Shape::filled(static_cast<int>(x.dim()), 1);
  shape[1] = x.size(1);
  const auto parameter = [&](size_t input) {
    node.require(node[input].dim() == 1, "a parameter is no vector");
    return node[input].view(shape);
  };
  const Tensor scale = parameter(1), bias = parameter(2), mean = parameter(3), variance = parameter(4);
  return (x - mean) / (variance + node.attribute<float>("epsilon", 1e-5f)).sqrt() * scale + bias;
}
Tensor layer_normalization(Arguments& node) {
  const Tensor x = node[0];
  Shape axes;
  for (int axis = node.axis(x, -1); axis < x.dim(); ++axis) axes.push_back(axis);
  const Tensor deviation = x - x.mean(axes, true);
  const Tensor variance = deviation.square().mean(axes, true);
  const Tensor y = deviation / (variance + node.attribute<float>("epsilon", 1e-5f)).sqrt() * node[1];
  node.require(node[1].dim() == axes.size(), "the scale has another number of dimensions");
  return node.has(2) ? y + node[2] : y;
}
Tensor softmax_node(Arguments& node) {
  const Tensor x = node[0];
  node.require(is_in(kReals, x), "undefined for the element type");
  const int axis = node.axis(x, -1);
  return node.op() == "Softmax" ? x.softmax(axis) : x.log_softmax(axis);
}

/// NegativeLogLikelihoodLoss of log-probabilities.
Tensor loss_of(Arguments& node, const Tensor& log_probabilities) {
  const Tensor target = node[1].to(kLong);
  const Tensor ignored = target == node.attribute<int64_t>("ignore_index", std::numeric_limits<int64_t>::min());
  const Tensor picked = log_probabilities.gather(1, target.masked_fill(ignored, 0).unsqueeze(1)).squeeze(1);
  const Tensor losses = (-picked).masked_fill(ignored, 0);
  const auto reduction = node.attribute<std::string>("reduction", "mean");
  node.require(reduction == "none" || reduction == "sum" || reduction == "mean", "unknown reduction " + reduction);
  if (reduction == "none") return losses;
  return reduction == "sum" ? losses.sum() : losses.sum() / ignored.logical_not().sum().to(losses.dtype());
}
Tensor negative_log_likelihood(Arguments& node) { return loss_of(node, node[0]); }
TensorList softmax_cross_entropy(Arguments& node) {
  const Tensor log_probabilities = node[0].log_softmax(1);
  return {loss_of(node, log_probabilities), log_probabilities};
}

TensorList lstm_node(Arguments& node) {
  const Tensor x = node[0], w = node[1].squeeze(0), r = node[2].squeeze(0);
  const auto hidden = node.attribute<int64_t>("hidden_size");
  const auto direction = node.attribute<std::string>("direction", "forward");
  node.require(direction == "forward" || direction == "reverse", "unknown direction " + direction);
  node.require(!node.has(4), "sequences of different lengths");
  node.require(r.sizes() == Shape({4 * hidden, hidden}) && w.sizes() == Shape({4 * hidden, x.size(2)}), "wrong sizes");
  Tensor h = node[5].squeeze(0), c = node[6].squeeze(0);
  TensorList outputs(static_cast<size_t>(x.size(0)));
  for (int64_t i = 0; i < x.size(0); ++i) {
    const int64_t t = direction == "forward" ? i : x.size(0) - 1 - i;
    Tensor sums = x.select(0, t).matmul(w.t()) + h.matmul(r.t());
    if (node.has(3)) sums = sums + node[3].view({2, 4 * hidden}).sum(0);
    const TensorList gates = sums.chunk(4, 1);  // input, output, forget, cell
    c = gates[2].sigmoid() * c + gates[0].sigmoid() * gates[3].tanh();
    h = gates[1].sigmoid() * c.tanh();
    outputs[static_cast<size_t>(t)] = h;
  }
  return {stack(outputs).unsqueeze(1), h.unsqueeze(0), c.unsqueeze(0)};
}

using Function = std::function<TensorList(Arguments&)>;
Function one(Tensor (*f)(Arguments&)) {
  return [f](Arguments& node) { return TensorList{f(node)}; };
}

std::map<std::string, Function> make_functions() {
  std::map<std::string, Function> functions = {
      {"ArgMax", one(arg_reduce_node)},
      {"ArgMin", one(arg_reduce_node)},
      {"BatchNormalization", one(batch_normalization)},
      {"Cast", one(cast_node)},
      {"Celu", one(celu_node)},
      {"Clip", one(clip)},
      {"Concat", one(concat)},
      {"Conv", one(conv)},
      {"ConvTranspose", one(conv_transpose)},
      {"CumSum", one(cumsum_node)},
      {"Elu", one(elu_node)},
      {"Expand", one(expand_node)},
      {"Gather", one(gather_node)},
      {"GatherElements", one(gather_elements)},
      {"Gemm", one(gemm)},
      {"Identity", one(identity)},
      {"IsInf", one(is_special)},
      {"IsNaN", one(is_special)},
      {"LSTM", lstm_node},
      {"LayerNormalization", one(layer_normalization)},
      {"LeakyRelu", one(leaky_relu_node)},
      {"LogSoftmax", one(softmax_node)},
      {"MatMul", one(matmul_node)},
      {"MaxPool", max_pool},
      {"Mod", one(mod)},
      {"NegativeLogLikelihoodLoss", one(negative_log_likelihood)},
      {"Not", one(logical_not_node)},
      {"Pad", one(pad_node)},
      {"ReduceMax", one(reduce_node)},
      {"ReduceMean", one(reduce_node)},
      {"ReduceMin", one(reduce_node)},
      {"ReduceProd", one(reduce_node)},
      {"ReduceSum", one(reduce_node)},
      {"Reshape", one(reshape_node)},
      {"ScatterElements", one(scatter_elements)},
      {"Shape", one(shape_node)},
      {"Slice", one(slice_node)},
      {"Softmax", one(softmax_node)},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy},
      {"Split", split_node},
      {"Squeeze", one(squeeze_node)},
      {"TopK", topk_node},
      {"Transpose", one(transpose_node)},
      {"Unsqueeze", one(unsqueeze_node)},
      {"Where", one(where_node)},
  };
  for (const auto& [name, f] : kUnary) functions[name] = one(unary_node);
  for (const auto& [name, f] : kBinary) functions[name] = one(binary_node);
  return functions;
}

/// Checks a tensor against the port's type and sizes. `batch` is the size "batch", or 0 if it is not known yet.
void check_port(const ModelFile::Port& port, const Tensor& x, int64_t& batch) {
  GRADUS_CHECK(x.dtype() == port.dtype && x.dim() == static_cast<int64_t>(port.sizes.size()), ValueError,
               "type or dimensions differ from those of ", to_string(port));
  for (size_t i = 0; i < port.sizes.size(); ++i) {
    const std::string& text = port.sizes[i];
    int64_t size = std::isdigit(static_cast<unsigned char>(text.at(0))) ? std::stoll(text) : 1;
    if (text.ends_with("batch")) {
      if (batch == 0) batch = x.size(static_cast<int64_t>(i)) / size;
      size *= batch;
    }
    GRADUS_CHECK(x.size(static_cast<int64_t>(i)) == size, ValueError, "shape ", x.sizes(), " instead of ",
                 to_string(port));
  }
}

/// Checks that a later node or the model uses each node and weight, and that names are unique.
void check_names(const ModelFile& model) {
  std::set<std::string> wanted, made, names;
  for (const ModelFile::Port& port : model.outputs) wanted.insert(port.name);
  for (auto node = model.nodes.rbegin(); node != model.nodes.rend(); ++node) {
    bool is_used = false;
    for (const std::string& output : node->outputs) is_used |= wanted.contains(output);
    GRADUS_CHECK(is_used, ValueError, "nothing uses the results of ", node->name, " (", node->op, ")");
    wanted.insert(node->inputs.begin(), node->inputs.end());
  }
  for (const auto& [name, weight] : model.weights)
    GRADUS_CHECK(wanted.contains(name) && made.insert(name).second, ValueError, "nothing uses the weight ", name);
  for (const ModelFile::Port& port : model.inputs)
    GRADUS_CHECK(made.insert(port.name).second, ValueError, "two values have the name ", port.name);
  for (const ModelFile::Node& node : model.nodes) {
    GRADUS_CHECK(!node.name.empty() && names.insert(node.name).second, ValueError, "two nodes are ", node.name);
    GRADUS_CHECK(node.name.ends_with(node.outputs.at(0)), ValueError, node.name, " computes ", node.outputs.at(0));
    for (const std::string& output : node.outputs)
      GRADUS_CHECK(made.insert(output).second, ValueError, "two values have the name ", output);
  }
}

}  // namespace

TensorList evaluate(const ModelFile& model, const TensorList& inputs) {
  static const std::map<std::string, Function> functions = make_functions();
  const NoGradGuard no_grad;
  check_names(model);
  std::map<std::string, Tensor> values = model.weights;
  int64_t batch = 0;
  GRADUS_CHECK(inputs.size() == model.inputs.size(), ValueError, model.inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_port(model.inputs[i], inputs[i], batch);
    values[model.inputs[i].name] = inputs[i];
  }
  for (const ModelFile::Node& node : model.nodes) {
    Arguments arguments(node, values);
    const auto function = functions.find(node.op);
    arguments.require(function != functions.end(), "unknown operator");
    const TensorList results = function->second(arguments);
    arguments.check_all_used();
    arguments.require(node.outputs.size() <= results.size(), "too many outputs");
    for (size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = results[i];
  }
  TensorList outputs;
  for (const ModelFile::Port& port : model.outputs) {
    check_port(port, values.at(port.name), batch);
    outputs.push_back(values.at(port.name));
  }
  return outputs;
}

}  // namespace gradus::test
