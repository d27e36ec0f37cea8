// explain: a training step that says what it does: which kernels run, why those, how far from what the machine can do,
// what is kept for the backward pass, and which changes would save most.
//
//   auto explanation = training::explain([&] {
//     optimizer.zero_grad();
//     cross_entropy(net->forward(x), y).backward();
//     optimizer.step();
//   });
//   std::cout << explanation.str();
//   explanation.save_html("explain.html");     // the same, with the net drawn; needs no network
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
  /// That the step trains on.
  GRADUS_ARG(Device, device) = kCPU;
  /// Steps before the first one that is looked at: they make the optimizer's state.
  GRADUS_ARG(int, warm_up) = 2;
  /// Steps that are timed for each figure, of which the fastest counts: what it takes when nothing disturbs it.
  GRADUS_ARG(int, steps) = 6;
  /// Also time steps with other settings and run some operations in another layout, for the proposals.
  GRADUS_ARG(bool, proposals) = true;
};

/// What the device can do: the rates of our largest kernels, measured. A kernel that computes `flops` and moves
/// `bytes` takes max(flops / peak, bytes / bandwidth) at least (Williams, Waterman and Patterson, "Roofline", 2009).
struct Roofline {
  struct Level {
    int64_t bytes;     ///< that fit
    double bandwidth;  ///< bytes a second
  };
  double peak = 0;            ///< float32 operations a second, of a large matrix product on all threads
  std::vector<Level> levels;  ///< from the smallest

  double seconds_at_least(int64_t bytes, int64_t flops) const;
};
/// Measured with the CPU's default backend, or on a GPU with "cuda", in about half a second.
Roofline measure_roofline(Device device = kCPU);

class Explanation {
 public:
  /// A kernel that ran in the step.
  struct Kernel {
    std::string name, backend, implementation;
    std::string reason;  ///< the clause of select() that chose it; "" where there is nothing to choose
    std::string op;      ///< of the user, in the backward pass the node's: "conv2d_relu", "Conv2dRelu"
    std::string module;  ///< "features.3"; may be empty
    bool backward = false;
    std::vector<Shape> shapes;     ///< of the first operands
    int64_t bytes = 0, flops = 0;  ///< read and written at least; computed, where the kernel says that
    double seconds = 0;
    double roofline = 0;  ///< the least time of such a kernel, as a share of its time
    size_t call = 0;      ///< whose part it is, or that was the last one before
  };
  /// A call of the backend.
  struct Call {
    std::string name;
    graph::Origin origin;
    std::string op;  ///< as of its kernels
    bool backward = false;
    std::vector<size_t> inputs;  ///< earlier calls whose results it reads or changes
    Shape result;
    double seconds = 0;  ///< of its kernels
  };
  /// Memory that the forward pass keeps for the backward pass.
  struct Saved {
    std::string made_by;               ///< "conv2d of features.0, train.cpp:41"
    std::vector<std::string> kept_by;  ///< the operators that saved it: "max_pool2d of features.1"
    std::string until;                 ///< what ran when it was let go
    std::string module;                ///< that has who made it and who saved it inside; "" if none has
    Shape shape;
    DType dtype = DType::f32;
    int64_t bytes = 0;
    size_t from_call = 0, to_call = 0;
    bool at_peak = false;  ///< lived when most memory was in use
  };
  /// Memory of one step that is still there when two more have ended.
  struct Leak {
    std::string made_by;
    Shape shape;
    int64_t bytes = 0;  ///< of each step
  };
  struct Proposal {
    std::string change;
    double seconds = 0;  ///< of a step that it would save
    int64_t bytes = 0;   ///< or bytes
    std::string basis;   ///< where the figure is from: "measured", …
  };

  std::vector<Kernel> kernels;  ///< in order
  std::vector<Call> calls;
  double step_seconds = 0;     ///< of a step that nobody looks at; on a GPU of one that is replayed from a capture
  double between_seconds = 0;  ///< of an observed one, outside of its kernels; on a GPU the rest of step_seconds
  int64_t peak_bytes = 0;      ///< beyond what was there before the step
  size_t peak_call = 0;        ///< where it is reached
  std::vector<Saved> saved;    ///< largest first
  std::vector<Leak> leaks;
  std::vector<Proposal> faster, smaller;  ///< at most three of each, best first
  std::vector<std::string> notes;         ///< what could not be found out, and why
  Roofline roofline;

  double kernel_seconds() const;
  /// Tables: the kernels in order (the `rows` most costly ones alone, if there are more), what is saved, the proposals.
  std::string str(size_t rows = 60) const;
  /// A page without references to anything outside of it.
  std::string html(const std::string& title = "a training step") const;
  /// IoError where it cannot be written.
  void save_html(const std::string& path, const std::string& title = "a training step") const;
};

/// Runs `step`, which trains on options.device(), some dozens of times with real effects on what it trains: as it is,
/// with observers, once with all calls of the backend and all memory of this thread watched, and with other settings.
/// What other threads compute besides parallel_for is not seen. An exception of the step is passed on. On a GPU the
/// step is also captured, which a step cannot be that reads a number back: a DeviceError names the line.
Explanation explain(const std::function<void()>& step, const ExplainOptions& options = {});

}  // namespace training
using training::explain;
}  // namespace gradus
