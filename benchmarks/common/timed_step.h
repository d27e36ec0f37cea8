// How train_step and zoo time a training step: eagerly, as a recorded step, or as a captured graph.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/benchmarks/common/program.h>
#include <gradus/gradus.h>

namespace gradus::benchmarks {

/// How a training step runs.
struct StepVariant {
  std::string mode;  ///< eager; static: recorded once, run from planned memory; graph: captured (on the cpu: static)
  std::string precision;  ///< fp32, tf32, fp16 or bf16; the latter two are mixed precision
  std::string format;     ///< contiguous or channels_last

  bool is_mixed() const { return precision == "fp16" || precision == "bf16"; }
  DType half_type() const { return precision == "bf16" ? kBFloat16 : kHalf; }
  MemoryFormat memory_format() const {
    return format == "channels_last" ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  }
};

/// The variants that the command line of a program asks for.
struct StepVariants {
  std::vector<std::string> modes = {"eager"}, precisions = {"fp32"}, formats = {"contiguous"};

  /// Adds the options --mode, --precision and --format.
  void add_options(Program& program);
  /// Returns all combinations. A net without images has only one format.
  std::vector<StepVariant> all(bool has_images) const;
};

struct StepFigures {
  double median_ms = 0, mean_ms = 0;
  int64_t peak_bytes = 0;
};

/// Allows TF32 in products and convolutions if `precision` is tf32, and forbids it otherwise.
void set_tf32(const std::string& precision);

/// Returns the most bytes that tensors and scratch memory of kernels held at a time during work(), including memory
/// that was allocated before.
int64_t peak_bytes(Device device, const std::function<void()>& work);

/// Times `step`, which trains with `optimizers`, for `seconds` seconds in this mode. `step` must begin with
/// zero_grad().
StepFigures time_training_step(Device device, const std::string& mode, const std::vector<optim::Optimizer*>& optimizers,
                               const std::function<void()>& step, double seconds);

}  // namespace gradus::benchmarks
