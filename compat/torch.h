// LibTorch's names. With this header, everything in gradus is also in torch::. A LibTorch training program compiles
// without other changes if its line
//   #include <torch/torch.h>   is replaced by   #include <gradus/torch.h>
//
// This header is optional and takes longer to compile than gradus.h, which declares everything under gradus::. It adds
// the names that LibTorch spells differently: TORCH_MODULE and similar macros, torch::indexing, torch::save and
// torch::load of tensors and optimizers, at:: and c10::.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include <gradus/autograd/archive.h>
#include <gradus/data/stateful_dataset.h>
#include <gradus/gradus.h>
#include <gradus/layers/embedding.h>

namespace gradus {

namespace autograd {
using Variable = Tensor;
using tensor_list = TensorList;
using gradus::AutoGradMode;
using gradus::GradMode;
using gradus::InferenceMode;
using gradus::Node;
/// Returns a leaf that shares memory with `data`.
inline Tensor make_variable(const Tensor& data, bool requires_grad = false) {
  return data.detach().set_requires_grad(requires_grad);
}
/// Enables anomaly detection during its lifetime, or disables it if its argument is false.
using DetectAnomalyGuard = AnomalyGuard;
}  // namespace autograd

/// Prints a number. Integers have no decimal point.
inline std::ostream& operator<<(std::ostream& stream, const Scalar& number) {
  return number.is_floating() ? stream << number.to_double() : stream << number.to_int64();
}
inline std::ostream& operator<<(std::ostream& stream, const TensorOptions& options) {
  return stream << "TensorOptions(dtype=" << options.dtype() << ", device=" << options.device()
                << ", layout=Strided, requires_grad=" << (options.requires_grad() ? "true" : "false") << ")";
}
inline std::ostream& operator<<(std::ostream& stream, DeviceType type) { return stream << name(type); }
inline std::ostream& operator<<(std::ostream& stream, TensorLayout) { return stream << "Strided"; }
/// Prints the address, as LibTorch does for its shared_ptr<Node>.
inline std::ostream& operator<<(std::ostream& stream, const Ref<Node>& node) { return stream << node.get(); }

namespace cuda {
/// Returns true if convolutions on the GPU can use cuDNN.
inline bool cudnn_is_available() { return is_available() && cudnn::is_available(); }
}  // namespace cuda

namespace nn {
/// LibTorch's utilities for modules.
namespace utils {
/// Concatenates all parameters to one vector.
inline Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  TensorList flat;
  for (const Tensor& parameter : parameters) flat.push_back(parameter.reshape(-1));
  return cat(flat);
}
/// Sets the parameters to consecutive parts of the vector.
inline void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters) {
  int64_t at = 0;
  for (const Tensor& parameter : parameters) {
    const Tensor part = vector.detach().narrow(0, at, parameter.numel());
    parameter.set_data(part.reshape(parameter.sizes()).clone());
    at += parameter.numel();
  }
  GRADUS_CHECK(at == vector.numel(), ShapeError, "the parameters have ", at, " elements, the vector ", vector.numel());
}
}  // namespace utils
namespace functional {
/// LibTorch's overload, which takes `beta` as a separate argument.
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const SmoothL1LossFuncOptions& options, double beta,
                             Loc where = Loc::current()) {
  return gradus::smooth_l1_loss(x, target, options.reduction(), beta, where);
}
}  // namespace functional
}  // namespace nn

}  // namespace gradus

