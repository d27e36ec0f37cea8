// Families of CUDA's kernels for benchmarks/tune: random problems, the algorithms that can run them, and how they are
// measured. Host code without CUDA, so that tests of the choices have it on machines without a GPU.
#pragma once

#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/benchmarks/tune/tune.h>
#include <gradus/core/array/array.h>

namespace gradus::tune {

/// The operands of a problem on a GPU.
class CudaOperands {
 public:
  virtual ~CudaOperands() = default;
  /// Fills the operands at random.
  virtual void fill() = 0;
  virtual const Array& result() const = 0;
  /// Fills the result with NaN, or with what launch() adds to, and restores operands that launch() changes.
  virtual void reset();
  /// Queues the kernels of an algorithm. Returns false if a library has none.
  virtual bool launch(const std::string& algorithm) = 0;
};

/// A problem for an H200 or, after use(), for another device.
class CudaProblem : public Problem {
 public:
  virtual void use(const cuda_detail::DeviceProperties& device) = 0;
  virtual std::unique_ptr<CudaOperands> operands(Device device) const = 0;
  /// The most by which results of two algorithms may differ, as a part of the largest result.
  virtual double tolerance() const = 0;
  /// Whether matrix products of float32 may round to TF32 while the problem is measured.
  virtual bool allows_tf32() const { return false; }
  /// Returns true if the host prepares an algorithm for so long that several threads should do it.
  virtual bool is_prepared_slowly(const std::string&) const { return false; }
  /// Measured by measure_cuda() alone.
  void run(const std::string&) override;
};

/// The algorithms of a family that can run a problem, each of which is one step.
template <class KernelFamily, class Problem>
std::vector<Candidate> candidates_of(const KernelFamily& family, const Problem& problem) {
  std::vector<Candidate> all;
  family.for_candidates(problem, [&](const typename KernelFamily::Candidate& each) {
    all.push_back(candidate_of(family, problem.kind(), each));
  });
  return all;
}

/// Convolutions: "PASS TYPE LAYOUT N C H W K R STRIDE PADDING DILATION GROUPS EPILOGUE", for R x R filters. The choice
/// is that of the backend "cudnn", which has the algorithms of "cuda", too.
///   PASS      fprop, dgrad or wgrad
///   TYPE      float32 (exact), tf32, mixed (exact in our kernels and TF32 in cuDNN's, the default of users), float64,
///             float16 or bfloat16
///   LAYOUT    nchw or nhwc, of all operands
///   EPILOGUE  plain or, of fprop, bias_relu
Family cuda_conv2d();
/// The same family, but the problems that it draws are layers of nets.
Family cuda_net_conv2d();
/// What a measured convolution chooses if it is timed (select_by_time()).
std::string conv2d_by_time(const Measurement& measurement);
/// Matrix products: "TYPE FORM BATCH M N K EPILOGUE"
///   TYPE      float32 (exact), tf32, float64, float16 or bfloat16
///   FORM      nn, nt, tn or tt: whether a and b are stored as they are (n), or transposed (t)
///   BATCH     the number of products, of matrices with two axes if it is 1
///   EPILOGUE  plain, add (to y) or, of the form nt without a batch, bias
Family cuda_gemm();

/// Softmax and its gradient: "PASS TYPE LAYOUT ROWS SIZE"
///   PASS      forward or backward
///   LAYOUT    rows, whose elements are neighbours, or columns
Family cuda_softmax();

/// Attention and its gradient: "PASS TYPE LAYOUT N H L S E OPTION", with values as wide as keys
///   LAYOUT    dense, or heads: views of (N, L, H, E)
///   OPTION    plain, masked (causal) or dropout
Family cuda_attention();
/// Recurrent layers over a sequence: "PASS TYPE LENGTH BATCH SIZE CELL", with CELL rnn_tanh, rnn_relu, lstm or gru
Family cuda_recurrent();

/// One of each name. families() has those of the CPU alone.
std::vector<Family> cuda_families();

/// The regret of what select() chooses, by family, and by family and kind of problem (its first two words).
std::map<std::string, Regret> regrets_of_selected(const std::vector<Measurement>& measurements);

struct CudaMeasuring {
  std::string path;              ///< of the file to which measurements are appended
  std::vector<Family> families;  ///< from which problems are drawn in turn
  int64_t problems = 0;          ///< of each family
  uint64_t seed = 1;
  double seconds = 0;  ///< no problem begins later than this; 0: no limit
  int64_t jobs = 1;    ///< threads that prepare problems, while one of them uses the device
};
/// Measures random problems with all algorithms, except those that are in the file. A line that begins with `#` says
/// which algorithm failed, or has a result that differs from that of the first one. Ends the process with status 3 if
/// the device hangs, or if a kernel breaks it; another run then leaves this problem out.
void measure_cuda(const CudaMeasuring& options);

}  // namespace gradus::tune
