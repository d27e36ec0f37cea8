// Which algorithm computes a convolution, how its work is cut, and how much scratch memory that takes: the
// one place that decides. Both functions depend on their arguments alone; the kernels do what the plan says. The
// choices do not depend on the number of threads (only `workspace_bytes` does), so neither do the results.
// tests/backends/conv2d_decisions.txt lists what they choose for usual layers.
#pragma once

#include <variant>

#include <gradus/backends/openmp/conv2d/nchw.h>

namespace gradus::openmp_detail {

/// In the order of KernelTable::conv2d, the names that observers see.
enum class ConvAlgorithm : uint8_t {
  implicit_gemm_nhwc,  ///< sums are vectors of channels: conv2d_nhwc.cpp, conv2d_nhwc_weight.cpp
  direct,              ///< sums are vectors of neighbouring pixels: conv2d_direct.cpp
  depthwise,           ///< implicit_gemm_nhwc with one channel in a group
};

// Below, a `…_size` is a number of elements of scratch memory: for all threads where it says "shared", else for each
// thread.

constexpr int64_t kPackedChannels =
    32;  ///< of a tile of filters, whose weights are packed, or whose gradients are added up, at once

/// y from x, or dx from dy, by implicit_gemm_nhwc or depthwise. A part is some images, or a band of rows of one, and
/// some tiles of filters; rows are counted within a pass.
struct NhwcTiles {
  int64_t images, rows, filter_tiles;  ///< of a part
  int64_t bands, filter_parts, parts;  ///< of an image; of the filters; of all
  int64_t least, most;                 ///< how many rows from an output pixel's place its taps read
  int64_t depth;                       ///< rows of a block of the weights, at most
  int64_t pack_size, in_size, out_size;
};

/// dw by implicit_gemm_nhwc or depthwise. An item is what is laid out together, some images or a band of rows of one; a
/// block of it goes through all taps; a part sums up some items for some tiles of filters.
struct NhwcWeightTiles {
  bool joins_taps;  ///< a register tile has the channels of several taps
  int64_t item_images, item_rows, bands, items;
  int64_t block_images, block_rows;
  int64_t filter_tiles, filter_parts;  ///< of a part; how many
  int64_t items_in_part, parts;        ///< how many are summed apart
  int64_t sums_size, bias_sums_size;   ///< shared
  int64_t x_size, dy_size, total_size, by_channel_size;
};

/// y, or all gradients. An item is a band of rows of one image: of y, or of dy and of dx's passes.
struct DirectTiles {
  PlaneLayout in, x;  ///< of one group of an item: what is read for y (dx), and x for dw
  int64_t band, bands, items;
  int64_t items_in_part, parts, grain;  ///< parts of a group; those in a chunk of parallel work
  int64_t partial_size, weights_size;   ///< shared
  int64_t in_size, x_size, sums_size, vectors_size;
};

/// What one call of a kernel does.
struct ConvPlan {
  ConvAlgorithm algorithm;
  bool dense_weights = true;    ///< w (dw) is contiguous, by a copy where it has to be; else channels-last
  int64_t workspace_bytes = 0;  ///< scratch memory, copies of operands included
  std::variant<std::monostate, NhwcTiles, NhwcWeightTiles, DirectTiles> tiles = {};  ///< none where the result is empty
  const char* reason = "";                                                           ///< for the algorithm
};

struct ConvBackwardPlan {
  bool masks_first = false;  ///< dy is masked by the relu's result in a pass of its own, not by the kernels
  bool at_once = false;      ///< `data` is the plan of all gradients, in one pass over dy
  ConvPlan data = {}, weight = {};
  int64_t workspace_bytes = 0;  ///< of all that is done
};

/// What decides beside the operands.
struct ConvSettings {
  const KernelTable& table;  ///< of an instruction set
  int threads = 1;
};

/// y = x * w (+ bias).
ConvPlan select_conv2d(const ConvSettings& settings, const StridedLayout& x, const StridedLayout& w,
                       const StridedLayout* bias, const StridedLayout& y, const Conv2dGeometry& geometry);

/// Those of dx, dw and dbias that are not null; dbias goes with dw. `masked`: there is memory for a masked dy.
ConvBackwardPlan select_conv2d_backward(const ConvSettings& settings, const StridedLayout& dy, const StridedLayout& x,
                                        const StridedLayout& w, const StridedLayout* y_if_relu, const StridedLayout* dx,
                                        const StridedLayout* dw, const StridedLayout* dbias,
                                        const Conv2dGeometry& geometry, bool masked);

/// What convolutions of that type compute in.
constexpr DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }
/// The layout of a copy that is made of x to compute with.
MemoryFormat copy_format(const StridedLayout& x, bool dense);
/// True if the kernels work on a copy of x: in `dtype`, and contiguous if `dense`. An image's channels or the pixels of
/// a row are neighbours in memory, or become so.
bool needs_copy(const StridedLayout& x, DType dtype, bool dense);

}  // namespace gradus::openmp_detail
