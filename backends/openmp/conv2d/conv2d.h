// The problems and plans of convolutions. conv2d.cpp, which has the backend's methods, describes a call as problems;
// select() chooses an algorithm and its plan for each. The algorithms are descriptors (core/kernel_choice.h) in
// conv2d_direct.cpp, conv2d_nhwc.cpp and conv2d_nhwc_weight.cpp. tests/backends/conv2d_decisions.txt lists the plans of
// common layers.
#pragma once

#include <tuple>
#include <variant>

#include <gradus/backends/openmp/conv2d/nchw.h>
#include <gradus/backends/openmp/simd/tuning.h>

namespace gradus::openmp_detail {

/// `gradients` computes dx and dw (and dbias) in one pass over dy.
enum class ConvPass : uint8_t { fprop, dgrad, wgrad, gradients };

/// One kernel call. Forward, `in` is x and `out` is y; otherwise `in` is dy, and `out` is x or dx. `w` is w or dw.
struct ConvProblem {
  const KernelTable* table = nullptr;  ///< the kernels for an instruction set
  int threads = 1;                     ///< affects only `workspace_bytes` of the plan
  ConvPass pass = ConvPass::fprop;
  DType dtype = DType::f32;  ///< type of the computation
  ImageLayout in, w, out;
  Conv2dGeometry g = {};
  bool mask = false;          ///< elements of `in` are used only where y > 0 and replaced by 0 elsewhere
  bool filters_last = false;  ///< w is channels-last; some algorithms can use this layout without a copy

  bool operator==(const ConvProblem& other) const;
  bool backward() const { return pass != ConvPass::fprop; }
  bool has_dx() const { return pass == ConvPass::dgrad || pass == ConvPass::gradients; }
  bool has_dw() const { return pass == ConvPass::wgrad || pass == ConvPass::gradients; }
  Registers tile() const { return registers(*table, dtype); }
  int64_t element() const { return static_cast<int64_t>(size_of(dtype)); }
  int64_t threads_of(int64_t chunks) const { return std::min<int64_t>(threads, chunks); }
  /// The axes of `out`; wgrad: of dx.
  std::vector<WindowAxis> axes(int axis) const {
    return conv_axes(backward(), g, axis, out.size(axis), in.size(axis), w.size(axis));
  }
  /// The number of pairs of a row (column) of y and a tap that is inside the image for it.
  int64_t pairs_along(int axis) const;
  /// The number of multiply-adds of one pass for one channel and one filter.
  double pairs() const { return number(in.N * pairs_along(0) * pairs_along(1)); }
  double w_elements() const { return number(w.numel()); }