namespace torch {

using namespace gradus;

// These declarations make the names unambiguous inside this namespace, even if the program declares the same names
// globally before it includes this header.
using gradus::Loc;
using gradus::Operand;
using gradus::Pair;
using gradus::Scalar;
using gradus::Tensor;

using Dtype = DType;
using ScalarType = DType;
using Layout = TensorLayout;
using std::make_optional;
using std::make_unique;
using std::nullopt;
using std::nullopt_t;
using std::optional;

/// A non-owning list of numbers or objects, for function parameters. Accepts a vector, an array, a single element or a
/// braced list.
template <class T>
class ArrayRef : public std::span<const T> {
 public:
  ArrayRef() = default;
  ArrayRef(const T& one) : std::span<const T>(&one, 1) {}                                                // NOLINT
  ArrayRef(const T* data, size_t count) : std::span<const T>(data, count) {}                             // NOLINT
  ArrayRef(const std::vector<T>& list) requires(!std::is_same_v<T, bool>) : std::span<const T>(list) {}  // NOLINT
  ArrayRef(std::initializer_list<T> list) : std::span<const T>(list.begin(), list.size()) {}             // NOLINT
  template <size_t N>
  ArrayRef(const std::array<T, N>& list) : std::span<const T>(list) {}  // NOLINT
  template <size_t N>
  ArrayRef(const T (&list)[N]) : std::span<const T>(list, N) {}                                        // NOLINT
  ArrayRef(const Dims& dims) requires(std::is_same_v<T, int64_t>) : std::span<const T>(dims) {}        // NOLINT
  operator Dims() const requires(std::is_same_v<T, int64_t>) { return {this->data(), this->size()}; }  // NOLINT
  /// Returns an element. Throws an IndexError if there is none.
  const T& at(size_t i) const {
    GRADUS_CHECK(i < this->size(), IndexError, "at(", i, ") of a list of ", this->size());
    return (*this)[i];
  }
  /// Returns a part of the list, or everything from `first` on.
  ArrayRef slice(size_t first, size_t count) const { return {this->data() + first, count}; }
  ArrayRef slice(size_t first) const { return slice(first, this->size() - first); }
  /// Returns true if the elements are equal.
  bool equals(ArrayRef other) const { return std::ranges::equal(*this, other); }
  std::vector<T> vec() const { return {this->begin(), this->end()}; }  ///< a copy
  operator std::vector<T>() const { return vec(); }                    // NOLINT(google-explicit-constructor)
  friend bool operator==(ArrayRef a, ArrayRef b) { return a.equals(b); }
};
using gradus::tensor;
/// Makes a tensor from the list's elements.
template <class T>
Tensor tensor(ArrayRef<T> numbers, const TensorOptions& options = {}) {
  return gradus::detail::tensor_of(numbers.data(), static_cast<int64_t>(numbers.size()), dtype_of<T>, options);
}

/// The integers `first` … `last` - 1, for loops such as for (auto i : c10::irange(n)). A range is its own iterator,
/// which points to `first`.
template <std::integral T>
struct IntegerRange {
  IntegerRange begin() const { return *this; }       ///< points to `first`
  IntegerRange end() const { return {last, last}; }  ///< points to `last`, which is not in the range
  T operator*() const { return first; }
  IntegerRange& operator++() { return ++first, *this; }
  bool operator==(const IntegerRange&) const = default;

  T first, last;
};
/// first … last - 1; empty if `last` is smaller than `first`
template <std::integral F, std::integral L>
IntegerRange<L> irange(F first, L last) {
  return {std::min(static_cast<L>(first), last), last};
}
/// 0 … last - 1
template <std::integral T>
IntegerRange<T> irange(T last) {
  return irange(T{0}, last);
}

/// In LibTorch, these two functions convert between TypeMeta and ScalarType. In gradus, DType takes the place of both,
/// so the functions return their arguments.
inline DType typeMetaToScalarType(DType type) { return type; }
inline DType scalarTypeToTypeMeta(DType type) { return type; }  ///< returns its argument

/// LibTorch's spelling of the enumerators: torch::Reduction::Sum.
struct Reduction {
  static constexpr auto None = gradus::Reduction::none;
  static constexpr auto Mean = gradus::Reduction::mean;
  static constexpr auto Sum = gradus::Reduction::sum;
};

inline constexpr DType kF32 = kFloat32, kF64 = kFloat64, kF16 = kFloat16;
inline constexpr DType kI64 = kInt64, kI32 = kInt32, kU8 = kUInt8;

inline int get_num_threads() { return num_threads(); }

/// Concatenates all arguments as text.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream stream;
  (stream << ... << args);
  return std::move(stream).str();
}

/// D numbers, given as a list or as a single number for all of them: sizes, strides and padding in options.
template <size_t D, class T = int64_t>
class ExpandingArray {
 public:
  ExpandingArray(std::initializer_list<T> values) : ExpandingArray(std::vector<T>(values)) {}  // NOLINT
  ExpandingArray(const std::vector<T>& values) {                                               // NOLINT
    GRADUS_CHECK(values.size() == D, ValueError, "expected ", D, " numbers, got ", values.size());
    std::copy_n(values.begin(), D, values_.begin());
  }
  ExpandingArray(T value) { values_.fill(value); }                     // NOLINT(google-explicit-constructor)
  ExpandingArray(const std::array<T, D>& values) : values_(values) {}  // NOLINT(google-explicit-constructor)
  const std::array<T, D>& operator*() const { return values_; }
  const std::array<T, D>* operator->() const { return &values_; }
  size_t size() const { return D; }
  operator Pair() const requires(D == 2) { return {values_[0], values_[1]}; }  // NOLINT(google-explicit-constructor)
  operator IntArrayRef() const { return {values_.data(), D}; }                 // NOLINT(google-explicit-constructor)

