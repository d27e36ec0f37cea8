// Chooses the algorithm of a convolution, its tiles and its scratch memory; no other file decides these. Both functions
// depend only on their arguments, and the kernels follow the plan. The choices do not depend on the number of threads
// (only `workspace_bytes` does), so results do not either. tests/backends/conv2d_decisions.txt lists the choices for
// common layers.
#pragma once

#include <variant>

#include <gradus/backends/openmp/conv2d/nchw.h>

namespace gradus::openmp_detail {

/// In the order of KernelTable::conv2d, which has the names for observers.
enum class ConvAlgorithm : uint8_t {
  implicit_gemm_nhwc,  ///< sums are vectors of channels: conv2d_nhwc.cpp, conv2d_nhwc_weight.cpp
  direct,              ///< sums are vectors of neighbouring pixels: conv2d_direct.cpp
  depthwise,           ///< implicit_gemm_nhwc with one channel per group
};

// Below, a `…_size` is a number of elements of scratch memory, per thread unless marked "shared".

/// Channels of a tile of filters whose weights are packed together, or whose gradients are summed together.
constexpr int64_t kPackedChannels = 32;

/// y from x, or dx from dy, by implicit_gemm_nhwc or depthwise. A part is some images, or a band of rows of one image,
/// and some tiles of filters. Rows are counted within a pass.
struct NhwcTiles {
  int64_t images, rows, filter_tiles;  ///< in a part
  int64_t bands, filter_parts, parts;  ///< bands of an image; parts of the filters; parts in total
  int64_t least, most;                 ///< range of rows that the taps read, relative to an output pixel
  int64_t depth;                       ///< maximum rows of a block of the weights
  int64_t pack_size, in_size, out_size;
};

/// dw by implicit_gemm_nhwc or depthwise. An item is some images, or a band of rows of one image, that are loaded
/// together. A block of an item is processed for all taps. A part sums some items for some tiles of filters.
struct NhwcWeightTiles {
  bool joins_taps;  ///< a register tile combines the channels of several taps
  int64_t item_images, item_rows, bands, items;
  int64_t block_images, block_rows;
  int64_t filter_tiles, filter_parts;  ///< tiles in a part; number of such parts
  int64_t items_in_part, parts;        ///< number of separate sums
  int64_t sums_size, bias_sums_size;   ///< shared
  int64_t x_size, dy_size, total_size, by_channel_size;
};

/// y, or all gradients. An item is a band of rows of one image: of y, or of dy and the passes of dx.
struct DirectTiles {
  PlaneLayout in, x;  ///< planes of one group of an item: input of y (dx), and x for dw
  int64_t band, bands, items;
  int64_t items_in_part, parts, grain;  ///< parts of a group; parts in a chunk of parallel work
  int64_t partial_size, weights_size;   ///< shared
  int64_t in_size, x_size, sums_size, vectors_size;
};

/// The plan of one kernel call.
struct ConvPlan {
  ConvAlgorithm algorithm;
  bool dense_weights = true;    ///< w (dw) is contiguous, copied if necessary; else channels-last
  int64_t workspace_bytes = 0;  ///< scratch memory, including copies of operands
  std::variant<std::monostate, NhwcTiles, NhwcWeightTiles, DirectTiles> tiles = {};  ///< empty if the result is empty
  const char* reason = "";                                                           ///< why the algorithm was chosen
};

struct ConvBackwardPlan {
  bool masks_first = false;  ///< dy is masked in a separate pass, not by the kernels
  bool at_once = false;      ///< `data` is the plan of all gradients, in one pass over dy
  ConvPlan data = {}, weight = {};
  int64_t workspace_bytes = 0;  ///< of all kernel calls together
};

/// Inputs of the choice other than the operands.
struct ConvSettings {
  const KernelTable& table;  ///< of an instruction set
  int threads = 1;
};

/// y = x * w (+ bias).
ConvPlan select_conv2d(const ConvSettings& settings, const StridedLayout& x, const StridedLayout& w,
                       const StridedLayout* bias, const StridedLayout& y, const Conv2dGeometry& geometry);

/// The plan for those of dx, dw and dbias that are not null; dbias requires dw. `masked`: memory for a masked dy is
/// given.
ConvBackwardPlan select_conv2d_backward(const ConvSettings& settings, const StridedLayout& dy, const StridedLayout& x,
                                        const StridedLayout& w, const StridedLayout* y_if_relu, const StridedLayout* dx,
                                        const StridedLayout* dw, const StridedLayout* dbias,
                                        const Conv2dGeometry& geometry, bool masked);

/// The type that convolutions of `dtype` compute in.
constexpr DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }
/// The layout of a copy of x for the kernels.
MemoryFormat copy_format(const StridedLayout& x, bool dense);
/// True if the kernels need a copy of x: if it has another type than `dtype`, is not contiguous although `dense`, or
/// has contiguous neighbours neither along channels nor along rows.
bool needs_copy(const StridedLayout& x, DType dtype, bool dense);

}  // namespace gradus::openmp_detail
