// An LSTM over whole sequences: one launch where lstm_sequence.cuh's kernels hold the weights, otherwise step by step.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/sequence/lstm_sequence.cuh>

namespace gradus {
namespace {

using cuda_detail::Launch;
namespace lstm = cuda_detail::lstm;

bool contiguous(const StridedLayout& view) {
  const Strides wanted = contiguous_strides(view.shape);
  for (int i = 0; i < view.ndim(); ++i)
    if (view.shape[i] != 1 && view.strides[i] != wanted[i]) return false;
  return true;
}

constexpr int kLargest = 128;  // hidden units whose weights the registers of a cluster hold

// Calls f.operator()<T, kSize, kBlocks, kSequences>() with what the kernels are compiled for. Blocks should find a
// multiprocessor each: few sequences may spread over more of them, many go two by two.
template <class F>
void visit_kernel(DType dtype, const lstm::Sizes& sizes, const Launch& launch, const F& f) {
  const int multiprocessors = launch.multiprocessors();
  const auto with_type = [&]<class T>() {
    const auto with_pairs = [&]<int kSize>() {
      if (2 * sizes.batch <= multiprocessors) f.template operator()<T, kSize, 2, 1>();
      else f.template operator()<T, kSize, 2, 2>();
    };
    if (sizes.size <= 64) with_pairs.template operator()<64>();
    else if (4 * sizes.batch <= multiprocessors) f.template operator()<T, kLargest, 4, 2>();
    else with_pairs.template operator()<kLargest>();
  };
  if (dtype == DType::f32) with_type.template operator()<float>();
  else if (dtype == DType::f16) with_type.template operator()<Half>();
  else with_type.template operator()<BFloat16>();
}

// Whether the kernels serve these arguments, hidden states of this shape (L, N, H) among them.
bool served(const Shape& states, DType dtype, Device device, std::initializer_list<const StridedLayout*> views) {
  constexpr int64_t kMost = int64_t{1} << 24;  // grids and steps are 32-bit numbers
  for (const StridedLayout* view : views)
    if (!contiguous(*view)) return false;
  return cuda_detail::has_clusters(lstm::sequence_kernel<float, 64, 2, 1>, device) && dtype != DType::f64 &&
         states[0] > 0 && states[0] < kMost && states[1] > 0 && states[1] < kMost && states[2] > 0 &&
         states[2] <= kLargest;
}

lstm::Sizes sizes_of(const Shape& states, bool reverse) {
  const auto size = [&](int axis) { return static_cast<int>(states[axis]); };
  return {size(0), size(1), size(2), reverse};
}

uint32_t clusters_of(const lstm::Sizes& sizes, int sequences) {
  return static_cast<uint32_t>((sizes.batch + sequences - 1) / sequences);
}

}  // namespace

void CudaBackend::lstm_sequence(const LstmArgs& args) {
  const MutableView &gates = args.gates, &cells = args.cells, &hidden = args.hidden;
  const View &w_hh = args.w_hh, &h0 = args.h0, &c0 = args.c0;
  if (!served(hidden.shape, gates.dtype, gates.device, {&gates, &w_hh, &h0, &c0, &cells, &hidden}))
    return Backend::lstm_sequence(args);
  const lstm::Sizes sizes = sizes_of(hidden.shape, args.reverse);
  EventScope event("lstm_sequence", "cuda", "clusters", {&gates, &w_hh},
                   2 * gates.numel() * sizes.size + 25 * cells.numel());
  const Launch launch(gates.device);
  visit_kernel(gates.dtype, sizes, launch, [&]<class T, int kSize, int kBlocks, int kSequences>() {
    launch.in_clusters(lstm::sequence_kernel<T, kSize, kBlocks, kSequences>, kBlocks,
                       kBlocks * clusters_of(sizes, kSequences), lstm::threads_of(kSize, kBlocks), sizes, gates.as<T>(),
                       w_hh.as<T>(), h0.as<T>(), c0.as<T>(), cells.as<T>(), hidden.as<T>());
  });
}

void CudaBackend::lstm_sequence_backward(const LstmBackwardArgs& args) {
  const View &dhidden = args.dhidden, &gates = args.gates, &w_hh = args.w_hh, &c0 = args.c0, &cells = args.cells;
  const MutableView &dc = args.dc, &dgates = args.dgates, &dh0 = args.dh0;
  if (!served(cells.shape, gates.dtype, gates.device, {&dhidden, &gates, &w_hh, &c0, &cells, &dc, &dgates, &dh0}))
    return Backend::lstm_sequence_backward(args);
  const lstm::Sizes sizes = sizes_of(cells.shape, args.reverse);
  EventScope event("lstm_sequence_backward", "cuda", "clusters", {&gates, &w_hh},
                   2 * gates.numel() * sizes.size + 35 * cells.numel());
  const Launch launch(gates.device);
  visit_kernel(gates.dtype, sizes, launch, [&]<class T, int kSize, int kBlocks, int kSequences>() {
    launch.in_clusters(lstm::sequence_backward_kernel<T, kSize, kBlocks, kSequences>, kBlocks,
                       kBlocks * clusters_of(sizes, kSequences), lstm::threads_of(kSize, kBlocks), sizes,
                       dhidden.as<T>(), gates.as<T>(), w_hh.as<T>(), c0.as<T>(), cells.as<T>(), dc.as<T>(),
                       dgates.as<T>(), dh0.as<T>());
  });
}

}  // namespace gradus
