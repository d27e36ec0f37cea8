// The convolution entries, which run the plan of select.h: half types are widened to float, weights made dense, and the
// relu of the fused forms is applied to sums in registers (forward) or while dy is laid out (backward).
#include <algorithm>

#include <gradus/backends/openmp/conv2d/conv2d_direct.h>
#include <gradus/backends/openmp/conv2d/conv2d_kernels.h>
#include <gradus/backends/openmp/conv2d/conv2d_pixels.h>
#include <gradus/backends/openmp/conv2d/conv2d_winograd.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/parallel.h>

namespace gradus {
namespace {

using openmp::ConvPlan;
using openmp::Images;

int64_t flops(const Shape& y, const Shape& w) { return 2 * y[0] * y[1] * y[2] * y[3] * w[1] * w[2] * w[3]; }

// A view of what a kernel reads: `dtype`, and contiguous if `dense`; a copy where the given view is not that.
class Input {
 public:
  Input(Backend& backend, const View& x, DType dtype, bool dense) : view_(x) {
    if (!x.data || !openmp::needs_copy(x, dtype, dense)) return;
    copy_ = Array::empty(x.shape, dtype, {}, openmp::copy_format(x, dense));
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
    if (!y.data || !openmp::needs_copy(y, dtype, dense)) return;
    copy_ = Array::empty(y.shape, dtype, {}, openmp::copy_format(y, dense));
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

// y from x.
template <class T>
void forward(const openmp::KernelTable& table, const ConvPlan& plan, const Images<const T>& x, const Images<const T>& w,
             const T* bias, bool relu, const Images<T>& y, const Conv2dGeometry& g) {
  using namespace openmp;
  using enum ConvAlgorithm;
  const Kernels<T>& kernels = kernels_of<T>(table);
  const auto& tiles = plan.tiles;
  if (std::holds_alternative<std::monostate>(tiles)) return;
  switch (plan.algorithm) {
    case implicit_gemm_nhwc: return convolve_pixels(kernels, std::get<NhwcTiles>(tiles), x, w, bias, relu, y, g);
    case implicit_gemm_nchw: return convolve(kernels, std::get<NchwTiles>(tiles), x, w, bias, relu, y, g);
    case direct: return convolve_directly(kernels, std::get<DirectTiles>(tiles), x, w, bias, relu, y, g);
    case depthwise: return convolve_depthwise(kernels, std::get<DepthwiseTiles>(tiles), x, w, bias, relu, y, g);
    case winograd_2x2:
    case winograd_4x4:
      if constexpr (std::is_same_v<T, float>)
        return convolve_winograd(table, std::get<WinogradTiles>(tiles), x, w, bias, relu, y, g);
  }
}

// dx from dy.
template <class T>
void backward_data(const openmp::KernelTable& table, const ConvPlan& plan, const Images<const T>& dy, const T* mask,
                   const Images<const T>& w, const Images<T>& dx, const Conv2dGeometry& g) {
  using namespace openmp;
  const Kernels<T>& kernels = kernels_of<T>(table);
  const auto& tiles = plan.tiles;
  if (std::holds_alternative<std::monostate>(tiles)) return;
  if (plan.algorithm == ConvAlgorithm::implicit_gemm_nhwc)
    return convolve_pixels_backward_data(kernels, std::get<NhwcTiles>(tiles), dy, mask, w, dx, g);
  if (plan.algorithm == ConvAlgorithm::implicit_gemm_nchw)
    return convolve_backward_data(kernels, std::get<NchwTiles>(tiles), dy, mask, w, dx, g);
  if constexpr (std::is_same_v<T, float>)
    convolve_winograd_backward_data(table, std::get<WinogradTiles>(tiles), dy, mask, w, dx, g);
}

// dw, and dbias if it is not null, from dy and x.
template <class T>
void backward_weight(const openmp::KernelTable& table, const ConvPlan& plan, const Images<const T>& dy, const T* mask,
                     const Images<const T>& x, const Images<T>& dw, T* dbias, const Conv2dGeometry& g) {
  using namespace openmp;
  const Kernels<T>& kernels = kernels_of<T>(table);
  const auto& tiles = plan.tiles;
  if (std::holds_alternative<std::monostate>(tiles)) return;
  if (plan.algorithm == ConvAlgorithm::implicit_gemm_nhwc)
    return convolve_pixels_backward_weight(kernels, std::get<NhwcWeightTiles>(tiles), dy, mask, x, dw, dbias, g);
  convolve_backward_weight(kernels, std::get<NchwWeightTiles>(tiles), dy, mask, x, dw, dbias, g);
}

// All gradients in one go.
template <class T>
void backward(const openmp::KernelTable& table, const ConvPlan& plan, const Images<const T>& dy, const T* mask,
              const Images<const T>& x, const Images<const T>& w, const openmp::ConvolutionGradients<T>& gradients,
              const Conv2dGeometry& g) {
  using namespace openmp;
  const Kernels<T>& kernels = kernels_of<T>(table);
  if (plan.algorithm == ConvAlgorithm::depthwise)
    return convolve_depthwise_backward(kernels, std::get<DepthwiseTiles>(plan.tiles), dy, x, w, gradients, g);
  convolve_directly_backward(kernels, std::get<DirectBackwardTiles>(plan.tiles), dy, mask, x, w, gradients, g);
}

const char* implementation(const openmp::KernelTable& table, const ConvPlan& plan) {
  return table.conv2d[static_cast<int>(plan.algorithm)];
}

openmp::ConvSettings current_settings() { return {openmp::kernel_table(), convolution_accuracy(), num_threads()}; }

}  // namespace

void OpenmpBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  conv2d_bias_relu({.x = x, .w = w, .geometry = geometry, .y = y});
}

void OpenmpBackend::conv2d_bias_relu(const Conv2dArgs& args) {
  const View &x = args.x, &w = args.w, &bias = args.bias;
  const MutableView& y = args.y;
  const openmp::ConvSettings settings = current_settings();
  const ConvPlan plan = select_conv2d(settings, x, w, if_present(bias), y, args.geometry);
  const DType dtype = openmp::wide(y.dtype);
  const Input in(*this, x, dtype, false), weights(*this, w, dtype, plan.dense_weights);
  const Input dense_bias(*this, bias, dtype, true);
  const Output out(*this, y, dtype, false);
  {
    EventScope event(args.relu ? "conv2d_bias_relu"
                     : bias    ? "conv2d_bias"
                               : "conv2d",
                     "openmp", implementation(settings.table, plan), {&x, &w, &y}, flops(y.shape, w.shape));
    visit_wide(dtype, [&]<class T> {
      forward<T>(settings.table, plan, in.images<T>(), weights.images<T>(), dense_bias.view().as<T>(), args.relu,
                 Images<T>(out.view()), args.geometry);
    });
  }
  out.finish();
}

void OpenmpBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                         const Conv2dGeometry& geometry) {
  conv2d_bias_relu_backward({.dy = dy, .x = dx, .w = w, .geometry = geometry, .dx = dx});
}

void OpenmpBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                           const Conv2dGeometry& geometry) {
  conv2d_bias_relu_backward({.dy = dy, .x = x, .w = dw, .geometry = geometry, .dw = dw});
}

