// A lab page shows a training step call by call, or the messages between ranks one by one. It is a single HTML file
// that needs neither a server nor a network.
//
//   const auto recording = training::record_lab([&] {
//     optimizer.zero_grad();
//     cross_entropy(net->forward(x), y).backward();
//     optimizer.step();
//   }, net.ptr().get());
//   write_lab(recording, "lab.html");
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/inspect/explain/explain.h>

namespace gradus {
namespace nn {
class Module;
}
namespace dist {
struct MessageLog;
}

namespace training {

/// The contents of a step's page: the results of explain(), and the numbers that each call reads and writes.
struct LabRecording {
  static constexpr int64_t kValues = 64;  ///< the page shows this many elements of an array, in row-major order

  /// An array that a call reads or writes.
  struct Operand {
    std::string name;  ///< the parameter of the call: "x", "dw", "parameters.0.gradient"
    size_t block = 0;  ///< index of its memory in `blocks`
    DType dtype = DType::f32;
    Shape shape;
    bool is_written = false;  ///< true also if it is both read and written
    /// The first elements as text ("1 0.5 nan"): those before the call if it only reads the array, else those after it.
    /// Empty if the array is too large to be copied from a GPU.
    std::string values;
  };
  /// The operands and the time of a call. Element i of `calls` belongs to explanation.calls[i].
  struct Call {
    std::vector<Operand> operands;
    size_t tick = 0;  ///< the tick at which the call begins (see Block)
  };
  /// Memory that calls use or that the step allocates.
  struct Block {
    std::string name;         ///< "0.weight", "gradient of 0.weight"; may be empty
    std::string made_by;      ///< "conv2d of features.0"; empty for memory from before the step
    std::string until;        ///< the operator that ran when it was freed; may be empty
    int64_t bytes = 0;        ///< 0 if unknown: the block was allocated before explain() watched steps
    size_t from = 0, to = 0;  ///< allocated during [from, to), in ticks; each allocation and each free is a tick
  };
  /// An array that an operator saves for the backward pass.
  struct Saved {
    size_t call = 0, block = 0;
    Shape shape;
    std::string kept_by;   ///< "linear of 0"
    uint32_t version = 0;  ///< the array's version counter: how often its memory had been changed in place
  };

  Explanation explanation;  ///< without proposals
  std::vector<Call> calls;
  std::vector<Block> blocks;
  std::vector<Saved> saved;
  size_t first_tick = 0, last_tick = 0;  ///< ticks at which the step begins and ends
};

/// Runs explain() on a step, without proposals, and records the numbers that calls read and write. The page names the
/// parameters of `net` and their gradients; `net` may be null. To copy an array from a GPU, the host waits for the
/// GPU's kernels.
LabRecording record_lab(const std::function<void()>& step, const nn::Module* net = nullptr,
                        const ExplainOptions& options = {});

}  // namespace training

/// Maximum number of bytes of a page's rows and texts; further rows are left out. When the texts alone have a sixth of
/// it, the elements of further arrays are left out. Tests lower it.
inline size_t lab_page_bytes = 24 << 20;

/// Writes the page of a step. A page has at most about 30 MB. If not all calls fit, the page says how many are missing.
/// Throws an IoError if the file cannot be written.
void write_lab(const training::LabRecording& recording, const std::string& path,
               const std::string& title = "a training step");
/// Writes the page of messages between ranks (distributed/comm/local/local_group.h), with the same limits and errors.
void write_lab(const dist::MessageLog& log, const std::string& path, const std::string& title = "messages of ranks");

}  // namespace gradus
