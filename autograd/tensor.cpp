#include <gradus/autograd/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <utility>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/mixed_precision/half_copy.h>
#include <gradus/autograd/op_scope.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus {
namespace {

// The autograd state of a tensor; null if it has none or the tensor is undefined.
AutogradMeta* meta_of(const Tensor& tensor) { return tensor.defined() ? tensor.impl()->meta.get() : nullptr; }

// meta_of(tensor). If the tensor is a view, its history is brought up to date.
const AutogradMeta* current_meta_of(const Tensor& tensor) {
  const AutogradMeta* meta = meta_of(tensor);
  if (meta && meta->view) refresh_view(tensor);
  return meta;
}

void check_defined(const Tensor& tensor) { GRADUS_CHECK(tensor.defined(), ValueError, "the tensor is undefined"); }

}  // namespace

Tensor::Tensor(Array array, bool requires_grad) : impl_(make_ref<TensorImpl>(std::move(array))) {
  if (detail::inference_enabled) impl_->inference = true;
  if (requires_grad) set_requires_grad(true);
}
Tensor::Tensor() noexcept = default;
Tensor::Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
Tensor::Tensor(const Tensor&) = default;
Tensor::Tensor(Tensor&&) noexcept = default;
Tensor& Tensor::operator=(const Tensor&) & = default;
Tensor& Tensor::operator=(Tensor&&) & noexcept = default;
Tensor::~Tensor() = default;

const Array& Tensor::array() const {
  check_defined(*this);
  return impl_->array;
}

uint32_t Tensor::use_count() const { return impl_ ? impl_->use_count() : 0; }

bool Tensor::requires_grad() const {
  const AutogradMeta* meta = current_meta_of(*this);
  const ViewInfo* view = meta ? meta->view.get() : nullptr;
  // A view made without recording requires gradients if its base does, although no gradient can flow through the view.
  return meta && (meta->requires_grad || meta->grad_fn || (view && view->made_in && view->base.requires_grad()));
}

const Tensor& Tensor::set_requires_grad(bool wanted, Loc where) const {
  OpContext context("requires_grad_", where);
  check_defined(*this);
  GRADUS_CHECK(!wanted || is_floating(dtype()), DTypeError, "only floating tensors can require gradients, got ",
               dtype());
  GRADUS_CHECK(!wanted || !impl_->inference || InferenceMode::is_enabled(), AutogradError,
               "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed. clone() it first");
  if (!is_leaf()) {
    GRADUS_CHECK(wanted, AutogradError,
                 "only leaves can change requires_grad; use detach() to cut a tensor off its graph");
    return *this;
  }
  if (wanted || impl_->meta) impl_->need_meta().requires_grad = wanted;
  return *this;
}

bool Tensor::is_leaf() const {
  const AutogradMeta* meta = current_meta_of(*this);
  return !meta || !meta->grad_fn;
}
bool Tensor::is_inference() const { return impl_ && impl_->inference; }
bool Tensor::is_view() const { return meta_of(*this) && impl_->meta->view; }

Ref<Node> Tensor::grad_fn() const {
  const AutogradMeta* meta = current_meta_of(*this);
  const ViewInfo* view = meta ? meta->view.get() : nullptr;
  const bool outdated = view && view->made_in && view->version != version();
  GRADUS_CHECK(!outdated || !GradMode::is_enabled() || !view->base.requires_grad(), AutogradError,
               "A view was created in ", view->made_in,
               " mode and its base or another view of its base has been modified inplace with grad mode enabled; make "
               "the view outside of that mode, or make it again");
  return meta ? meta->grad_fn : nullptr;
}

uint32_t Tensor::output_nr() const { return meta_of(*this) ? impl_->meta->output_nr : 0; }

Edge gradient_edge(const Tensor& tensor) {
  if (!meta_of(tensor)) return {};
  if (Ref<Node> made_by = tensor.grad_fn()) return {std::move(made_by), tensor.output_nr()};
  if (meta_of(tensor)->requires_grad) return {accumulator_of(tensor), 0};
  return {};
}