void OpenmpBackend::conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) {
  const View &dy = args.dy, &x = args.x, &w = args.w, &y = args.y;
  const MutableView &dx = args.dx, &dw = args.dw, &dbias = args.dbias;
  const Conv2dGeometry& geometry = args.geometry;
  if (dbias && !dw) return Backend::conv2d_bias_relu_backward(args);
  const openmp::ConvSettings settings = current_settings();
  const openmp::ConvBackwardPlan plan =
      select_conv2d_backward(settings, dy, x, w, if_present(y), if_present(dx), if_present(dw), if_present(dbias),
                             geometry, static_cast<bool>(args.masked));
  const DType dtype = openmp::wide(dy.dtype);
  Array scratch;
  const Input in_gradient(*this, plan.masks_first ? masked_by_relu(dy, y, args.masked, scratch) : dy, dtype, false);
  const View& gradient = in_gradient.view();
  const void* const mask = plan.masks_first ? nullptr : y.data;
  if (plan.at_once) {
    const Input in(*this, dw ? x : View(), dtype, false), weights(*this, dx ? w : View(), dtype, true);
    const Output dx_out(*this, dx, dtype, false), dw_out(*this, dw, dtype, true), bias_out(*this, dbias, dtype, true);
    {
      EventScope event(!dw   ? "conv2d_backward_data"
                       : !dx ? "conv2d_backward_weight"
                             : "conv2d_backward",
                       "openmp", implementation(settings.table, plan.data), {&gradient, &x, &w},
                       (dx && dw ? 2 : 1) * flops(dy.shape, w.shape));
      visit_wide(dtype, [&]<class T> {
        backward<T>(
            settings.table, plan.data, Images<const T>(gradient), static_cast<const T*>(mask),
            images_or_sizes<const T>(in.view(), x), images_or_sizes<const T>(weights.view(), w),
            {images_or_sizes<T>(dx_out.view(), x), images_or_sizes<T>(dw_out.view(), w), bias_out.view().as<T>()},
            geometry);
      });
    }
    for (const Output* out : {&dx_out, &dw_out, &bias_out}) out->finish();
    return;
  }
  if (dx) {
    EventScope event("conv2d_backward_data", "openmp", implementation(settings.table, plan.data), {&dy, &w, &dx},
                     flops(dy.shape, w.shape));
    const Input weights(*this, w, dtype, plan.data.dense_weights);
    const Output out(*this, dx, dtype, false);
    visit_wide(dtype, [&]<class T> {
      backward_data<T>(settings.table, plan.data, Images<const T>(gradient), static_cast<const T*>(mask),
                       weights.images<T>(), Images<T>(out.view()), geometry);
    });
    out.finish();
  }
  if (dw) {
    EventScope event("conv2d_backward_weight", "openmp", implementation(settings.table, plan.weight), {&dy, &x, &dw},
                     flops(dy.shape, dw.shape));
    const Input in(*this, x, dtype, false);
    const Output out(*this, dw, dtype, plan.weight.dense_weights), bias_out(*this, dbias, dtype, true);
    visit_wide(dtype, [&]<class T> {
      backward_weight<T>(settings.table, plan.weight, Images<const T>(gradient), static_cast<const T*>(mask),
                         in.images<T>(), Images<T>(out.view()), bias_out.view().as<T>(), geometry);
    });
    out.finish();
    bias_out.finish();
  }
}

}  // namespace gradus
