// Convolutions on CUDA for benchmarks/tune: random problems and the algorithms that can run them. Host code without
// CUDA. A problem is "PASS TYPE LAYOUT N C H W K R STRIDE PADDING DILATION GROUPS EPILOGUE", for R x R filters:
//   PASS      fprop, dgrad or wgrad
//   TYPE      float32 (exact), tf32, mixed (exact in our kernels and TF32 in cuDNN's, the default of users), float64,
//             float16 or bfloat16
//   LAYOUT    nchw or nhwc, of all operands
//   EPILOGUE  plain or, of fprop, bias_relu
#pragma once

#include <gradus/backends/cuda/conv2d/select.h>
#include <gradus/benchmarks/tune/tune.h>

namespace gradus::tune {

struct CudaConv2d {
  explicit CudaConv2d(const std::string& text);

  cuda_detail::ConvProblem problem;
  MemoryFormat format = MemoryFormat::contiguous;
  double tolerance = 0;  ///< the most by which results of two algorithms differ, as a part of the largest result

  /// The algorithms of the backends "cuda" and "cudnn" that can run the problem.
  std::vector<const cuda_detail::ConvAlgorithm*> algorithms() const;
};
/// The choice among the algorithms of "cudnn", which has those of "cuda", too. Problems are measured by
/// measure_cuda_conv2d() alone.
Family cuda_conv2d();
/// The regret of what select() of the backend "cudnn" chooses, by family, and by family and kind of problem.
std::map<std::string, Regret> regrets_of_selected(const std::vector<Measurement>& measurements);
std::string draw_cuda_conv2d(Random& random);

struct CudaMeasuring {
  std::string path;  ///< of the file to which measurements are appended
  int64_t problems = 0;
  uint64_t seed = 1;
  double seconds = 0;  ///< no problem begins later than this; 0: no limit
  int64_t jobs = 1;    ///< threads that prepare problems, while one of them uses the device
};
/// Measures random problems with all algorithms, except those that are in the file. A line that begins with `#` says
/// which algorithm failed, or has a result that differs from that of the first one. Ends the process with status 3 if
/// the device hangs.
void measure_cuda_conv2d(const CudaMeasuring& options);

}  // namespace gradus::tune