 private:
  std::array<T, D> values_;
};

namespace indexing {
using gradus::Ellipsis;
using gradus::None;
using gradus::Slice;
using gradus::TensorIndex;
}  // namespace indexing

// ---- Operators with a different name in gradus ----

/// Normally distributed numbers. The mean and the standard deviation are tensors with a number for each element; one of
/// the two may be a single number.
inline Tensor normal(const Tensor& mean, const Tensor& std, Loc where = Loc::current()) {
  const NoGradGuard no_grad;
  const Tensor spread = std + zeros_like(mean);
  return gradus::randn_like(spread, {}, where) * spread + mean;
}
inline Tensor normal(const Tensor& mean, double std = 1, Loc where = Loc::current()) {
  const NoGradGuard no_grad;
  return gradus::randn_like(mean, {}, where) * std + mean;
}
inline Tensor normal(double mean, const Tensor& std, Loc where = Loc::current()) {
  const NoGradGuard no_grad;
  return gradus::randn_like(std, {}, where) * std + mean;
}
using gradus::normal;

inline Tensor constant_pad_nd(const Tensor& x, IntArrayRef padding, const Scalar& value = 0) {
  return gradus::pad(x, padding, kConstant, value.to_double());
}
inline Tensor reflection_pad1d(const Tensor& x, ExpandingArray<2> padding) { return gradus::pad(x, padding, kReflect); }
inline Tensor reflection_pad2d(const Tensor& x, ExpandingArray<4> padding) { return gradus::pad(x, padding, kReflect); }
inline Tensor replication_pad1d(const Tensor& x, ExpandingArray<2> padding) {
  return gradus::pad(x, padding, kReplicate);
}
inline Tensor replication_pad2d(const Tensor& x, ExpandingArray<4> padding) {
  return gradus::pad(x, padding, kReplicate);
}
/// Writes the result into `out`, which must have the result's shape.
inline const Tensor& add_out(const Tensor& out, const Tensor& a, const Tensor& b, const Scalar& alpha = 1) {
  return out.copy_(gradus::add(a, b, alpha));
}
inline Tensor divide(const Operand& a, const Operand& b, std::optional<std::string_view> rounding_mode = {}) {
  return gradus::div(a, b, rounding_mode);
}
inline Tensor frobenius_norm(const Tensor& x, IntArrayRef dim, bool keepdim = false) {
  return gradus::norm(x, 2, dim, keepdim);
}
/// A tensor without dimensions. Its type is that of `options`, by default the default type.
inline Tensor scalar_tensor(const Scalar& value, const TensorOptions& options = {}) {
  return gradus::full({}, value, options.dtype(options.dtype()));
}
/// Another name of cross_entropy.
inline Tensor cross_entropy_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                                 gradus::Reduction reduction = gradus::Reduction::mean, int64_t ignore_index = -100,
                                 double label_smoothing = 0) {
  return gradus::cross_entropy(x, target, weight, reduction, ignore_index, label_smoothing);
}
/// Interpolates to the given size (height, width).
inline Tensor upsample_nearest2d(const Tensor& x, IntArrayRef output_size) {
  return gradus::interpolate(x, output_size);
}
inline Tensor logsigmoid(const Tensor& x) { return gradus::log_sigmoid(x); }
/// Ignores dimensions of size 1 when it compares the shapes of x and target, like LibTorch's operator and unlike
/// F::binary_cross_entropy and BCELoss. This is a template so that an unqualified call in a program with `using
/// namespace torch` is not ambiguous: overload resolution prefers gradus::binary_cross_entropy(), because that is no
/// template.
template <class... Rest>
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, Rest&&... rest) {
  const bool fits = x.squeeze().sizes() == target.squeeze().sizes();
  return gradus::binary_cross_entropy(x, fits ? target.reshape(x.sizes()) : target, std::forward<Rest>(rest)...);
}
using gradus::cat;  // a using-declaration, so that unqualified calls are not ambiguous after `using namespace torch`
inline Tensor concat(const TensorList& tensors, int64_t dim = 0, Loc where = Loc::current()) {
  return gradus::cat(tensors, dim, where);
}

inline bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) {
  return a.allclose(b, rtol, atol, equal_nan);
}
inline bool equal(const Tensor& a, const Tensor& b) { return a.equal(b); }

