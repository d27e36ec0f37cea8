// LibTorch's names: with this header, torch:: is gradus, and a LibTorch training program compiles as it stands when
//   #include <torch/torch.h>   becomes   #include <gradus/torch.h>
//
// Opt-in and heavier than gradus.h, which has everything under gradus:: already. Besides the names themselves it has
// what LibTorch has and gradus spells otherwise: TORCH_MODULE and its like, torch::indexing, torch::save and
// torch::load of tensors and optimizers, at:: and c10::.
#pragma once

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
#include <vector>

#include <gradus/autograd/archive.h>
#include <gradus/data/stateful_dataset.h>
#include <gradus/gradus.h>
#include <gradus/layers/rare_layers.h>

namespace gradus {

namespace autograd {
using Variable = Tensor;
using tensor_list = TensorList;
using gradus::AutoGradMode;
using gradus::GradMode;
}  // namespace autograd

/// The number, a whole one without a point.
inline std::ostream& operator<<(std::ostream& stream, const Scalar& number) {
  return number.is_floating() ? stream << number.to_double() : stream << number.to_int64();
}
/// The address, as of the shared_ptr that LibTorch has here.
inline std::ostream& operator<<(std::ostream& stream, const Ref<Node>& node) { return stream << node.get(); }

namespace nn {
/// LibTorch's utilities for modules.
namespace utils {
/// The parameters as one vector, and back.
inline Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  TensorList flat;
  for (const Tensor& parameter : parameters) flat.push_back(parameter.reshape(-1));
  return cat(flat);
}
inline void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters) {
  int64_t at = 0;
  for (const Tensor& parameter : parameters) {
    parameter.set_data(vector.detach().narrow(0, at, parameter.numel()).reshape(parameter.sizes()).clone());
    at += parameter.numel();
  }
  GRADUS_CHECK(at == vector.numel(), ShapeError, "the parameters have ", at, " elements, the vector ", vector.numel());
}
}  // namespace utils
}  // namespace nn

}  // namespace gradus

namespace torch {

using namespace gradus;

// Names that std has too are named here, so that they are found where both namespaces are used.
using gradus::Tensor;

using Dtype = DType;
using ScalarType = DType;
using std::make_optional;
using std::nullopt;
using std::nullopt_t;
using std::optional;

/// torch::Reduction::Sum is an enumerator in LibTorch's own spelling.
struct Reduction {
  static constexpr gradus::Reduction None = gradus::Reduction::none, Mean = gradus::Reduction::mean,
                                     Sum = gradus::Reduction::sum;
};

inline constexpr DType kF32 = kFloat32, kF64 = kFloat64, kF16 = kFloat16, kI64 = kInt64, kI32 = kInt32, kU8 = kUInt8;

inline int get_num_threads() { return num_threads(); }

/// All arguments printed one after the other.
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream stream;
  (stream << ... << args);
  return std::move(stream).str();
}

/// D numbers, or one for all of them: sizes, strides and padding in options.
template <size_t D, class T = int64_t>
class ExpandingArray {
 public:
  ExpandingArray(std::initializer_list<T> values) : ExpandingArray(std::vector<T>(values)) {}  // NOLINT
  ExpandingArray(const std::vector<T>& values) {                                               // NOLINT
    GRADUS_CHECK(values.size() == D, ValueError, "expected ", D, " numbers, got ", values.size());
    for (size_t i = 0; i < D; ++i) values_[i] = values[i];
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

// ---- Operators that gradus has under another name ----

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
/// Written into a tensor that has the result's shape.
inline const Tensor& add_out(const Tensor& out, const Tensor& a, const Tensor& b, const Scalar& alpha = 1) {
  return out.copy_(gradus::add(a, b, alpha));
}
inline Tensor divide(const Operand& a, const Operand& b, std::optional<std::string_view> rounding_mode = {}) {
  return gradus::div(a, b, rounding_mode);
}
inline Tensor frobenius_norm(const Tensor& x, IntArrayRef dim, bool keepdim = false) {
  return gradus::norm(x, 2, dim, keepdim);
}
inline Tensor logsigmoid(const Tensor& x) { return gradus::log_sigmoid(x); }
/// LibTorch's operator overlooks dimensions of one in the target's shape; F::binary_cross_entropy and BCELoss do not. A
/// template, so that a program with `using namespace torch` may leave out torch::.
template <class... Rest>
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, Rest&&... rest) {
  const bool fits = x.squeeze().sizes() == target.squeeze().sizes();
  return gradus::binary_cross_entropy(x, fits ? target.reshape(x.sizes()) : target, std::forward<Rest>(rest)...);
}
using gradus::cat;  // the same function, so that a program with `using namespace torch` may leave out torch::
inline Tensor concat(const TensorList& tensors, int64_t dim = 0, Loc where = Loc::current()) {
  return gradus::cat(tensors, dim, where);
}

inline bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) {
  return a.allclose(b, rtol, atol, equal_nan);
}
inline bool equal(const Tensor& a, const Tensor& b) { return a.equal(b); }

