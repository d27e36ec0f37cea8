// Descriptor: an object of cuDNN's graph interface, which has typed attributes. Its attributes are set first;
// finalize() then freezes them, after which other descriptors can refer to the object.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradus/backends/cudnn/library.h>

namespace gradus::cudnn_detail {

// cuDNN's enumerator for the type of an attribute.
constexpr auto attribute_type(bool) { return CUDNN_TYPE_BOOLEAN; }
constexpr auto attribute_type(int64_t) { return CUDNN_TYPE_INT64; }
constexpr auto attribute_type(float) { return CUDNN_TYPE_FLOAT; }
constexpr auto attribute_type(double) { return CUDNN_TYPE_DOUBLE; }
constexpr auto attribute_type(void*) { return CUDNN_TYPE_VOID_PTR; }
constexpr auto attribute_type(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
constexpr auto attribute_type(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
constexpr auto attribute_type(cudnnConvolutionMode_t) { return CUDNN_TYPE_CONVOLUTION_MODE; }
constexpr auto attribute_type(cudnnPointwiseMode_t) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr auto attribute_type(cudnnNanPropagation_t) { return CUDNN_TYPE_NAN_PROPOGATION; }
constexpr auto attribute_type(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }
constexpr auto attribute_type(cudnnBackendNumericalNote_t) { return CUDNN_TYPE_NUMERICAL_NOTE; }

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    GRADUS_CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &handle_));
  }
  ~Descriptor() {
    if (handle_) cudnnBackendDestroyDescriptor(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  cudnnBackendDescriptor_t get() const { return handle_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, const T& value) {
    set(name, attribute_type(T()), 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.handle_);
  }
  template <class T>
  void set_all(cudnnBackendAttributeName_t name, std::span<const T> values) {
    set(name, attribute_type(T()), values.size(), values.data());
  }
  void set_all(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& others) {
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const Descriptor& other : others) handles.push_back(other.handle_);
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.size(), handles.data());
  }

  /// Freezes the attributes. Returns false if they describe something that cuDNN does not support.
  [[nodiscard]] bool finalize() {
    const cudnnStatus_t status = cudnnBackendFinalize(handle_);
    if (is_unsupported(status)) return false;
    check("cudnnBackendFinalize", status);
    return true;
  }

  /// Up to `most` values of an attribute that cuDNN sets.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name, int64_t most) const {
    std::vector<T> found(static_cast<size_t>(most));
    int64_t count = 0;
    GRADUS_CUDNN_CHECK(cudnnBackendGetAttribute(handle_, name, attribute_type(T()), most, &count, found.data()));
    found.resize(static_cast<size_t>(std::min(count, most)));
    return found;
  }
  /// The number of descriptors in an attribute. parts() returns the first `count` of them; their type is `type`.
  int64_t count_parts(cudnnBackendAttributeName_t name) const {
    int64_t count = 0;
    GRADUS_CUDNN_CHECK(cudnnBackendGetAttribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    return count;
  }
  std::vector<Descriptor> parts(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                int64_t count) const {
    std::vector<Descriptor> found;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < count; ++i) handles.push_back(found.emplace_back(type).handle_);
    int64_t filled = 0;
    GRADUS_CUDNN_CHECK(
        cudnnBackendGetAttribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &filled, handles.data()));
    while (static_cast<int64_t>(found.size()) > filled) found.pop_back();
    return found;
  }

 private:
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t count, const void* values) {
    GRADUS_CUDNN_CHECK(cudnnBackendSetAttribute(handle_, name, type, static_cast<int64_t>(count), values));
  }

  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace gradus::cudnn_detail
