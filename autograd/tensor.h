// Tensor: an Array with autograd state. Names, defaults and semantics follow LibTorch's torch::Tensor.
//
// A Tensor is one pointer; copies refer to the same tensor. Methods are const because they change the tensor, not the
// handle. Operators are in autograd/ops, one file per family; those that users call as methods are also declared here.
#pragma once

#include <concepts>
#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/core/array/array.h>
#include <gradus/core/options.h>

namespace gradus {

class Node;
struct TensorImpl;

/// Memory layout of the elements. Only strided layouts exist; LibTorch has others.
enum class TensorLayout : uint8_t { strided };
inline constexpr TensorLayout kStrided = TensorLayout::strided;

/// Element type, device and requires_grad for creation functions: dtype(kDouble).device("cuda").
struct TensorOptions {
  TensorOptions() = default;
  TensorOptions(DType dtype) : dtype_(dtype) {}                    // NOLINT(google-explicit-constructor)
  TensorOptions(Device device) : device_(device) {}                // NOLINT(google-explicit-constructor)
  TensorOptions(DeviceType type) : TensorOptions(Device(type)) {}  // NOLINT(google-explicit-constructor)
  /// Parses the name of a device, such as "cuda:1".
  explicit TensorOptions(const std::convertible_to<std::string_view> auto& device) : TensorOptions(Device(device)) {}
  TensorOptions dtype(DType dtype) const { return with(&TensorOptions::dtype_, dtype); }
  TensorOptions device(Device device) const { return with(&TensorOptions::device_, std::optional(device)); }
  TensorOptions device(DeviceType type, int index) const { return device(Device(type, index)); }
  TensorOptions device_index(int index) const { return device(Device(DeviceType::cuda, index)); }  ///< a GPU by index
  TensorOptions layout(TensorLayout) const { return *this; }                                       ///< always strided
  TensorOptions requires_grad(bool wanted) const { return with(&TensorOptions::requires_grad_, wanted); }
  TensorOptions memory_format(MemoryFormat format) const { return with(&TensorOptions::format_, format); }
  DType dtype_or(DType fallback) const { return dtype_.value_or(fallback); }
  DType dtype() const { return dtype_.value_or(get_default_dtype()); }
  Device device_or(Device fallback) const { return device_.value_or(fallback); }
  Device device() const { return device_or(Device()); }
  bool requires_grad() const { return requires_grad_; }  ///< false unless set
  TensorLayout layout() const { return kStrided; }       ///< always strided
  MemoryFormat memory_format() const { return format_; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }

 private:
  template <class T>
  TensorOptions with(T TensorOptions::*member, const std::type_identity_t<T>& value) const {
    TensorOptions changed = *this;
    changed.*member = value;
    return changed;
  }
  std::optional<DType> dtype_ = absent<DType>();
  std::optional<Device> device_ = absent<Device>();
  bool requires_grad_ = false;
  MemoryFormat format_ = MemoryFormat::contiguous;
};
inline TensorOptions dtype(DType type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions layout(TensorLayout layout) { return TensorOptions().layout(layout); }  ///< always strided
inline TensorOptions requires_grad(bool wanted = true) { return TensorOptions().requires_grad(wanted); }

using TensorList = std::vector<Tensor>;
/// The result of an operator that gives two tensors.
using TensorPair = std::tuple<Tensor, Tensor>;
/// The tensor arguments of an operator, in order.
using TensorPointers = std::span<const Tensor* const>;

/// A bool, and no type that converts to bool. LibTorch has overloads for a flag and for a number, such as x.var(false)
/// and x.var(0): with a `bool` parameter, the first would also accept the number, which means dimension 0.
template <class T>
concept Flag = std::same_as<T, bool> || std::same_as<T, std::optional<bool>>;

template <class T, int N>
class TensorAccessor;
struct Slice;
struct TensorIndex;

class Tensor {
 public:
  Tensor() noexcept;
  /// Makes a leaf that holds `array`.
  explicit Tensor(Array array, bool requires_grad = false);
  explicit Tensor(Ref<TensorImpl> impl);
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(const Tensor&) &;
  Tensor& operator=(Tensor&&) & noexcept;
  /// x[i] = y writes into x, as in LibTorch: assignment to a temporary view copies the data.
  const Tensor& operator=(const Tensor& source) && { return copy_(source); }
  const Tensor& operator=(Tensor&& source) && { return copy_(source); }  // NOLINT(bugprone-exception-escape)
  const Tensor& operator=(const Scalar& value) && { return fill_(value); }
  ~Tensor();

  // ---- Properties ----
  bool defined() const { return static_cast<bool>(impl_); }
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  /// The data. Throws an Error if the tensor is undefined.
  const Array& array() const;
  TensorImpl* impl() const { return impl_.get(); }
  uint32_t use_count() const;
  void reset() { *this = Tensor(); }

  const Shape& sizes() const { return array().shape(); }
  const Strides& strides() const { return array().strides(); }
  int64_t size(int64_t dim) const { return array().size(dim); }
  int64_t stride(int64_t dim) const { return array().stride(dim); }
  int64_t dim() const { return array().ndim(); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return defined() ? array().numel() : 0; }
  size_t nbytes() const { return array().nbytes(); }
  int64_t element_size() const { return static_cast<int64_t>(size_of(dtype())); }
  int64_t storage_offset() const { return array().offset(); }
  DType dtype() const { return array().dtype(); }
  DType scalar_type() const { return array().dtype(); }
  Device device() const { return array().device(); }
  TensorOptions options() const { return TensorOptions(dtype()).device(device()); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }                         ///< on the host
  int64_t get_device() const { return is_cuda() ? device().index() : -1; }  ///< index of the GPU, -1 for the CPU
  /// True if the tensor was made in InferenceMode.
  bool is_inference() const;
  bool is_floating_point() const { return is_floating(dtype()); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::contiguous) const { return array().is_contiguous(format); }
  uint32_t version() const { return array().version(); }
  uint32_t _version() const { return version(); }

  // ---- Access to elements ----
  /// Returns the single element, converted to T; waits for the device. Throws a ShapeError if there is not exactly one
  /// element, and a ValueError if T cannot represent the value (Scalar::fits).
  template <class T>
  T item(Loc where = Loc::current()) const {
    const Scalar value = item_scalar(where);
    const OpContext context("item", where);
    return value.to<T>();
  }
  Scalar item(Loc where = Loc::current()) const { return item_scalar(where); }
  /// Address of the first element, on the tensor's device. The typed form checks the element type.
  void* data_ptr() const { return array().data(); }
  template <class T>
  T* data_ptr() const {
    return array().template data<T>();
  }
  /// Access to single elements on the CPU: auto a = x.accessor<float, 2>(); a[i][j].
  template <class T, int N>
  TensorAccessor<T, N> accessor() const;

  // ---- Autograd ----
  bool requires_grad() const;
  /// Sets whether this leaf gets a gradient. Throws a DTypeError if the type is not floating. A tensor that is not a
  /// leaf always requires gradients: setting false is an AutogradError, setting true has no effect.
  const Tensor& set_requires_grad(bool wanted, Loc where = Loc::current()) const;
  const Tensor& requires_grad_(bool wanted = true, Loc where = Loc::current()) const {
    return set_requires_grad(wanted, where);
  }
  bool is_leaf() const;
  bool is_view() const;
  /// The node that made this tensor; null for leaves.
  Ref<Node> grad_fn() const;
  uint32_t output_nr() const;
  /// The accumulated gradient, or an undefined tensor.
  const Tensor& grad() const;
  /// A reference to the gradient, for assignment.
  Tensor& mutable_grad() const;
  void zero_grad(bool set_to_none = true) const;
  void retain_grad() const;
  bool retains_grad() const;
  /// Makes gradients accumulate into `storage`, which must have this tensor's shape, dtype and device and may be part
  /// of a larger buffer. zero_grad keeps the binding and makes grad() undefined; the next gradient overwrites the
  /// storage, later ones add.
  void bind_grad(const Array& storage) const;
  /// Computes gradients of this tensor with respect to the graph's leaves (torch::Tensor::backward).
  void backward(const Tensor& gradient = {}, std::optional<bool> retain_graph = {}, bool create_graph = false,
                std::optional<TensorList> inputs = {}, Loc where = Loc::current()) const;
  /// Computes gradients only for `inputs`. Empty braces mean all leaves.
  void backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                std::initializer_list<Tensor> inputs, Loc where = Loc::current()) const {
    backward(gradient, retain_graph, create_graph,
             inputs.size() == 0 ? std::optional<TensorList>() : std::optional<TensorList>(inputs), where);
  }
  /// Calls `hook` with each gradient of this tensor; a defined result replaces it. Returns an id for remove_hook.
  unsigned register_hook(std::function<Tensor(const Tensor&)> hook) const;
  /// A hook that returns nothing does not replace the gradient.
  template <class F>
  requires std::is_void_v<std::invoke_result_t<F, const Tensor&>>
  unsigned register_hook(F look) const {
    return register_hook(std::function<Tensor(const Tensor&)>(
        [look = std::move(look)](const Tensor& gradient) { return look(gradient), Tensor(); }));
  }
  /// Removes a hook that one of the register methods added. Throws an IndexError if there is no hook with this id.
  void remove_hook(unsigned id) const;
  /// Calls `hook` with this leaf after each gradient is accumulated into it. Returns an id for remove_hook.
  unsigned register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const;
  /// The same data without history. Shares storage and version.
  Tensor detach(Loc where = Loc::current()) const;
  const Tensor& detach_() const;
  /// LibTorch's set_data: this tensor refers to the data of `other` from now on.
  void set_data(const Tensor& other) const;
  Tensor data() const { return detach(); }
  Tensor variable_data() const { return detach(); }  ///< same as detach()
  Tensor tensor_data() const { return detach(); }    ///< same as detach()

  // ---- Moving and converting ----
  Tensor to(DType dtype, bool non_blocking = false, bool copy = false, Loc where = Loc::current()) const;
  Tensor to(Device device, bool non_blocking = false, bool copy = false, Loc where = Loc::current()) const;
  Tensor to(DeviceType type, bool non_blocking = false, bool copy = false, Loc where = Loc::current()) const {
    return to(Device(type), non_blocking, copy, where);
  }
  Tensor to(Device device, DType dtype, bool non_blocking = false, bool copy = false, Loc where = Loc::current()) const;
  Tensor to(const TensorOptions& options, bool non_blocking = false, bool copy = false,
            Loc where = Loc::current()) const;
  /// Like contiguous(format), except for images of one channel. Their elements have the same order in memory in both
  /// formats, and only the channel stride shows which format was meant (Array::is_channels_last); a convolution gives
  /// its result that format. If the stride shows the other format, returns a copy with the channel stride of `format`.
  Tensor to(MemoryFormat format, Loc where = Loc::current()) const;
  /// Converts device and dtype, then calls to(*format) if a format is given.
  Tensor to(Device device, DType dtype, bool non_blocking, bool copy, std::optional<MemoryFormat> format,
            Loc where = Loc::current()) const;
  Tensor to(DType type, bool non_blocking, bool copy, std::optional<MemoryFormat> format,
            Loc where = Loc::current()) const {
    return to(device(), type, non_blocking, copy, format, where);
  }
  Tensor to(const Tensor& other, bool non_blocking = false, bool copy = false, std::optional<MemoryFormat> format = {},
            Loc where = Loc::current()) const {
    return to(other.device(), other.dtype(), non_blocking, copy, format, where);
  }
  Tensor type_as(const Tensor& other, Loc where = Loc::current()) const { return to(other, false, false, {}, where); }
  Tensor toType(DType type, Loc where = Loc::current()) const { return to(type, false, false, where); }
  Tensor cpu(Loc where = Loc::current()) const { return to(Device(), false, false, where); }
  Tensor cuda(Loc where = Loc::current()) const { return to(Device(DeviceType::cuda), false, false, where); }
  Tensor clone(Loc where = Loc::current()) const;
  Tensor contiguous(MemoryFormat format = MemoryFormat::contiguous, Loc where = Loc::current()) const;
  /// New tensors that have the dtype and device of this tensor unless options say otherwise.
  Tensor new_empty(IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current()) const;
  Tensor new_zeros(IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current()) const;
  Tensor new_ones(IntArrayRef size, const TensorOptions& options = {}, Loc where = Loc::current()) const;
  Tensor new_full(IntArrayRef size, const Scalar& value, const TensorOptions& options = {},
                  Loc where = Loc::current()) const;

  // ---- Views and shapes (autograd/ops/shape.cpp) ----
  Tensor view(IntArrayRef size, Loc where = Loc::current()) const;
  /// Reinterprets the bytes as elements of another type, without history. If the size of the element type differs, the
  /// last dimension is scaled accordingly and must be contiguous.
  Tensor view(std::same_as<DType> auto dtype, Loc where = Loc::current()) const {  // view({}) must pass sizes
    return view_as_type(dtype, where);
  }
  Tensor view_as(const Tensor& other, Loc where = Loc::current()) const { return view(other.sizes(), where); }
  Tensor reshape(IntArrayRef size, Loc where = Loc::current()) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1, Loc where = Loc::current()) const;
  Tensor transpose(int64_t dim0, int64_t dim1, Loc where = Loc::current()) const;
  Tensor t(Loc where = Loc::current()) const;
  Tensor permute(IntArrayRef dims, Loc where = Loc::current()) const;
  Tensor expand(IntArrayRef size, Loc where = Loc::current()) const;
  Tensor expand_as(const Tensor& other, Loc where = Loc::current()) const { return expand(other.sizes(), where); }
  Tensor slice(int64_t dim, std::optional<int64_t> start = {}, std::optional<int64_t> end = {}, int64_t step = 1,
               Loc where = Loc::current()) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length, Loc where = Loc::current()) const;
  Tensor select(int64_t dim, int64_t index, Loc where = Loc::current()) const;
  Tensor unsqueeze(int64_t dim, Loc where = Loc::current()) const;
  /// Removes dimension `dim` if its size is 1, or all dimensions of size 1.
  Tensor squeeze(std::optional<int64_t> dim = {}, Loc where = Loc::current()) const;
  Tensor movedim(IntArrayRef source, IntArrayRef destination, Loc where = Loc::current()) const;
  Tensor unflatten(int64_t dim, IntArrayRef sizes, Loc where = Loc::current()) const;
  /// Windows of `size` elements along `dim`, `step` elements apart: (…, windows, …, size). Windows may overlap.
  Tensor unfold(int64_t dim, int64_t size, int64_t step, Loc where = Loc::current()) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1, Loc where = Loc::current()) const;
  /// Gives this tensor another shape, contiguous and in the same memory. If the memory is too small, allocates more and
  /// copies the old elements. The values of additional elements are undefined. Throws an AutogradError for a tensor
  /// that requires gradients.
  const Tensor& resize_(IntArrayRef size, Loc where = Loc::current()) const;
  /// Resizes to the sizes of `other`.
  const Tensor& resize_as_(const Tensor& other, Loc where = Loc::current()) const {
    return resize_(other.sizes(), where);
  }
  /// These methods turn this tensor itself into the view. They throw an AutogradError for a leaf that requires
  /// gradients.
  const Tensor& transpose_(int64_t dim0, int64_t dim1, Loc where = Loc::current()) const;
  const Tensor& t_(Loc where = Loc::current()) const;
  const Tensor& unsqueeze_(int64_t dim, Loc where = Loc::current()) const;
  const Tensor& squeeze_(std::optional<int64_t> dim = {}, Loc where = Loc::current()) const;
  Tensor T(Loc where = Loc::current()) const { return t(where); }
  Tensor mT(Loc where = Loc::current()) const { return transpose(-2, -1, where); }
  /// Views of consecutive parts along `dim`: of equal size (the last may be smaller), of given sizes, or a given number
  /// of parts.
  TensorList split(int64_t split_size, int64_t dim = 0, Loc where = Loc::current()) const;
  TensorList split(const std::vector<int64_t>& split_sizes, int64_t dim = 0, Loc where = Loc::current()) const;
  TensorList split_with_sizes(const std::vector<int64_t>& split_sizes, int64_t dim = 0,
                              Loc where = Loc::current()) const;
  TensorList chunk(int64_t chunks, int64_t dim = 0, Loc where = Loc::current()) const;
  TensorList unbind(int64_t dim = 0, Loc where = Loc::current()) const;
  /// These methods return copies.
  Tensor repeat(IntArrayRef repeats, Loc where = Loc::current()) const;
  Tensor tile(IntArrayRef repeats, Loc where = Loc::current()) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}, Loc where = Loc::current()) const;
  Tensor flip(IntArrayRef dims, Loc where = Loc::current()) const;
  Tensor roll(IntArrayRef shifts, IntArrayRef dims = {}, Loc where = Loc::current()) const;
  Tensor tril(int64_t diagonal = 0, Loc where = Loc::current()) const;
  Tensor triu(int64_t diagonal = 0, Loc where = Loc::current()) const;
  Tensor diag(int64_t diagonal = 0, Loc where = Loc::current()) const;
  Tensor as_strided(IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset = {},
                    Loc where = Loc::current()) const;
  Tensor operator[](int64_t index) const { return select(0, index, Loc{}); }
  /// x.index({0, Slice(1, 3), None, Ellipsis, mask, rows}). Integers, slices, None and Ellipsis return a view; with
  /// masks or index tensors the result is a copy, as in NumPy and PyTorch.
  Tensor index(const std::vector<TensorIndex>& indices, Loc where = Loc::current()) const;
  /// Writes `value` (broadcast) into the elements that index() would return. With accumulate, adds it to them,
  /// repeatedly for an element that is selected several times.
  const Tensor& index_put_(const std::vector<TensorIndex>& indices, const Operand& value,
                           bool accumulate = false) const;
  Tensor index_select(int64_t dim, const Tensor& index, Loc where = Loc::current()) const;
  Tensor gather(int64_t dim, const Tensor& index, Loc where = Loc::current()) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Operand& source) const;
  Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& source, Loc where = Loc::current()) const;
  Tensor index_add(int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha = 1,
                   Loc where = Loc::current()) const;
  Tensor index_fill(int64_t dim, const Tensor& index, const Scalar& value, Loc where = Loc::current()) const;
  Tensor masked_fill(const Tensor& mask, const Operand& value) const;
  Tensor masked_select(const Tensor& mask, Loc where = Loc::current()) const;
  /// Indices (count, dim()) of the elements that are not 0, in row-major order.
  Tensor nonzero(Loc where = Loc::current()) const;

  // ---- Element-wise (autograd/ops/elementwise.cpp) ----
  Tensor add(const Operand& other, const Scalar& alpha = 1) const { return gradus::add(self(), other, alpha); }
  Tensor sub(const Operand& other, const Scalar& alpha = 1) const { return gradus::sub(self(), other, alpha); }
  Tensor mul(const Operand& other) const { return gradus::mul(self(), other); }
  Tensor div(const Operand& other, std::optional<std::string_view> rounding_mode = {}) const {
    return gradus::div(self(), other, rounding_mode);
  }
  Tensor floor_divide(const Operand& other) const { return gradus::floor_divide(self(), other); }
  Tensor pow(const Operand& exponent) const { return gradus::pow(self(), exponent); }
  Tensor neg(Loc where = Loc::current()) const;
  Tensor abs(Loc where = Loc::current()) const;
  Tensor exp(Loc where = Loc::current()) const;
  Tensor log(Loc where = Loc::current()) const;
  Tensor sqrt(Loc where = Loc::current()) const;
  Tensor reciprocal(Loc where = Loc::current()) const;
  Tensor relu(Loc where = Loc::current()) const;
  Tensor sigmoid(Loc where = Loc::current()) const;
  Tensor tanh(Loc where = Loc::current()) const;
  Tensor clamp(std::optional<Operand> min, std::optional<Operand> max = {}, Loc where = Loc::current()) const {
    return gradus::clamp(*this, min, max, where);
  }
  Tensor eq(const Operand& other) const;
  Tensor ne(const Operand& other) const;
  Tensor lt(const Operand& other) const;
  Tensor le(const Operand& other) const;
  Tensor gt(const Operand& other) const;
  Tensor ge(const Operand& other) const;
  Tensor logical_not(Loc where = Loc::current()) const { return gradus::logical_not(*this, where); }
  Tensor logical_and(const Operand& other) const;
  Tensor logical_or(const Operand& other) const;
  Tensor isfinite(Loc where = Loc::current()) const { return gradus::isfinite(*this, where); }
  Tensor isnan(Loc where = Loc::current()) const { return gradus::isnan(*this, where); }
  Tensor isinf(Loc where = Loc::current()) const { return gradus::isinf(*this, where); }
  Tensor rsqrt(Loc where = Loc::current()) const;
  Tensor square(Loc where = Loc::current()) const;
  Tensor sign(Loc where = Loc::current()) const;
  Tensor floor(Loc where = Loc::current()) const;
  Tensor ceil(Loc where = Loc::current()) const;
  Tensor round(Loc where = Loc::current()) const;
  Tensor trunc(Loc where = Loc::current()) const;
  Tensor sin(Loc where = Loc::current()) const;
  Tensor cos(Loc where = Loc::current()) const;
  Tensor erf(Loc where = Loc::current()) const;
  Tensor tan(Loc where = Loc::current()) const { return gradus::tan(*this, where); }  ///< gradus::tan
  Tensor sinh(Loc where = Loc::current()) const;                                      ///< gradus::sinh
  Tensor cosh(Loc where = Loc::current()) const;                                      ///< gradus::cosh
  Tensor asin(Loc where = Loc::current()) const;                                      ///< gradus::asin
  Tensor acos(Loc where = Loc::current()) const;                                      ///< gradus::acos
  Tensor atan(Loc where = Loc::current()) const;                                      ///< gradus::atan
  Tensor asinh(Loc where = Loc::current()) const;                                     ///< gradus::asinh
  Tensor acosh(Loc where = Loc::current()) const;                                     ///< gradus::acosh
  Tensor atanh(Loc where = Loc::current()) const;                                     ///< gradus::atanh
  Tensor log1p(Loc where = Loc::current()) const;
  Tensor expm1(Loc where = Loc::current()) const;
  Tensor log2(Loc where = Loc::current()) const { return gradus::log2(*this, where); }
  Tensor log10(Loc where = Loc::current()) const { return gradus::log10(*this, where); }
  Tensor clamp_min(const Operand& min) const { return clamp(min, {}, min.where); }
  Tensor clamp_max(const Operand& max) const { return clamp({}, max, max.where); }
  Tensor maximum(const Operand& other) const { return gradus::maximum(self(), other); }
  Tensor minimum(const Operand& other) const { return gradus::minimum(self(), other); }
  Tensor fmod(const Operand& other) const { return gradus::fmod(self(), other); }
  Tensor remainder(const Operand& other) const { return gradus::remainder(self(), other); }
  Tensor atan2(const Operand& other) const { return gradus::atan2(self(), other); }
  Tensor logical_xor(const Operand& other) const;
  Tensor bitwise_and(const Operand& other) const;
  Tensor bitwise_or(const Operand& other) const;
  Tensor bitwise_xor(const Operand& other) const;
  Tensor bitwise_not(Loc where = Loc::current()) const { return gradus::bitwise_not(*this, where); }
  Tensor lerp(const Tensor& end, const Operand& weight) const { return gradus::lerp(*this, end, weight); }
  Tensor addcmul(const Tensor& a, const Tensor& b, const Scalar& value = 1, Loc where = Loc::current()) const {
    return gradus::addcmul(*this, a, b, value, where);
  }
  Tensor addcdiv(const Tensor& a, const Tensor& b, const Scalar& value = 1, Loc where = Loc::current()) const {
    return gradus::addcdiv(*this, a, b, value, where);
  }
  Tensor where(const Tensor& condition, const Operand& other) const { return gradus::where(condition, self(), other); }

  // ---- In place: these methods increase the version and update the history. For a leaf that requires gradients they
  // throw an AutogradError. ----
  const Tensor& add_(const Operand& other, const Scalar& alpha = 1) const;
  const Tensor& sub_(const Operand& other, const Scalar& alpha = 1) const;
  const Tensor& mul_(const Operand& other) const;
  const Tensor& div_(const Operand& other, std::optional<std::string_view> rounding_mode = {}) const;
  const Tensor& zero_(Loc where = Loc::current()) const;
  const Tensor& fill_(const Scalar& value, Loc where = Loc::current()) const;
  const Tensor& fill_(const Tensor& value, Loc where = Loc::current()) const;  ///< value has one element
  const Tensor& copy_(const Tensor& source, bool non_blocking = false, Loc where = Loc::current()) const;
  const Tensor& pow_(const Operand& exponent) const;
  const Tensor& fmod_(const Operand& other) const;
  const Tensor& remainder_(const Operand& other) const;
  const Tensor& lerp_(const Tensor& end, const Operand& weight) const;
  const Tensor& addcmul_(const Tensor& a, const Tensor& b, const Scalar& value = 1, Loc where = Loc::current()) const;
  const Tensor& addcdiv_(const Tensor& a, const Tensor& b, const Scalar& value = 1, Loc where = Loc::current()) const;
  const Tensor& neg_(Loc where = Loc::current()) const;
  const Tensor& abs_(Loc where = Loc::current()) const;
  const Tensor& exp_(Loc where = Loc::current()) const;
  const Tensor& log_(Loc where = Loc::current()) const;
  const Tensor& sqrt_(Loc where = Loc::current()) const;
  const Tensor& rsqrt_(Loc where = Loc::current()) const;
  const Tensor& reciprocal_(Loc where = Loc::current()) const;
  const Tensor& square_(Loc where = Loc::current()) const;
  const Tensor& sign_(Loc where = Loc::current()) const;
  const Tensor& floor_(Loc where = Loc::current()) const;
  const Tensor& ceil_(Loc where = Loc::current()) const;
  const Tensor& round_(Loc where = Loc::current()) const;
  const Tensor& trunc_(Loc where = Loc::current()) const;
  const Tensor& sin_(Loc where = Loc::current()) const;
  const Tensor& cos_(Loc where = Loc::current()) const;
  const Tensor& erf_(Loc where = Loc::current()) const;
  const Tensor& log1p_(Loc where = Loc::current()) const;
  const Tensor& expm1_(Loc where = Loc::current()) const;
  const Tensor& sigmoid_(Loc where = Loc::current()) const;
  const Tensor& tanh_(Loc where = Loc::current()) const;
  const Tensor& clamp_min_(const Operand& min) const { return clamp_(min, {}, min.where); }
  const Tensor& clamp_max_(const Operand& max) const { return clamp_({}, max, max.where); }
  const Tensor& masked_fill_(const Tensor& mask, const Operand& value) const;
  const Tensor& index_fill_(int64_t dim, const Tensor& index, const Scalar& value, Loc where = Loc::current()) const;
  const Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha = 1,
                           Loc where = Loc::current()) const;
  const Tensor& scatter_(int64_t dim, const Tensor& index, const Operand& source) const;
  const Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& source, Loc where = Loc::current()) const;
  const Tensor& relu_(Loc where = Loc::current()) const;
  const Tensor& clamp_(std::optional<Operand> min, std::optional<Operand> max = {}, Loc where = Loc::current()) const;
  const Tensor& uniform_(double low = 0, double high = 1, Loc where = Loc::current()) const;
  const Tensor& normal_(double mean = 0, double std = 1, Loc where = Loc::current()) const;
  const Tensor& bernoulli_(double p = 0.5, Loc where = Loc::current()) const;
  /// Random integers in [low, high); low defaults to 0. Without bounds, the integers range from 0 to the largest value
  /// of the type; for a floating type, to the largest n such that the type represents every integer up to n.
  const Tensor& random_(Loc where = Loc::current()) const;
  const Tensor& random_(int64_t high, Loc where = Loc::current()) const { return random_(0, high, where); }
  const Tensor& random_(int64_t low, int64_t high, Loc where = Loc::current()) const;
  const Tensor& operator+=(const Operand& other) const { return add_(other); }
  const Tensor& operator-=(const Operand& other) const { return sub_(other); }
  const Tensor& operator*=(const Operand& other) const { return mul_(other); }
  const Tensor& operator/=(const Operand& other) const { return div_(other); }

  // ---- Reductions and linear algebra ----
  Tensor sum(std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  Tensor sum(IntArrayRef dim, bool keepdim = false, std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  Tensor mean(std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  Tensor mean(IntArrayRef dim, bool keepdim = false, std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  Tensor max(Loc where = Loc::current()) const;
  Tensor min(Loc where = Loc::current()) const;
  TensorPair max(int64_t dim, bool keepdim = false, Loc where = Loc::current()) const;
  TensorPair min(int64_t dim, bool keepdim = false, Loc where = Loc::current()) const;
  /// The element-wise maximum and minimum of two tensors.
  Tensor max(const Tensor& other, Loc where = Loc::current()) const { return maximum({other, where}); }
  Tensor min(const Tensor& other, Loc where = Loc::current()) const { return minimum({other, where}); }
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current()) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current()) const;
  Tensor all(std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current()) const;
  Tensor any(std::optional<int64_t> dim = {}, bool keepdim = false, Loc where = Loc::current()) const;
  Tensor amax(IntArrayRef dim = {}, bool keepdim = false, Loc where = Loc::current()) const;
  Tensor amin(IntArrayRef dim = {}, bool keepdim = false, Loc where = Loc::current()) const;
  Tensor prod(std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  Tensor prod(int64_t dim, bool keepdim = false, std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  /// The sum of squares is divided by the count minus `correction`, which is 1 unless given. true and false mean 1 and
  /// 0, as LibTorch's `unbiased`.
  Tensor var(IntArrayRef dim = {}, std::optional<Scalar> correction = {}, bool keepdim = false,
             Loc where = Loc::current()) const;
  Tensor std(IntArrayRef dim = {}, std::optional<Scalar> correction = {}, bool keepdim = false,
             Loc where = Loc::current()) const;
  Tensor var(Flag auto unbiased, Loc where = Loc::current()) const { return var({}, unbiased, false, where); }
  Tensor std(Flag auto unbiased, Loc where = Loc::current()) const { return std({}, unbiased, false, where); }
  Tensor norm(std::optional<Scalar> p = 2, IntArrayRef dim = {}, bool keepdim = false, std::optional<DType> dtype = {},
              Loc where = Loc::current()) const;
  Tensor norm(std::optional<Scalar> p, std::same_as<DType> auto dtype, Loc where = Loc::current()) const {
    return norm(p, {}, false, dtype, where);
  }
  Tensor logsumexp(IntArrayRef dim, bool keepdim = false, Loc where = Loc::current()) const;
  Tensor cumsum(int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  Tensor cumprod(int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  Tensor count_nonzero(IntArrayRef dim = {}, Loc where = Loc::current()) const;
  Tensor median(Loc where = Loc::current()) const;
  TensorPair median(int64_t dim, bool keepdim = false, Loc where = Loc::current()) const;
  TensorPair sort(int64_t dim = -1, bool descending = false, Loc where = Loc::current()) const;
  Tensor argsort(int64_t dim = -1, bool descending = false, Loc where = Loc::current()) const;
  /// Accepts LibTorch's `stable` and ignores it, because all sorts are stable.
  TensorPair sort(Flag auto, int64_t dim = -1, bool descending = false, Loc where = Loc::current()) const {
    return sort(dim, descending, where);
  }
  Tensor argsort(Flag auto, int64_t dim = -1, bool descending = false, Loc where = Loc::current()) const {
    return argsort(dim, descending, where);
  }
  TensorPair kthvalue(int64_t k, int64_t dim = -1, bool keepdim = false, Loc where = Loc::current()) const;
  TensorPair topk(int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true,
                  Loc where = Loc::current()) const;
  Tensor multinomial(int64_t num_samples, bool replacement = false, Loc where = Loc::current()) const;
  Tensor bmm(const Tensor& other, Loc where = Loc::current()) const;
  Tensor mv(const Tensor& vector, Loc where = Loc::current()) const;
  Tensor dot(const Tensor& other, Loc where = Loc::current()) const;
  Tensor outer(const Tensor& other, Loc where = Loc::current()) const;
  /// beta * this + alpha * a b
  Tensor addmm(const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1,
               Loc where = Loc::current()) const;
  Tensor baddbmm(const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1,
                 Loc where = Loc::current()) const;
  Tensor matmul(const Tensor& other, Loc where = Loc::current()) const;
  Tensor mm(const Tensor& other, Loc where = Loc::current()) const { return matmul(other, where); }
  /// If `dtype` is given, x is converted to it first.
  Tensor softmax(int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  Tensor log_softmax(int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current()) const;
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  /// True if sizes, dtype and all elements are equal.
  bool equal(const Tensor& other) const;

  /// The text that LibTorch prints for such a tensor.
  std::string str() const;
  std::string toString() const;  ///< device and element type, such as CPUFloatType

 private:
  /// This tensor as the left operand of a method call. It has no source line, which comes with the other operand.
  Operand self() const { return Operand(*this, Loc{}); }
  Scalar item_scalar(Loc where) const;
  Tensor view_as_type(DType dtype, Loc where) const;
  Ref<TensorImpl> impl_;
};

inline Tensor operator+(const Operand& a, const Operand& b) { return add(a, b); }
inline Tensor operator-(const Operand& a, const Operand& b) { return sub(a, b); }
inline Tensor operator*(const Operand& a, const Operand& b) { return mul(a, b); }
inline Tensor operator/(const Operand& a, const Operand& b) { return div(a, b); }
inline Tensor operator%(const Operand& a, const Operand& b) { return remainder(a, b); }
inline Tensor operator==(const Operand& a, const Operand& b) { return eq(a, b); }
inline Tensor operator!=(const Operand& a, const Operand& b) { return ne(a, b); }
inline Tensor operator<(const Operand& a, const Operand& b) { return lt(a, b); }
inline Tensor operator<=(const Operand& a, const Operand& b) { return le(a, b); }
inline Tensor operator>(const Operand& a, const Operand& b) { return gt(a, b); }
inline Tensor operator>=(const Operand& a, const Operand& b) { return ge(a, b); }
/// Logical on booleans, bitwise on integers.
inline Tensor operator&(const Operand& a, const Operand& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Operand& a, const Operand& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Operand& a, const Operand& b) { return bitwise_xor(a, b); }
inline Tensor operator~(const Tensor& a) { return bitwise_not(a, Loc{}); }
inline Tensor operator-(const Tensor& a) { return neg(a, Loc{}); }
inline Tensor operator!(const Tensor& a) { return logical_not(a, Loc{}); }

/// Prints tensors as LibTorch does.
std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);
std::ostream& operator<<(std::ostream& stream, const Dims& dims);
std::ostream& operator<<(std::ostream& stream, DType dtype);
std::ostream& operator<<(std::ostream& stream, Device device);

}  // namespace gradus