const Tensor& Tensor::grad() const {
  static const Tensor none;
  if (!meta_of(*this)) return none;
  amp::detail::convert_half_gradient(*impl_->meta);
  return impl_->meta->grad;
}

Tensor& Tensor::mutable_grad() const {
  check_defined(*this);
  AutogradMeta& meta = impl_->need_meta();
  amp::detail::convert_half_gradient(meta);
  return meta.grad;
}

void Tensor::zero_grad(bool set_to_none) const {
  if (AutogradMeta* meta = meta_of(*this); meta && set_to_none) amp::detail::drop_half_gradient(*meta);
  if (!grad().defined()) return;
  Tensor& gradient = mutable_grad();
  if (set_to_none) {
    gradient = Tensor();
  } else {
    if (gradient.grad_fn()) gradient = gradient.detach();
    NoGradGuard no_grad;
    gradient.zero_();
  }
}

void Tensor::retain_grad() const {
  GRADUS_CHECK(requires_grad(), AutogradError, "retain_grad() needs a tensor that requires gradients");
  if (is_leaf()) return;
  {
    const detail::ObjectLock lock(meta_of(*this));
    if (std::exchange(impl_->meta->retains_grad, true)) return;
  }
  grad_fn()->add_retain(output_nr(), impl_.get());
}

bool Tensor::retains_grad() const {
  const AutogradMeta* const meta = meta_of(*this);
  if (!meta) return false;
  const detail::ObjectLock lock(meta);
  return meta->retains_grad;
}

void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      std::optional<TensorList> inputs, Loc where) const {
  GRADUS_CHECK(!inputs || !inputs->empty(), ValueError, "'inputs' argument to backward cannot be empty");
  autograd::backward({*this}, {gradient}, retain_graph, create_graph, inputs.value_or(TensorList()), where);
}

unsigned Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  GRADUS_CHECK(requires_grad(), AutogradError, "a hook needs a tensor that requires gradients");
  if (Ref<Node> made_by = grad_fn()) return made_by->output_hooks().add(std::move(hook), output_nr());
  return impl_->need_meta().hooks.add(std::move(hook));
}

void Tensor::remove_hook(unsigned id) const {
  check_defined(*this);
  const Ref<Node> made_by = grad_fn();
  AutogradMeta* const meta = meta_of(*this);
  const bool removed = (made_by && made_by->output_hooks().remove(id, output_nr())) ||
                       (meta && (meta->hooks.remove(id) || meta->post_hooks.remove(id)));
  GRADUS_CHECK(removed, IndexError, "Invalid index: this tensor has no hook with id ", id);
}

unsigned Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const {
  GRADUS_CHECK(requires_grad() && is_leaf(), AutogradError,
               "a post-accumulate hook needs a leaf that requires gradients");
  return impl_->need_meta().post_hooks.add(std::move(hook));
}

Tensor Tensor::detach(Loc where) const {
  OpContext context("detach", where);
  return Tensor(array());
}

const Tensor& Tensor::detach_() const {
  GRADUS_CHECK(!is_view(), AutogradError, "a view cannot be detached in place; use detach()");
  if (AutogradMeta* meta = meta_of(*this)) {
    meta->grad_fn = nullptr;
    meta->output_nr = 0;
    meta->requires_grad = false;
  }
  return *this;
}

void Tensor::set_data(const Tensor& other) const {
  check_defined(*this);
  GRADUS_CHECK(!requires_grad() || is_floating(other.dtype()), DTypeError,
               "a tensor that requires gradients cannot hold ", other.dtype());
  impl_->array = other.array();
  // The accumulator, the bound storage and the half-type copy belong to the old data.
  if (AutogradMeta* meta = meta_of(*this)) {
    forget_accumulator(*meta);
    unbind_grad(*meta);
    amp::detail::exchange_half_copy(*this, nullptr);
    amp::detail::convert_half_gradient(*meta);
  }
}

Scalar Tensor::item_scalar(Loc where) const {
  OpContext context("item", where);
  return ops::item(array());
}