// ---- Operators whose last argument in LibTorch is cudnn_enabled ----
//
// The argument is ignored, because the current backend chooses the kernel. Unlike in gradus, the running statistics of
// batch_norm and instance_norm come after weight and bias.

using gradus::batch_norm;
using gradus::group_norm;
using gradus::instance_norm;
using gradus::layer_norm;

inline Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                         const Tensor& running_var, bool training, double momentum, double eps, bool /*cudnn_enabled*/,
                         Loc where = Loc::current()) {
  return gradus::batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, {}, where);
}
inline Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                            const Tensor& running_var, bool use_input_stats, double momentum, double eps,
                            bool /*cudnn_enabled*/, Loc where = Loc::current()) {
  return gradus::instance_norm(x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps, {}, where);
}
inline Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight, const Tensor& bias,
                         double eps, bool /*cudnn_enabled*/, Loc where = Loc::current()) {
  return gradus::layer_norm(x, normalized_shape, weight, bias, eps, where);
}
inline Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps,
                         bool /*cudnn_enabled*/, Loc where = Loc::current()) {
  return gradus::group_norm(x, num_groups, weight, bias, eps, where);
}

// ---- Files, all in the safetensors format, which PyTorch can read from Python, too. ----

using gradus::load;
using gradus::save;

/// Saves to a file, a stream, or a function that receives bytes: a tensor under the name "tensor", the tensors of a
/// vector as "0", "1", …. A module, an optimizer (momenta, step counts, learning rates) and a sampler have their own
/// save(archive).
template <class T = std::vector<Tensor>, class To>  // the default is for calls such as save({a, b}, path)
void save(const T& value, To&& to) {
  serialize::OutputArchive archive;
  if constexpr (std::is_same_v<T, Tensor>) archive.write("tensor", value);
  else if constexpr (std::is_same_v<T, std::vector<Tensor>>)
    for (size_t i = 0; i < value.size(); ++i) archive.write(std::to_string(i), value[i]);
  else if constexpr (requires { value.save(archive); }) value.save(archive);
  else value->save(archive);
  archive.save_to(std::forward<To>(to));
}

/// Loads from a path, a stream, (bytes, count), or (function that reads bytes, function that returns the size). If a
/// device is given as an additional last argument, tensors and modules are moved to it. The state of an optimizer is
/// placed on the devices of its parameters.
template <class T, class... From>
void load(T& value, From&&... from) {
  serialize::InputArchive archive;
  archive.load_from(std::forward<From>(from)...);
  std::optional<Device> device;
  auto& last = std::get<sizeof...(From) - 1>(std::tie(from...));
  if constexpr (sizeof...(From) > 1 && std::is_convertible_v<decltype(last), std::optional<Device>>) device = last;
  if constexpr (std::is_same_v<T, Tensor>) {
    value = Tensor();
    archive.read("tensor", value);
  } else if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
    value.assign(archive.keys().size(), Tensor());
    for (size_t i = 0; i < value.size(); ++i) archive.read(std::to_string(i), value[i]);
  } else if constexpr (requires { value.load(archive); }) {
    value.load(archive);
  } else {
    value->load(archive);
    if constexpr (requires { value->to(*device); })
      if (device) value->to(*device);
  }
}
}  // namespace torch

namespace caffe2 {
/// Describes an element type.
struct TypeMeta {
  /// Returns the DType of elements of the C++ type T.
  template <class T>
  static gradus::DType Make() {
    return gradus::dtype_of<T>;
  }
};
}  // namespace caffe2

namespace c10 {
using namespace gradus;
using std::get;
using std::get_if;
using std::holds_alternative;
using std::make_optional;
using std::nullopt;
using std::nullopt_t;
using std::optional;
using std::string_view;
using std::variant;
using std::visit;
using DeviceIndex = int;
using ScalarType = gradus::DType;
using OptionalIntArrayRef = std::optional<gradus::IntArrayRef>;
using torch::ArrayRef;
using torch::irange;
using torch::str;
}  // namespace c10

