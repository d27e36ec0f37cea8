#include <gradus/graph/signatures.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include <gradus/core/backend_ops.h>
#include <gradus/core/binary_ops.h>
#include <gradus/core/unary_ops.h>

namespace gradus::graph {
namespace {

constexpr int64_t kLargestOption = int64_t{1} << 31;  // products of two of them do not overflow

/// The arguments of a call, by name.
class Arguments final : public ArgumentVisitor {
 public:
  explicit Arguments(Call& call) { call.visit_arguments(*this); }
  void operand(const std::string& name, View& view) override { operands_[name] = view ? &view : nullptr; }
  void operand(const std::string& name, MutableView& view) override { operands_[name] = view ? &view : nullptr; }
  void value(const std::string& name, Value& value) override { values_[name] = value; }
  void length(const std::string& name, size_t& length) override { values_[name] = static_cast<int64_t>(length); }

  /// Null where it is absent.
  const StridedLayout* find(const std::string& name) const {
    const auto at = operands_.find(name);
    return at == operands_.end() ? nullptr : at->second;
  }
  const Shape& shape(const std::string& name) const { return operands_.at(name)->shape; }
  bool has(const std::string& name) const { return values_.count(name) > 0; }
  template <class T = int64_t>
  const T& get(const std::string& name) const {
    return std::get<T>(values_.at(name));
  }
  std::string_view choice(const std::string& name) const { return get<Choice>(name).names[get<Choice>(name).number]; }

 private:
  std::map<std::string, const StridedLayout*> operands_;
  std::map<std::string, Value> values_;
};

/// Compares operands with a rule, "x t NCHW, w t KDRS, ?bias t K, y t NKPQ": name (? where it may be absent), type and
/// sizes. Equal letters are equal types or sizes; 4H is four times H, "..." some leading axes. Of whole shapes, * is
/// the one that all * are, - that with 1 at the axes that are reduced, ~ that with some sizes 1, and "any" is any.
class Matcher {
 public:
  explicit Matcher(const Arguments& arguments) : arguments_(arguments) {}

  void match(std::string_view rule, const std::string& prefix = "") {
    while (!rule.empty()) {
      const bool may_be_absent = rule.front() == '?';
      if (may_be_absent) rule.remove_prefix(1);
      const std::string name = prefix + std::string(take(rule, ' '));
      const std::string_view type = take(rule, ' '), sizes = take(rule, ',');
      if (!rule.empty()) rule.remove_prefix(1);
      const StridedLayout* const layout = arguments_.find(name);
      GRADUS_CHECK(layout || may_be_absent, ValueError, "'", name, "' is absent");
      if (!layout) continue;
      match_type(name, type, layout->dtype);
      match_shape(name, sizes, layout->shape);
    }
  }

 private:
  static std::string_view take(std::string_view& text, char end) {
    const std::string_view part = text.substr(0, text.find(end));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    return part;
  }
  void match_type(const std::string& name, std::string_view wanted, DType dtype) {
    bool fits = false;
    for (std::string_view rest = wanted; !rest.empty() && !fits;) {
      const std::string_view one = take(rest, '/');
      if (one.size() == 1) fits = types_.emplace(one, dtype).first->second == dtype;
      else fits = one == "any" || one == gradus::name(dtype);
    }
    GRADUS_CHECK(fits, DTypeError, "'", name, "' cannot be ", gradus::name(dtype), " beside the others");
  }
  void match_shape(const std::string& name, std::string_view wanted, const Shape& shape) {
    if (wanted == "any") return;
    bool fits = true;
    if (wanted == "*" || wanted == "-" || wanted == "~") {
      const Shape& whole = leading_.emplace("*", shape).first->second;
      fits = shape.size() == whole.size();
      for (int i = 0; fits && i < shape.size(); ++i)
        fits = wanted == "-" ? shape[i] == (is_reduced(i) ? 1 : whole[i])
                             : shape[i] == whole[i] || (wanted == "~" && shape[i] == 1);
    } else {
      int axis = 0;
      if (wanted.substr(0, 3) == "...") {
        wanted.remove_prefix(3);
        axis = shape.size() - static_cast<int>(std::count_if(wanted.begin(), wanted.end(), [](char c) {
                 return std::isalnum(static_cast<unsigned char>(c));
               }));
        fits = axis >= 0;
        const Shape leading(shape.begin(), static_cast<size_t>(std::max(axis, 0)));
        fits = fits && leading_.emplace("...", leading).first->second == leading;
      }
      for (; fits && !wanted.empty(); ++axis) {
        const bool is_number = std::isdigit(static_cast<unsigned char>(wanted.front()));
        int64_t size = is_number ? wanted.front() - '0' : 1;
        if (is_number) wanted.remove_prefix(1);
        if (!is_number || (!wanted.empty() && wanted.front() == 'H' && size == 4)) {
          size *= sizes_.emplace(wanted.front(), axis < shape.size() ? shape[axis] : 0).first->second;
          wanted.remove_prefix(1);
        }
        fits = axis < shape.size() && shape[axis] == size;
      }
      fits = fits && axis == shape.size();
    }
    GRADUS_CHECK(fits, ShapeError, "'", name, "' cannot have the shape ", shape, " beside the others");
  }
  bool is_reduced(int axis) const {
    if (arguments_.has("axes")) return (arguments_.get("axes") >> axis & 1) != 0;
    return arguments_.get("axis") == axis;
  }