bool Tensor::equal(const Tensor& other) const {
  OpContext context("equal");
  if (!(sizes() == other.sizes()) || dtype() != other.dtype()) return false;
  return ops::all_true(ops::binary(BinaryOp::eq, array(), other.array()));
}

bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  const OpContext context("allclose");
  return isclose(cpu(), other.cpu(), rtol, atol, equal_nan).all().item<bool>();
}

// ---- Reductions, which forward to functions in autograd/ops ----

Tensor Tensor::sum(std::optional<DType> dtype, Loc where) const { return gradus::sum(*this, dtype, where); }
Tensor Tensor::mean(std::optional<DType> dtype, Loc where) const { return gradus::mean(*this, dtype, where); }
Tensor Tensor::max(Loc where) const { return gradus::max(*this, where); }
Tensor Tensor::min(Loc where) const { return gradus::min(*this, where); }
Tensor Tensor::amax(IntArrayRef dim, bool keepdim, Loc where) const { return gradus::amax(*this, dim, keepdim, where); }
Tensor Tensor::amin(IntArrayRef dim, bool keepdim, Loc where) const { return gradus::amin(*this, dim, keepdim, where); }
Tensor Tensor::count_nonzero(IntArrayRef dim, Loc where) const { return gradus::count_nonzero(*this, dim, where); }
Tensor Tensor::prod(std::optional<DType> dtype, Loc where) const { return gradus::prod(*this, dtype, where); }
Tensor Tensor::prod(int64_t dim, bool keepdim, std::optional<DType> dtype, Loc where) const {
  return gradus::prod(*this, dim, keepdim, dtype, where);
}
Tensor Tensor::norm(std::optional<Scalar> p, IntArrayRef dim, bool keepdim, std::optional<DType> dtype,
                    Loc where) const {
  return gradus::norm(*this, p, dim, keepdim, dtype, where);
}
Tensor Tensor::logsumexp(IntArrayRef dim, bool keepdim, Loc where) const {
  return gradus::logsumexp(*this, dim, keepdim, where);
}

TensorPair Tensor::topk(int64_t k, int64_t dim, bool largest, bool sorted, Loc where) const {
  return gradus::topk(*this, k, dim, largest, sorted, where);
}
TensorPair Tensor::kthvalue(int64_t k, int64_t dim, bool keepdim, Loc where) const {
  return gradus::kthvalue(*this, k, dim, keepdim, where);
}
Tensor Tensor::median(Loc where) const { return gradus::median(*this, where); }
TensorPair Tensor::median(int64_t dim, bool keepdim, Loc where) const {
  return gradus::median(*this, dim, keepdim, where);
}

Tensor Tensor::matmul(const Tensor& other, Loc where) const { return gradus::matmul(*this, other, where); }

// ---- Printing ----

namespace {

// How the elements of a tensor are printed: all in fixed or all in scientific notation, with one width and possibly a
// common factor.
struct Format {
  double scale = 1;
  int width = 0;
  int precision = 4;
  bool scientific = false;
};

// Chooses the format as LibTorch does: integers without a decimal point, other values with four decimals; a common
// factor 10^k if all values are large or all are small; scientific notation if magnitudes differ widely.
Format format_for(const std::vector<double>& values) {
  bool integers = true;
  double least = HUGE_VAL, most = 0;  // magnitudes of the finite values
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    if (value != std::ceil(value)) integers = false;
    least = std::min(least, std::abs(value));
    most = std::max(most, std::abs(value));
  }
  // Without finite values, least > most, and both exponents are 1.
  auto exponent = [&](double x) {
    return x != 0 && least <= most ? static_cast<int>(std::floor(std::log10(x))) + 1 : 1;
  };
  const int low = exponent(least), high = exponent(most);
  if (integers && high <= 9) return {.width = high + 1, .precision = 0};
  if (integers) return {.width = 11, .scientific = true};
  const bool three_digits = std::abs(high) > 99 || std::abs(low) > 99;  // in the exponent
  if (high - low > 4) return {.width = three_digits ? 12 : 11, .scientific = true};
  if (high > 5 || high < 0) return {.scale = std::pow(10, high - 1), .width = 7};
  return {.width = high == 0 ? 7 : high + 6};
}