  // For KernelFamily.
  size_t device_index() const { return static_cast<size_t>(table->isa); }
  size_t kind() const {
    return (dtype == DType::f64 ? 3 : 0) + (pass == ConvPass::gradients ? 2 : pass == ConvPass::wgrad ? 1 : 0);
  }
};

/// Channels of a tile of filters whose weights are packed together, or whose gradients are summed together.
constexpr int64_t kPackedChannels = 32;

/// y from x, or dx from dy, by implicit_gemm_nhwc or depthwise. A part is some images, or a band of rows of one image,
/// and some tiles of filters. Rows are counted within a pass.
struct NhwcTiles {
  int64_t images, rows, filter_tiles;    ///< numbers of images, of rows and of tiles of filters in a part
  int64_t bands, filter_parts, parts;    ///< bands of an image; parts into which filters are divided; total of parts
  int64_t least, most;                   ///< range of rows that the taps read, relative to an output pixel
  int64_t depth;                         ///< maximum number of rows of a block of the weights
  int64_t pack_size, in_size, out_size;  ///< elements of scratch memory for each thread
};

/// dw by implicit_gemm_nhwc or depthwise. An item is some images, or a band of rows of one image, that are loaded
/// together. A block of an item is processed for all taps. A part sums some items for some tiles of filters.
struct NhwcWeightTiles {
  bool joins_taps;  ///< a register tile combines the channels of several taps
  int64_t item_images, item_rows, bands, items;
  int64_t block_images, block_rows;
  int64_t filter_tiles, filter_parts;  ///< tiles of filters in a part; parts into which filters are divided
  int64_t items_in_part, parts;        ///< items in a part; parts into which items are divided, with separate sums
  int64_t sums_size, bias_sums_size;   ///< elements of scratch memory that all threads share
  int64_t x_size, dy_size, total_size, by_channel_size;  ///< elements of scratch memory for each thread
};

/// y, or all gradients, by direct. An item is a band of rows of one image: of y, or of dy and the passes of dx.
struct DirectTiles {
  PlaneLayout in, x;           ///< planes of a group of an item: those from which y (dx) is computed, and x for dw
  int64_t band, bands, items;  ///< rows of a band; bands of an image; items of the batch
  int64_t items_in_part, parts, grain;               ///< items of a part; parts of a group; parts of a parallel chunk
  int64_t partial_size, weights_size;                ///< elements of scratch memory that all threads share
  int64_t in_size, x_size, sums_size, vectors_size;  ///< elements of scratch memory for each thread
};

struct ConvPlan;
template <class T>
struct ConvOperands;
template <class T>
using ConvRun = void (*)(const ConvPlan& plan, const ConvOperands<T>& operands);
/// The functions that run a plan, one for each type.
using ConvLaunch = std::tuple<ConvRun<float>, ConvRun<double>>;
using ConvAlgorithm = KernelAlgorithm<ConvProblem, ConvPlan, ConvLaunch>;
using ConvCandidate = KernelFamily<ConvAlgorithm>::Candidate;

/// The plan of one kernel call.
struct ConvPlan {
  const ConvAlgorithm* algorithm = nullptr;  ///< null if the result is empty
  const char* implementation = "";           ///< the algorithm and the instruction set, for observers
  bool dense_weights = true;                 ///< kernels use w (dw) contiguous, maybe as a copy; else channels-last
  double estimated_us = 0;                   ///< for the number of threads in the tuning table
  int64_t workspace_bytes = 0;               ///< scratch memory
  std::variant<std::monostate, NhwcTiles, NhwcWeightTiles, DirectTiles> tiles = {};

  const char* reason() const { return algorithm ? algorithm->reason : ""; }
};

/// All algorithms of convolutions.
const KernelFamily<ConvAlgorithm>& conv2d_family();
extern const ConvAlgorithm kDirect;                                // conv2d_direct.cpp
extern const ConvAlgorithm kImplicitGemm, kDepthwise;              // conv2d_nhwc.cpp
extern const ConvAlgorithm kImplicitGemmWeight, kDepthwiseWeight;  // conv2d_nhwc_weight.cpp

/// The problem of a pass, whose operands are converted to the type and layouts of the kernels.
ConvProblem problem_of(const KernelTable& table, int threads, ConvPass pass, const StridedLayout& in,
                       const StridedLayout& w, const StridedLayout& out, const Conv2dGeometry& geometry, bool mask);
/// Chooses an algorithm, which depends only on the problem and the tuning table, and plans it. If no algorithm can run,
/// ConvPlan::algorithm is null.
ConvPlan select(const ConvProblem& problem);

/// Returns the plan of a call of the backend. Here `workspace_bytes` includes the copies of operands.
ConvPlan select_conv2d(const KernelTable& table, int threads, const StridedLayout& x, const StridedLayout& w,
                       const StridedLayout* bias, const StridedLayout& y, const Conv2dGeometry& geometry);

struct ConvBackwardPlan {
  bool masks_first = false;  ///< dy is masked in a separate pass, not by the kernels
  bool at_once = false;      ///< `data` is the plan of all gradients, in one pass over dy
  ConvPlan data = {}, weight = {};
  int64_t workspace_bytes = 0;  ///< scratch memory of all kernel calls together
};
/// Returns the plan for the gradients among dx, dw and dbias that are not null; dbias requires dw. `masked`: the caller
/// provides memory for a masked dy.
ConvBackwardPlan select_conv2d_backward(const KernelTable& table, int threads, const StridedLayout& dy,
                                        const StridedLayout& x, const StridedLayout& w, const StridedLayout* y_if_relu,
                                        const StridedLayout* dx, const StridedLayout* dw, const StridedLayout* dbias,
                                        const Conv2dGeometry& geometry, bool masked);

/// The type that convolutions of `dtype` compute in.
constexpr DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }
/// The layout of a copy of x for the kernels.
MemoryFormat copy_format(const StridedLayout& x, bool dense);
/// Returns true if the kernels need a copy of x. This is the case if its type is not `dtype`, if `dense` is set and x
/// is not contiguous, or if neither the channels of a pixel nor the pixels of a row are contiguous.
bool needs_copy(const StridedLayout& x, DType dtype, bool dense);