// ---- Operators that end in a choice between cuDNN and others, which the current backend makes here; LibTorch has the
// running statistics of batch_norm and instance_norm behind weight and bias. ----

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

// ---- Files. All are safetensors, which PyTorch's Python side reads too. ----

using gradus::load;
using gradus::save;

namespace detail {

/// What is written of a value: a tensor as "tensor", a vector of them as "0", "1", …; a module, an optimizer (momenta,
/// step counts, learning rates) or a sampler writes itself.
template <class T>
void write(serialize::OutputArchive& archive, const T& value) {
  if constexpr (std::is_same_v<T, Tensor>) archive.write("tensor", value);
  else if constexpr (std::is_same_v<T, std::vector<Tensor>>)
    for (size_t i = 0; i < value.size(); ++i) archive.write(std::to_string(i), value[i]);
  else if constexpr (requires { value.save(archive); }) value.save(archive);
  else value->save(archive);
}

template <class T>
void read(serialize::InputArchive& archive, T& value, std::optional<Device> device) {
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

}  // namespace detail

/// To a file, a stream or a function that takes bytes.
template <class T, class To>
void save(const T& value, To&& to) {
  serialize::OutputArchive archive;
  detail::write(archive, value);
  archive.save_to(std::forward<To>(to));
}

template <class To>
void save(const std::vector<Tensor>& value, To&& to) {  // so that braces will do
  serialize::OutputArchive archive;
  detail::write(archive, value);
  archive.save_to(std::forward<To>(to));
}

/// From a path, a stream, (bytes, count) or (function that gives bytes, function that tells how many). A device behind
/// these is where tensors and modules are afterwards; an optimizer's state goes where its parameters are.
template <class T, class... From>
void load(T& value, From&&... from) {
  serialize::InputArchive archive;
  archive.load_from(std::forward<From>(from)...);
  std::optional<Device> device;
  if constexpr (sizeof...(From) > 1)
    if constexpr (std::is_convertible_v<decltype(std::get<sizeof...(From) - 1>(std::tie(from...))),
                                        std::optional<Device>>)
      device = std::get<sizeof...(From) - 1>(std::tie(from...));
  detail::read(archive, value, device);
}
}  // namespace torch

namespace c10 {
using gradus::Device;
using gradus::DeviceType;
using gradus::Error;
using gradus::InferenceMode;
using gradus::IntArrayRef;
using gradus::Scalar;
using std::make_optional;
using std::nullopt;
using std::nullopt_t;
using std::optional;
using ScalarType = gradus::DType;
using torch::str;
}  // namespace c10

namespace at {
using namespace gradus;  // operators are in both places in LibTorch too
using torch::batch_norm;
using torch::group_norm;
using torch::instance_norm;
using torch::layer_norm;
using torch::Reduction;
using ScalarType = gradus::DType;
namespace indexing = torch::indexing;

/// The switches of the process that gradus has too, in core/cuda.h and core/cudnn.h. LibTorch's cuDNN is not
/// deterministic unless asked to be; gradus's is.
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
};
inline Context& globalContext() {
  static Context context;
  return context;
}
}  // namespace at

/// Declares `Name`, the holder of `NameImpl`.
#define TORCH_MODULE(Name) GRADUS_MODULE(Name)
/// A field of an options struct.
#define TORCH_ARG(T, name) GRADUS_ARG(T, name)
/// Throws torch::Error with the other arguments unless the condition holds.
#define TORCH_CHECK(condition, ...) \
  GRADUS_CHECK(condition, Error, "Expected " #condition " to be true. " __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ERROR(...) GRADUS_FAIL(Error, __VA_ARGS__)
/// LibTorch must be told of default arguments of forward; here nothing is to be said.
#define FORWARD_HAS_DEFAULT_ARGS(...)
