// The convolution entries: half types are widened to float, weights made dense, and the relu of the fused forms is
// applied to sums in registers (forward) or while dy is laid out (backward).
#include <algorithm>

#include <gradus/backends/openmp/conv2d/conv2d_direct.h>
#include <gradus/backends/openmp/conv2d/conv2d_kernels.h>
#include <gradus/backends/openmp/conv2d/conv2d_pixels.h>
#include <gradus/backends/openmp/conv2d/conv2d_winograd.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using openmp::ConvolutionPass;
using openmp::Images;

int64_t flops(const Shape& y, const Shape& w) { return 2 * y[0] * y[1] * y[2] * y[3] * w[1] * w[2] * w[3]; }

bool has_channels_last(const StridedLayout& x) { return x.strides[1] == 1 && x.shape[1] > 1; }
MemoryFormat format_of(const StridedLayout& x) {
  return x.ndim() == 4 && has_channels_last(x) ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

// Dense planes for which it pays to put the channels last for a while.
bool has_small_planes(const StridedLayout& x) {
  return x.shape[1] >= 16 && x.shape[2] * x.shape[3] <= 400 && (x.shape[3] == 1 || x.strides[3] == 1) &&
         (x.shape[2] == 1 || x.strides[2] == x.shape[3]);
}

// The ways to compute a convolution, by the shape of its weights and the layout of its images.
enum class Method { implicit_gemm, stencil, depthwise };
Method method_of(const View& w, const Conv2dGeometry& geometry, std::initializer_list<const StridedLayout*> images) {
  const auto all = [&](auto&& has) {
    return std::all_of(images.begin(), images.end(), [&](auto* x) { return has(*x); });
  };
  if (w.shape[0] == geometry.groups && w.shape[1] == 1 && (all(has_channels_last) || all(has_small_planes)))
    return Method::depthwise;
  if (openmp::has_few_channels(w.shape, geometry)) return Method::stencil;
  return Method::implicit_gemm;
}
const char* name_of(Method method, const openmp::KernelTable& table) {
  return method == Method::implicit_gemm ? table.implicit_gemm : table.stencil;
}

// True for channels-last weights that are used as they lie: by the kernels over pixels, whose sums are vectors of
// `columns` channels.
bool stays_channels_last(const openmp::KernelTable& table, DType dtype, const StridedLayout& w, int64_t columns) {
  int64_t expected = 1;
  for (int axis : {1, 3, 2, 0}) {
    if (w.shape[axis] > 1 && w.strides[axis] != expected) return false;
    expected *= w.shape[axis];
  }
  return w.shape[1] > 1 &&
         (dtype == DType::f64 ? openmp::fills_vectors(table.f64, columns) : openmp::fills_vectors(table.f32, columns));
}

// A view of what a kernel reads: `dtype`, and contiguous if `dense`; a copy where the given view is not that.
class Input {
 public:
  Input(Backend& backend, const View& x, DType dtype, bool dense) : view_(x) {
    bool as_is = x.dtype == dtype || !x.data;
    int64_t expected = 1;
    for (int i = x.ndim() - 1; dense && i >= 0; expected *= x.shape[i--])
      as_is = as_is && (x.shape[i] == 1 || x.strides[i] == expected);
    if (as_is) return;
    copy_ = Array::empty(x.shape, dtype, {}, dense ? MemoryFormat::contiguous : format_of(x));
    backend.copy(x, copy_);
    view_ = copy_;
  }
  const View& view() const { return view_; }
  template <class T>
  Images<const T> images() const {
    return Images<const T>(view_);
  }

 private:
  Array copy_;
  View view_;
};

// What a kernel writes: the view itself, or memory that is copied to it by finish().
class Output {
 public:
  Output(Backend& backend, const MutableView& y, DType dtype, bool dense) : backend_(backend), target_(y), view_(y) {
    bool as_is = y.dtype == dtype || !y.data;
    int64_t expected = 1;
    for (int i = y.ndim() - 1; dense && i >= 0; expected *= y.shape[i--])
      as_is = as_is && (y.shape[i] == 1 || y.strides[i] == expected);
    if (as_is) return;
    copy_ = Array::empty(y.shape, dtype, {}, dense ? MemoryFormat::contiguous : format_of(y));
    view_ = copy_;
  }
  const MutableView& view() const { return view_; }
  void finish() const {
    if (copy_.defined()) backend_.copy(copy_, target_);
  }

 private:
  Backend& backend_;
  MutableView target_, view_;
  Array copy_;
};

bool same_layout(const View& a, const View& b) {
  for (int i = 0; i < a.ndim(); ++i)
    if (a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

constexpr DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// f.template operator()<T>() with T the type that `dtype` computes in.
template <class F>
void visit_wide(DType dtype, F&& f) {
  if (dtype == DType::f64) f.template operator()<double>();
  else f.template operator()<float>();
}

// The images of a view, or, where there is none, sizes like `like`'s without data.
template <class T, class AnyView>
Images<T> images_or_sizes(const AnyView& view, const StridedLayout& like) {
  if (view.data) return Images<T>(view);
  MutableView sizes;
  static_cast<StridedLayout&>(sizes) = like;
  return Images<T>(sizes);
}

// All gradients in one go.
void backward_at_once(Backend& backend, Method method, const Input& dy, const View* mask, const View& x, const View& w,
                      const MutableView* dx, const MutableView* dw, const MutableView* dbias,
                      const Conv2dGeometry& geometry) {
  const openmp::KernelTable& table = openmp::kernel_table();
  const DType dtype = wide(dy.view().dtype);  // a dy without images stays what it is
  const Input in(backend, dw ? x : View(), dtype, false), weights(backend, dx ? w : View(), dtype, true);
  const Output dx_out(backend, dx ? *dx : MutableView(), dtype, false);
  const Output dw_out(backend, dw ? *dw : MutableView(), dtype, true);
  const Output dbias_out(backend, dbias ? *dbias : MutableView(), dtype, true);
  {
    EventScope event(!dw   ? "conv2d_backward_data"
                     : !dx ? "conv2d_backward_weight"
                           : "conv2d_backward",
                     "openmp", table.stencil, {&dy.view(), &x, &w},
                     (dx && dw ? 2 : 1) * flops(dy.view().shape, w.shape));
    visit_wide(dtype, [&]<class T> {
      const Images<const T> images = images_or_sizes<const T>(in.view(), x);
      const Images<const T> filters = images_or_sizes<const T>(weights.view(), w);
      const openmp::ConvolutionGradients<T> gradients{images_or_sizes<T>(dx_out.view(), x),
                                                      images_or_sizes<T>(dw_out.view(), w),
                                                      dbias ? dbias_out.view().as<T>() : nullptr};
      if (method == Method::depthwise)
        openmp::convolve_depthwise_backward<T>(table, dy.images<T>(), images, filters, gradients, geometry);
      else
        openmp::convolve_directly_backward<T>(table, dy.images<T>(), mask ? mask->as<T>() : nullptr, images, filters,
                                              gradients, geometry);
    });
  }
  for (const Output* out : {&dx_out, &dw_out, &dbias_out}) out->finish();
}

// Which kernels sum up `columns` channels of a group: over pixels where those fill vectors, else over planes.
template <class T>
void forward(const openmp::KernelTable& table, const Images<const T>& x, const Images<const T>& w, const T* bias,
             bool relu, const Images<T>& y, const Conv2dGeometry& geometry) {
  const openmp::Kernels<T>& kernels = openmp::kernels_of<T>(table);
  if (openmp::fills_vectors(kernels, w.N / geometry.groups))
    openmp::convolve_pixels(kernels, x, w, bias, relu, y, geometry);
  else openmp::convolve(table, x, w, bias, relu, y, geometry);
}

template <class T>
void backward_data(const openmp::KernelTable& table, const Images<const T>& dy, const T* mask, const Images<const T>& w,
                   const Images<T>& dx, const Conv2dGeometry& geometry) {
  const openmp::Kernels<T>& kernels = openmp::kernels_of<T>(table);
  if (openmp::fills_vectors(kernels, w.C)) openmp::convolve_pixels_backward_data(kernels, dy, mask, w, dx, geometry);
  else openmp::convolve_backward_data(table, dy, mask, w, dx, geometry);
}

template <class T>
void backward_weight(const openmp::KernelTable& table, const Images<const T>& dy, const T* mask,
                     const Images<const T>& x, const Images<T>& dw, T* dbias, const Conv2dGeometry& geometry) {
  const openmp::Kernels<T>& kernels = openmp::kernels_of<T>(table);
  if (openmp::fills_vectors(kernels, dw.N / geometry.groups))
    openmp::convolve_pixels_backward_weight(kernels, dy, mask, x, dw, dbias, geometry);
  else openmp::convolve_backward_weight(table, dy, mask, x, dw, dbias, geometry);
}

}  // namespace

void OpenmpBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  conv2d_bias_relu(x, w, nullptr, false, y, geometry);
}

void OpenmpBackend::conv2d_bias_relu(const View& x, const View& w, const View* bias, bool relu, const MutableView& y,
                                     const Conv2dGeometry& geometry) {
  const openmp::KernelTable& table = openmp::kernel_table();
  const DType dtype = wide(y.dtype);
  const Input in(*this, x, dtype, false);
  const Input dense_bias(*this, bias ? *bias : View(), dtype, true);
  const Output out(*this, y, dtype, false);
  const Method method = method_of(w, geometry, {&in.view(), &out.view()});
  const openmp::WinogradKernels* winograd =
      method == Method::implicit_gemm
          ? openmp::faster_winograd(table, ConvolutionPass::forward, dtype, x.shape, w.shape, y.shape, geometry)
          : nullptr;
  const bool dense_weights = method != Method::implicit_gemm || winograd ||
                             !stays_channels_last(table, dtype, w, w.shape[0] / geometry.groups);
  const Input weights(*this, w, dtype, dense_weights);
  {
    EventScope event(relu   ? "conv2d_bias_relu"
                     : bias ? "conv2d_bias"
                            : "conv2d",
                     "openmp", winograd ? winograd->name : name_of(method, table), {&x, &w, &y},
                     flops(y.shape, w.shape));
    if (winograd)
      openmp::convolve_winograd(table, *winograd, in.images<float>(), weights.images<float>(),
                                bias ? dense_bias.view().as<float>() : nullptr, relu, Images<float>(out.view()),
                                geometry);
    else
      visit_wide(dtype, [&]<class T> {
        const auto run = method == Method::stencil     ? openmp::convolve_directly<T>
                         : method == Method::depthwise ? openmp::convolve_depthwise<T>
                                                       : forward<T>;
        run(table, in.images<T>(), weights.images<T>(), bias ? dense_bias.view().as<T>() : nullptr, relu,
            Images<T>(out.view()), geometry);
      });
  }
  out.finish();
}

void OpenmpBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                         const Conv2dGeometry& geometry) {
  conv2d_bias_relu_backward(dy, dx, w, nullptr, &dx, nullptr, nullptr, geometry, nullptr);
}

void OpenmpBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                           const Conv2dGeometry& geometry) {
  conv2d_bias_relu_backward(dy, x, dw, nullptr, nullptr, &dw, nullptr, geometry, nullptr);
}

void OpenmpBackend::conv2d_bias_relu_backward(const View& dy, const View& x, const View& w, const View* y_if_relu,
                                              const MutableView* dx, const MutableView* dw, const MutableView* dbias,
                                              const Conv2dGeometry& geometry, const MutableView* masked) {
  const openmp::KernelTable& table = openmp::kernel_table();
  if (dbias && !dw) return Backend::conv2d_bias_relu_backward(dy, x, w, y_if_relu, dx, dw, dbias, geometry, masked);
  const DType dtype = wide(dy.dtype);
  const Method method = method_of(w, geometry, {&dy, &x, dx ? static_cast<const StridedLayout*>(dx) : &x});
  Array scratch;
  View gradient = dy;
  if (y_if_relu && (dy.dtype != dtype || !same_layout(dy, *y_if_relu) || method == Method::depthwise)) {
    gradient = masked_by_relu(dy, *y_if_relu, masked, scratch);
    y_if_relu = nullptr;
  }
  const Input in_gradient(*this, gradient, dtype, false);
  if (method != Method::implicit_gemm)
    return backward_at_once(*this, method, in_gradient, y_if_relu, x, w, dx, dw, dbias, geometry);
  if (dx) {
    const openmp::WinogradKernels* winograd =
        openmp::faster_winograd(table, ConvolutionPass::backward_data, dtype, dx->shape, w.shape, dy.shape, geometry);
    EventScope event("conv2d_backward_data", "openmp", winograd ? winograd->name : table.implicit_gemm, {&dy, &w, dx},
                     flops(dy.shape, w.shape));
    const Input weights(*this, w, dtype, winograd || !stays_channels_last(table, dtype, w, w.shape[1]));
    const Output out(*this, *dx, dtype, false);
    if (winograd)
      openmp::convolve_winograd_backward_data(table, *winograd, in_gradient.images<float>(),
                                              y_if_relu ? y_if_relu->as<float>() : nullptr, weights.images<float>(),
                                              Images<float>(out.view()), geometry);
    else
      visit_wide(dtype, [&]<class T> {
        backward_data<T>(table, in_gradient.images<T>(), y_if_relu ? y_if_relu->as<T>() : nullptr, weights.images<T>(),
                         Images<T>(out.view()), geometry);
      });
    out.finish();
  }
  if (dw) {
    EventScope event("conv2d_backward_weight", "openmp", table.implicit_gemm, {&dy, &x, dw},
                     flops(dy.shape, dw->shape));
    const Input in(*this, x, dtype, false);
    const Output out(*this, *dw, dtype, !stays_channels_last(table, dtype, *dw, dw->shape[0] / geometry.groups));
    const Output bias_out(*this, dbias ? *dbias : MutableView(), dtype, true);
    visit_wide(dtype, [&]<class T> {
      backward_weight<T>(table, in_gradient.images<T>(), y_if_relu ? y_if_relu->as<T>() : nullptr, in.images<T>(),
                         Images<T>(out.view()), dbias ? bias_out.view().as<T>() : nullptr, geometry);
    });
    out.finish();
    if (dbias) bias_out.finish();
  }
}

}  // namespace gradus