std::string number(double value, const Format& format) {
  char text[64];
  if (std::isnan(value)) std::snprintf(text, sizeof text, "%*s", format.width, "nan");
  else if (std::isinf(value)) std::snprintf(text, sizeof text, "%*s", format.width, value > 0 ? "inf" : "-inf");
  else
    std::snprintf(text, sizeof text, format.scientific ? "%*.*e" : "%*.*f", format.width, format.precision,
                  value / format.scale);
  return text;
}

std::string scale_line(const Format& format) {
  if (format.scale == 1) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%g *\n", format.scale);
  return text;
}

constexpr int kLineWidth = 80;

// Prints rows of numbers, in groups of as many columns as fit into a line.
std::string matrix(const double* values, int64_t rows, int64_t columns, const Format& format) {
  const int64_t per_line = std::max<int64_t>(1, kLineWidth / (format.width + 1));
  std::string text = scale_line(format);
  for (int64_t first = 0; first < columns; first += per_line) {
    const int64_t last = std::min(columns, first + per_line) - 1;
    if (columns > per_line) {
      if (first > 0) text += "\n";
      text += "Columns " + std::to_string(first + 1) + " to " + std::to_string(last + 1) + "\n";
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = first; column <= last; ++column) {
        if (column > first || format.scale != 1) text += " ";
        text += number(values[row * columns + column], format);
      }
      text += "\n";
    }
  }
  return text;
}

std::string footer(const Tensor& tensor) {
  std::string text = "[ " + tensor.toString() + "{";
  for (int i = 0; i < tensor.dim(); ++i) text += (i ? "," : "") + std::to_string(tensor.sizes()[i]);
  return text + "} ]";
}

}  // namespace

std::string Tensor::toString() const { return (is_cuda() ? "CUDA" : "CPU") + std::string(type_name(dtype())) + "Type"; }

std::string Tensor::str() const {
  if (!defined()) return "[ Tensor (undefined) ]";
  const OpContext context("print");
  check_not_recording(device().type(), "printing a tensor");
  const Array here = ops::contiguous(ops::cast(ops::to_device(array(), Device()), DType::f64));
  const double* data = static_cast<const double*>(here.data());
  const std::vector<double> values(data, data + here.numel());
  const Format format = format_for(values);
  std::string text;
  if (dim() == 0) {
    char one[64];
    std::snprintf(one, sizeof one, "%g", values[0]);
    text = std::string(one) + "\n";
  } else if (dim() == 1) {
    if (!values.empty()) text = scale_line(format);
    for (double value : values) text += number(value, format) + "\n";
  } else if (numel() > 0) {
    const int64_t rows = sizes()[ndim_of(*this) - 2], columns = sizes()[ndim_of(*this) - 1];
    Shape lead(sizes().data(), static_cast<size_t>(dim() - 2));
    const int64_t planes = numel_of(lead);
    for (int64_t plane = 0; plane < planes; ++plane) {
      if (dim() > 2) {
        std::string at;
        for (int64_t axis = lead.size() - 1, rest = plane; axis >= 0; rest /= lead[axis], --axis)
          at = std::to_string(rest % lead[axis] + 1) + "," + at;
        if (plane > 0) text += "\n";
        text += "(" + at + ".,.) = \n";
      }
      const double* first = values.data() + plane * rows * columns;
      text += matrix(first, rows, columns, format_for({first, first + rows * columns}));
    }
  }
  return text + footer(*this);
}

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) { return stream << tensor.str(); }

std::ostream& operator<<(std::ostream& stream, const Dims& dims) {
  stream << "[";
  for (int i = 0; i < dims.size(); ++i) stream << (i ? ", " : "") << dims[i];
  return stream << "]";
}

std::ostream& operator<<(std::ostream& stream, DType dtype) { return stream << type_name(dtype); }
std::ostream& operator<<(std::ostream& stream, Device device) { return stream << device.str(); }

}  // namespace gradus
