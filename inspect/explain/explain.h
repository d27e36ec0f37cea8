// explain: analyses a training step. It reports which kernels run and why they were chosen, how far they are from the
// limits of the machine, which arrays are saved for the backward pass, and which changes would save most time and
// memory.
//
//   auto explanation = training::explain([&] {
//     optimizer.zero_grad();
//     cross_entropy(net->forward(x), y).backward();
//     optimizer.step();
//   });
//   std::cout << explanation.str();
//   explanation.save_html("explain.html");     // the same as one HTML file, with a drawing of the net
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/core/array/dtype.h>
#include <gradus/core/array/shape.h>
#include <gradus/core/options.h>
#include <gradus/core/runtime/device.h>
#include <gradus/graph/origin.h>

namespace gradus {
namespace training {

struct ExplainOptions {
  /// The device that the step trains on.
  GRADUS_ARG(Device, device) = kCPU;
  /// Number of steps that run before the analysis. They create the optimizer's state.
  GRADUS_ARG(int, warm_up) = 2;
  /// Number of timed steps for each figure. The figure is that of the fastest step, which other programs disturbed
  /// least.
  GRADUS_ARG(int, steps) = 6;
  /// Whether to look for more proposals by timing steps with other settings and operations in the other memory layout.
  GRADUS_ARG(bool, proposals) = true;
};

/// The limits of the device, measured with kernels of this library. A kernel that computes `flops` and moves `bytes`
/// takes at least max(flops / peak, bytes / bandwidth) (Williams, Waterman and Patterson, "Roofline", 2009).
struct Roofline {
  struct Level {
    int64_t bytes;     ///< largest data that this level (for example a cache) serves
    double bandwidth;  ///< bytes per second
  };
  double peak = 0;            ///< float32 operations per second in a large matrix product on all threads
  std::vector<Level> levels;  ///< the memory hierarchy, smallest level first

  double seconds_at_least(int64_t bytes, int64_t flops) const;
};
/// Measures the limits in about half a second, with the CPU's default backend, or with "cuda" on a GPU.
Roofline measure_roofline(Device device = kCPU);

class Explanation {
 public:
  /// A kernel that ran in the step.
  struct Kernel {
    std::string name, backend, implementation;
    std::string reason;  ///< why this implementation was chosen; empty if there was no choice
    std::string
        op;  ///< the operator that the user called ("conv2d_relu"); in the backward pass the node ("Conv2dRelu")
    std::string module;  ///< for example "features.3"; may be empty
    bool backward = false;
    std::vector<Shape> shapes;  ///< of the first operands
    /// The least bytes that the kernel must read and write, and its arithmetic operations (0 if it reports none).
    int64_t bytes = 0, flops = 0;
    double seconds = 0;
    double roofline = 0;  ///< the time of Roofline::seconds_at_least() divided by the kernel's time
    /// Index in `calls` of the call that ran the kernel or, if no call did, of the last call before the kernel.
    size_t call = 0;
  };
  /// A call of the backend.
  struct Call {
    std::string name;
    graph::Origin origin;
    std::string op;  ///< the operator or node that made the call, as in Kernel
    bool backward = false;
    std::vector<size_t> inputs;  ///< earlier calls whose results this call reads or changes
    Shape result;
    double seconds = 0;  ///< time of its kernels
  };
  /// Memory of an array that the forward pass saves for the backward pass.
  struct Saved {
    std::string made_by;               ///< "conv2d of features.0, train.cpp:41"
    std::vector<std::string> kept_by;  ///< the operators that saved it: "max_pool2d of features.1"
    std::string until;                 ///< the operator that ran when it was freed, or a sentence if none did
    std::string module;                ///< innermost module that contains all these operators; empty if there is none
    Shape shape;
    DType dtype = DType::f32;
    int64_t bytes = 0;
    size_t from_call = 0, to_call = 0;
    bool at_peak = false;  ///< whether it was allocated when memory use was highest
  };
  /// Memory that a step allocated and that is not freed two steps later.
  struct Leak {
    std::string made_by;
    Shape shape;
    int64_t bytes = 0;  ///< per step
  };
  struct Proposal {
    std::string change;
    double seconds = 0;  ///< time that the change would save per step, or 0
    int64_t bytes = 0;   ///< memory that the change would save, or 0
    std::string basis;   ///< how the saving was determined, for example "measured"
  };

  std::vector<Kernel> kernels;  ///< in the order in which they ran
  std::vector<Call> calls;
  double step_seconds = 0;     ///< time of a step without observers; on a GPU, of a replay of the captured step
  double between_seconds = 0;  ///< time outside kernels of an observed step; on a GPU, step_seconds minus kernel times
  int64_t peak_bytes = 0;      ///< peak of memory, without what was allocated before the step
  size_t peak_call = 0;        ///< the call during which the peak is reached
  std::vector<Saved> saved;    ///< largest first
  std::vector<Leak> leaks;
  std::vector<Proposal> faster, smaller;  ///< at most three of each, best first
  std::vector<std::string> notes;         ///< figures that could not be determined, and why
  Roofline roofline;

  double kernel_seconds() const;
  /// Tables of the kernels in order, of saved memory and of the proposals. If there are more than `rows` kernels, only
  /// the most costly ones are listed.
  std::string str(size_t rows = 60) const;
  /// A self-contained HTML page.
  std::string html(const std::string& title = "a training step") const;
  /// Writes html() to a file. Throws an IoError if the file cannot be written.
  void save_html(const std::string& path, const std::string& title = "a training step") const;
};

/// Runs `step`, which trains on options.device(), several dozen times: unchanged, with observers, while all backend
/// calls and allocations of this thread are recorded, and with other settings. Every run really trains. Work that other
/// threads do outside parallel_for is not included. Exceptions of the step are passed on. On a GPU the step is also
/// captured as a graph. A step that reads a number back to the host cannot be captured; the DeviceError names its line.
Explanation explain(const std::function<void()>& step, const ExplainOptions& options = {});

}  // namespace training
using training::explain;
}  // namespace gradus