  const Arguments& arguments_;
  std::map<std::string_view, DType> types_;
  std::map<char, int64_t> sizes_;
  std::map<std::string_view, Shape> leading_;
};

// ---- What options say ----

void check_axis(const Arguments& a, const std::string& of = "x") {
  GRADUS_CHECK(a.get("axis") >= 0 && a.get("axis") < a.shape(of).size(), ShapeError, "there is no axis ",
               a.get("axis"));
}
void check_axes(const Arguments& a) {
  GRADUS_CHECK(a.get("axes") >> a.shape("x").size() == 0, ShapeError, "there are no axes ", a.get("axes"));
}
void check_not_empty(const Arguments& a) { GRADUS_CHECK(numel_of(a.shape("x")) > 0, ShapeError, "'x' is empty"); }

/// Sizes of y as the windows over x give them.
void check_windows(const Arguments& a, const std::string& in, const std::string& out, const int64_t (&window)[2]) {
  for (const char* name : {"geometry.stride", "geometry.padding", "geometry.dilation"})
    for (int64_t number : a.get<std::vector<int64_t>>(name))
      GRADUS_CHECK(number >= (name[9] == 'p' ? 0 : 1) && number < kLargestOption, ValueError, name, " cannot be ",
                   number);
  for (size_t i = 0; i < 2; ++i) {
    const auto option = [&](const char* name) { return a.get<std::vector<int64_t>>(name)[i]; };
    const int axis = static_cast<int>(i) + 2;
    GRADUS_CHECK(window[i] >= 1 && window[i] < kLargestOption, ValueError, "a window cannot have the size ", window[i]);
    const int64_t space =
        a.shape(in)[axis] + 2 * option("geometry.padding") - option("geometry.dilation") * (window[i] - 1) - 1;
    GRADUS_CHECK(space >= 0 && a.shape(out)[axis] == space / option("geometry.stride") + 1, ShapeError, "'", out,
                 "' cannot have the shape ", a.shape(out), " beside '", in, "' of shape ", a.shape(in));
  }
}
void check_convolution(const Arguments& a, const char* x, const char* w, const char* y) {
  const int64_t groups = a.get("geometry.groups");
  GRADUS_CHECK(groups >= 1 && a.shape(x)[1] % groups == 0 && a.shape(w)[0] % groups == 0 &&
                   a.shape(w)[1] == a.shape(x)[1] / groups,
               ShapeError, groups, " groups do not fit '", x, "' of shape ", a.shape(x), " and '", w, "' of shape ",
               a.shape(w));
  check_windows(a, x, y, {a.shape(w)[2], a.shape(w)[3]});
}
void check_pooling(const Arguments& a, const char* x, const char* y) {
  const auto& kernel = a.get<std::vector<int64_t>>("geometry.kernel");
  check_windows(a, x, y, {kernel[0], kernel[1]});
}
/// Predicates write booleans, others what they read.
template <class Op>
void check_result(const Arguments& a, const char* from, Op op) {
  const DType wanted = is_predicate(op) ? DType::boolean : a.find(from)->dtype;
  GRADUS_CHECK(a.find("y")->dtype == wanted, DTypeError, "'y' must be ", name(wanted));
}
void check_stencil(const Arguments& a, const std::string& name, int axis) {
  const auto& begin = a.get<std::vector<int64_t>>(name + ".begin");
  const auto& source = a.get<std::vector<int64_t>>(name + ".source");
  const int64_t size_in = a.get(name + ".size_in"), size_out = a.get(name + ".size_out");
  const bool fits = size_in == a.shape("x")[axis] && size_out == a.shape("y")[axis] &&
                    std::ssize(begin) == size_out + 1 && begin.front() == 0 && begin.back() == std::ssize(source) &&
                    std::is_sorted(begin.begin(), begin.end()) &&
                    a.get<std::vector<double>>(name + ".weight").size() == source.size() &&
                    std::all_of(source.begin(), source.end(), [&](int64_t k) { return k >= 0 && k < size_in; });
  GRADUS_CHECK(fits, ShapeError, "the stencil '", name, "' does not fit 'x' and 'y'");
}
/// One operand has at least the sizes of another, but for the axis.
void check_covers(const Arguments& a, const std::string& large, const std::string& small) {
  check_axis(a, small);
  bool fits = a.shape(large).size() == a.shape(small).size();
  for (int i = 0; fits && i < a.shape(small).size(); ++i)
    fits = i == a.get("axis") || a.shape(large)[i] >= a.shape(small)[i];
  GRADUS_CHECK(fits, ShapeError, "'", large, "' of shape ", a.shape(large), " must cover '", small, "' of shape ",
               a.shape(small));
}

void check_running(const Arguments& a, const char* mean) {
  if (!a.find("running.mean") && !a.find("running.variance")) return;
  const Shape& shape = a.shape(mean);
  bool fits = shape.size() >= 2 && numel_of(shape) == shape[0] * shape[1];
  for (const char* name : {"running.mean", "running.variance"}) {
    const StridedLayout* const one = a.find(name);
    fits = fits && one && one->shape == Shape{shape[1]} && is_floating(one->dtype);
  }
  GRADUS_CHECK(fits, ShapeError, "the running statistics do not fit '", mean, "' of shape ", shape);
}

void check_attention(const Arguments& a) {
  GRADUS_CHECK(a.find("kept") || a.get<double>("rule.dropout") == 0, ValueError, "'kept' is absent");
}
/// States that a rule uses are there.
void check_parameters(const Arguments& a) {
  const std::string_view rule = a.choice("rule");
  const auto is_set = [&](const char* option) { return a.has(option) && a.get<bool>(option); };
  const bool has_momentum = a.has("rule.momentum") && a.get<double>("rule.momentum") != 0;
  const bool of_moments = rule == "adam_step" || rule == "nadam_step" || rule == "radam_step";
  const bool uses[] = {rule != "sgd_step" || has_momentum, of_moments || is_set("rule.centered"),
                       is_set("rule.amsgrad") || (rule == "rmsprop_step" && has_momentum)};
  for (int64_t i = 0; i < a.get("parameters"); ++i) {
    const std::string prefix = "parameters." + std::to_string(i) + ".";
    Matcher(a).match("parameter t *, gradient t/float16/bfloat16 *, ?half float16/bfloat16 *", prefix);
    for (int state = 0; state < 3; ++state) {
      const std::string name = "states." + std::to_string(state);
      Matcher(a).match("parameter t *, " + std::string(uses[state] ? "" : "?") + name + " t *", prefix);
    }
  }
}

struct Signature {
  const char* operation;
  const char* operands;
  void (*check)(const Arguments& arguments) = nullptr;
};
constexpr Signature kSignatures[] = {
    {"fill", "y any *"},
    {"copy", "x any *, y any *"},
    {"arange", "y any N"},
    {"unary", "x t *, y any *",
     [](const Arguments& a) { check_result(a, "x", static_cast<UnaryOp>(a.get<Choice>("op").number)); }},
    {"unary_backward", "dy t *, saved t *, dx t *"},
    {"binary", "a t *, b t *, y any *",
     [](const Arguments& a) { check_result(a, "a", static_cast<BinaryOp>(a.get<Choice>("op").number)); }},
    {"binary_scalar", "a t *, y any *",
     [](const Arguments& a) { check_result(a, "a", static_cast<BinaryOp>(a.get<Choice>("op").number)); }},
    {"where", "condition bool *, a t *, b t *, y t *"},
    {"reduce", "x any *, y any -",
     [](const Arguments& a) {
       check_axes(a);
       const std::string_view op = a.choice("op");
       if (op == "max" || op == "min") check_not_empty(a);
     }},
    {"arg_reduce", "x t *, ?values t -, indices int64 -",
     [](const Arguments& a) { check_axis(a), check_not_empty(a); }},
    {"matmul", "a t ...MK, b t ...KN, y t ...MN"},
    {"conv2d", "x t NCHW, w t KDRS, y t NKPQ", [](const Arguments& a) { check_convolution(a, "x", "w", "y"); }},
    {"conv2d_backward_data", "dy t NKPQ, w t KDRS, dx t NCHW",
     [](const Arguments& a) { check_convolution(a, "dx", "w", "dy"); }},
    {"conv2d_backward_weight", "dy t NKPQ, x t NCHW, dw t KDRS",
     [](const Arguments& a) { check_convolution(a, "x", "dw", "dy"); }},
    {"max_pool2d", "x t NCHW, y t NCPQ, indices int32 NCPQ", [](const Arguments& a) { check_pooling(a, "x", "y"); }},
    {"max_pool2d_backward", "dy t NCPQ, indices int32 NCPQ, dx t NCHW",
     [](const Arguments& a) { check_pooling(a, "dx", "dy"); }},
    {"pick", "x t NC, target int64 N, y t N"},
    {"pick_backward", "dy t N, target int64 N, dx t NC"},
    {"scan", "x any *, y any *", [](const Arguments& a) { check_axis(a); }},
    {"sort", "x t *, ?values t *, indices int64 *", [](const Arguments& a) { check_axis(a); }},
    {"gather", "x t any, index int64 *, y t *", [](const Arguments& a) { check_covers(a, "x", "index"); }},
    {"scatter", "x t *, index int64 *, y t any", [](const Arguments& a) { check_covers(a, "y", "index"); }},
    {"uniform", "y any *"},
    {"normal", "y any *"},
    {"bernoulli", "y any *"},
    {"randint", "y any *",
     [](const Arguments& a) {
       GRADUS_CHECK(a.get("low") < a.get("high"), ValueError, "there is no integer from ", a.get("low"), " to before ",
                    a.get("high"));
     }},
    {"randperm", "y int64 N"},
    {"linear", "x t MK, w t NK, ?bias t N, y t MN"},
    {"softmax", "x t *, y t *", [](const Arguments& a) { check_axis(a); }},
    {"softmax_backward", "dy t *, y t *, dx t *", [](const Arguments& a) { check_axis(a, "dy"); }},
    {"cross_entropy", "x t NC, target int64 N, log_probabilities t NC, loss t any, weight_sum t ",
     [](const Arguments& a) {
       const Shape wanted = a.choice("reduction") == "none" ? a.shape("target") : Shape();
       GRADUS_CHECK(a.shape("loss") == wanted, ShapeError, "'loss' must have the shape ", wanted);
     }},
    {"cross_entropy_backward", "dloss t any, log_probabilities t NC, target int64 N, ?weight_sum t , dx t NC",
     [](const Arguments& a) {
       const Shape wanted = a.choice("reduction") == "none" ? a.shape("target") : Shape();
       GRADUS_CHECK(a.shape("dloss") == wanted, ShapeError, "'dloss' must have the shape ", wanted);
     }},
    {"conv2d_bias_relu", "x t NCHW, w t KDRS, ?bias t K, y t NKPQ",
     [](const Arguments& a) { check_convolution(a, "x", "w", "y"); }},
    {"conv2d_bias_relu_backward",
     "dy t NKPQ, x t NCHW, w t KDRS, ?y t NKPQ, ?dx t NCHW, ?dw t KDRS, ?dbias t K, ?masked t NKPQ",
     [](const Arguments& a) { check_convolution(a, "x", "w", "dy"); }},
    {"dropout", "x t *, mask bool *, y t *"},
    {"dropout_backward", "dy t *, mask bool *, dx t *"},
    {"linear_recurrence", "a t *, b t *, y t *", [](const Arguments& a) { check_axis(a, "a"); }},
    {"resample2d", "x t NCHW, y t NCPQ",
     [](const Arguments& a) { check_stencil(a, "rows", 2), check_stencil(a, "columns", 3); }},
    {"normalize",
     "x t *, ?weight t/float32 *, ?bias t/float32 *, ?residual t *, y t *, mean t/float32 -, variance t/float32 -, "
     "?running.batches int64 ",
     [](const Arguments& a) { check_axes(a), check_running(a, "mean"); }},
    {"normalize_backward",
     "dy t *, x t *, mean t/float32 -, variance t/float32 -, ?weight t/float32 *, ?y t *, ?addend t *, ?bias "
     "t/float32 *, ?dx t *, ?dweight t/float32 ~, "
     "?dbias t/float32 ~, ?dresidual t *",
     check_axes},
    {"update_running_statistics", "batch_mean s NC, batch_variance s NC, ?running.batches int64 ",
     [](const Arguments& a) { check_running(a, "batch_mean"); }},
    {"lstm_cell", "c_before t NH, gates t N4H, c t NH, h t NH"},
    {"lstm_cell_backward", "dh t NH, gates t N4H, c_before t NH, c t NH, dc t NH, dgates t N4H"},
    {"lstm_sequence", "h0 t NH, c0 t NH, w_hh t 4HH, gates t LN4H, cells t LNH, hidden t LNH"},
    {"lstm_sequence_backward",
     "c0 t NH, ?dhidden t LNH, gates t LN4H, w_hh t 4HH, cells t LNH, dc t NH, dgates t LN4H, dh0 t NH"},
    {"attention", "q t NHLE, k t NHSE, v t NHSV, ?mask t/bool NHLS, weights t NHLS, ?kept bool NHLS, y t NHLV",
     check_attention},
    {"attention_backward",
     "dy t NHLV, q t NHLE, k t NHSE, v t NHSV, weights t NHLS, ?kept bool NHLS, y t NHLV, dq t NHLE, dk t NHSE, dv t "
     "NHSV",
     check_attention},
    {"rgb_to_grayscale", "x t ...3HW, y t ...1HW"},
    {"advance_step", "block float64 5"},
    {"optimizer_step", "block float64 5", check_parameters},
    {"unscale", "?factor float64 , found_inf float64 "},
    {"update_scale", "block float64 3"},
    {"topk", "x t any, values t *, indices int64 *", [](const Arguments& a) { check_covers(a, "x", "values"); }},
};

constexpr bool has_signature(std::string_view operation) {
  return std::any_of(std::begin(kSignatures), std::end(kSignatures),
                     [&](const Signature& one) { return one.operation == operation; });
}
#define GRADUS_CHECK_SIGNATURE(op, ...) static_assert(has_signature(#op) || std::string_view(#op) == "nonzero");
GRADUS_BACKEND_OPS(GRADUS_CHECK_SIGNATURE)
#undef GRADUS_CHECK_SIGNATURE

}  // namespace

void check_signature(Call& call) {
  const Arguments arguments(call);
  for (const Signature& signature : kSignatures) {
    if (std::string_view(signature.operation) != call.name) continue;
    Matcher(arguments).match(signature.operands);
    if (signature.check) signature.check(arguments);
    return;
  }
  GRADUS_FAIL(ValueError, "the shape of the result depends on numbers");  // nonzero
}

}  // namespace gradus::graph