namespace at {
using namespace gradus;  // LibTorch has all operators both in at:: and in torch::
using torch::ArrayRef;
using torch::batch_norm;
using torch::cross_entropy_loss;
using torch::group_norm;
using torch::instance_norm;
using torch::irange;
using torch::layer_norm;
using torch::normal;
using torch::Reduction;
using torch::tensor;
using torch::upsample_nearest2d;
using ScalarType = gradus::DType;
namespace indexing = torch::indexing;

/// LibTorch's process-wide switches, as far as gradus has them (core/runtime/cuda.h). In gradus cuDNN is deterministic
/// by default, in LibTorch only on request.
class Context {
 public:
  bool hasCUDA() const { return cuda::is_available(); }
  bool hasCuDNN() const { return cudnn::is_available(); }
  bool benchmarkCuDNN() const { return cudnn::benchmark(); }
  void setBenchmarkCuDNN(bool on) { cudnn::set_benchmark(on); }
  bool deterministicCuDNN() const { return cudnn::deterministic(); }
  void setDeterministicCuDNN(bool on) { cudnn::set_deterministic(on); }
  bool allowTF32CuDNN() const { return cudnn::allow_tf32(); }
  void setAllowTF32CuDNN(bool on) { cudnn::set_allow_tf32(on); }
  bool allowTF32CuBLAS() const { return cuda::matmul_allow_tf32(); }
  void setAllowTF32CuBLAS(bool on) { cuda::set_matmul_allow_tf32(on); }
  /// Same as deterministicCuDNN(), because all other kernels are deterministic anyway.
  bool deterministicAlgorithms() const { return cudnn::deterministic(); }
  /// Same as setDeterministicCuDNN().
  void setDeterministicAlgorithms(bool on, bool /*warn_only*/ = false) { cudnn::set_deterministic(on); }
  /// Does nothing: half types are always accumulated in float32.
  void setAllowFP16ReductionCuBLAS(bool /*on*/) {}
};
inline Context& globalContext() {
  static Context context;
  return context;
}
}  // namespace at

namespace std {  // LibTorch declares this operator in std, where lookup finds it for elements of every type
/// Prints the first hundred elements, separated by spaces.
template <class T>
ostream& operator<<(ostream& stream, const vector<T>& list) {  // NOLINT(cert-dcl58-cpp)
  for (size_t i = 0; i < list.size() && i < 100; ++i) stream << (i ? " " : "") << list[i];
  return list.size() > 100 ? stream << " ..." : stream;
}
}  // namespace std

// ---- TorchScript: gradus has none, so using one of these names is a compile error that says what to do instead ----

#define GRADUS_NO_TORCHSCRIPT \
  __attribute__(( \
      unavailable("gradus has no TorchScript: write the model with torch::nn and load its weights from " \
                  "a safetensors file (docs/guide/pytorch_weights.md)")))
namespace torch::jit {
struct GRADUS_NO_TORCHSCRIPT Module {};
struct GRADUS_NO_TORCHSCRIPT IValue {};
/// gradus has no TorchScript.
template <class... Args>
GRADUS_NO_TORCHSCRIPT int load(Args&&...);
namespace script {
struct GRADUS_NO_TORCHSCRIPT Module {};
}  // namespace script
}  // namespace torch::jit
namespace c10 {
struct GRADUS_NO_TORCHSCRIPT IValue {};
}  // namespace c10
#undef GRADUS_NO_TORCHSCRIPT

/// LibTorch marks symbols that a shared library exports with this macro. In gradus it is empty.
#define TORCH_API
/// Declares `Name`, the holder of `NameImpl`.
#define TORCH_MODULE(Name) GRADUS_MODULE(Name)
/// Declares a field of an options struct.
#define TORCH_ARG(T, name) GRADUS_ARG(T, name)
/// Unless the condition holds, throws a torch::Error whose message also contains the other arguments.
#define TORCH_CHECK(condition, ...) \
  GRADUS_CHECK(condition, Error, "Expected " #condition " to be true. " __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ERROR(...) GRADUS_FAIL(Error, __VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) GRADUS_CHECK(condition, IndexError, "" __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) GRADUS_CHECK(condition, ValueError, "" __VA_ARGS__)
/// TORCH_WARN prints a warning to stderr each time that the statement runs, TORCH_WARN_ONCE only the first time.
#define TORCH_WARN(...) \
  (std::cerr << "[W " __FILE__ << ":" << __LINE__ << "] Warning: " << ::torch::str(__VA_ARGS__) << "\n")
#define TORCH_WARN_ONCE(...) \
  do { [[maybe_unused]] static const bool warned = (TORCH_WARN(__VA_ARGS__), true); } while (false)
/// The version of LibTorch whose interface this header follows; gradus's own is GRADUS_VERSION_….
#define TORCH_VERSION_MAJOR 1
#define TORCH_VERSION_MINOR 13
#define TORCH_VERSION_PATCH 1
#define TORCH_VERSION "1.13.1"
/// LibTorch needs this macro for default arguments of forward(). In gradus it is empty.
#define FORWARD_HAS_DEFAULT_ARGS(...)