// ---- What the plans of all algorithms use ---------------------------------------------------------------------------

constexpr int64_t kCacheBytes = int64_t{512} << 10;  ///< size of a part's data, for the second-level cache
constexpr int64_t kParts = 16;                       ///< parts for the threads to share, if there is enough work

/// The rows (columns) that the taps of axes read, relative to an output position: from `least` to `most`.
struct TapRange {
  int64_t least = 0, most = 0, total = 0;  ///< total: taps of all axes

  explicit TapRange(const std::vector<WindowAxis>& axes);
};

/// Bytes of the operands, of which a thread uses a part: `share_in` of p.in and `share_out` of p.out.
inline double operand_bytes(const ConvProblem& p, double share_in, double share_out) {
  return (share_in * number(p.in.numel()) + share_out * number(p.out.numel())) * number(p.element());
}
/// Square blocks of vectors that are transposed between planes and pixels (nhwc.h), where an image has `bands` bands.
/// Neighbouring bands have `shared` rows in common.
inline double transposed_blocks(const ImageLayout& x, const Registers& tile, int64_t bands, int64_t shared) {
  const int64_t rows = std::min(x.H, ceil_div(x.H, std::max<int64_t>(bands, 1)) + shared);
  return number(x.N * bands * ceil_div(rows * x.W, tile.vector) * ceil_div(x.C, tile.vector));
}

// ---- Operands -------------------------------------------------------------------------------------------------------

/// Forward: y = x * w (+ bias, then ReLU if `relu`). With `backward`, y is the gradient dx of the image, which is also
/// a convolution: of dy, which is then x, with flipped and transposed filters. The gradients of w and of the bias are
/// computed from the same dy, dbias together with dw. Gradients without data are not computed. Operands that are not
/// read (w without dx, image without dw) have sizes but no data.
template <class T>
struct ConvOperands {
  const KernelTable& table;
  const Conv2dGeometry& geometry;
  bool backward;
  Images<const T> x;
  const T* mask;  ///< has the layout of x, which is replaced by 0 unless mask > 0; null if there is no mask
  Images<const T> w;
  const T* bias;  ///< null: none
  bool relu;
  Images<T> y;
  Images<const T> image = {};  ///< the forward pass's x, needed for dw
  Images<T> dw = {};
  T* dbias = nullptr;

  const Kernels<T>& kernels() const { return kernels_of<T>(table); }
  // The numbers of channels of x and of y in a group, and the strides of w along these channels and between groups.
  int64_t channels() const { return x.C / geometry.groups; }
  int64_t filters() const { return y.C / geometry.groups; }
  int64_t channel_stride() const { return backward ? w.n_stride : w.c_stride; }
  int64_t filter_stride() const { return filters() == 1 ? group_stride() : backward ? w.c_stride : w.n_stride; }
  int64_t group_stride() const { return w.N / geometry.groups * w.n_stride; }
  /// Address of the weight for a tile's first filter, channel c and the first tap.
  const T* weights_of(const FilterTiles& tiles, int64_t tile, int64_t c) const {
    const int64_t group = tiles.group(tile);
    return w.data + group * group_stride() + (tiles.first(tile) - group * tiles.filters) * filter_stride() +
           c * channel_stride();
  }
  std::vector<WindowAxis> axes(int axis) const {
    return conv_axes(backward, geometry, axis, y.size(axis), x.size(axis), w.size(axis));
  }
};

}  // namespace gradus::openmp_detail
