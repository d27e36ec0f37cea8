// Views: the form in which kernels receive arrays. A view owns nothing and is cheap to copy.
#pragma once

#include <type_traits>

#include <gradus/core/array/array.h>

namespace gradus {

/// Dtype, device, shape and strides of the elements.
struct StridedLayout {
  DType dtype = DType::f32;
  Device device;
  Shape shape;
  Strides strides;

  StridedLayout() = default;
  explicit StridedLayout(const Array& x)
      : dtype(x.dtype()), device(x.device()), shape(x.shape()), strides(x.strides()) {}
  int ndim() const { return shape.size(); }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t size : shape) n *= size;
    return n;
  }
};

/// Read-only view of an array's elements. An absent operand is passed as an empty view, View() or the view of an
/// undefined array, which converts to false; the view of a zero-size array converts to true.
struct View : StridedLayout {
  const void* data = nullptr;

  View() = default;
  View(const Array& x) : StridedLayout(x), data(x.data()) {}
  View(const StridedLayout& layout, const void* data_) : StridedLayout(layout), data(data_) {}
  explicit operator bool() const { return data || ndim() > 0; }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

/// View of an array that a kernel writes. Converts to a read-only view.
struct MutableView : StridedLayout {
  void* data = nullptr;

  MutableView() = default;
  MutableView(const Array& x) : StridedLayout(x), data(x.data()) {}
  explicit operator bool() const { return data || ndim() > 0; }
  operator View() const { return View(*this, data); }  // NOLINT(google-explicit-constructor)
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Address of the view; null if the operand is absent.
template <class AnyView>
const AnyView* if_present(const AnyView& view) {
  return view ? &view : nullptr;
}

/// A view of the elements [start, start + length) along an axis.
template <class AnyView>
AnyView narrow(AnyView view, int axis, int64_t start, int64_t length) {
  using Byte = std::conditional_t<std::is_same_v<AnyView, View>, const char, char>;
  const int64_t bytes = start * view.strides[axis] * static_cast<int64_t>(size_of(view.dtype));
  if (view.data) view.data = static_cast<Byte*>(view.data) + bytes;
  view.shape[axis] = length;
  return view;
}

}  // namespace gradus
