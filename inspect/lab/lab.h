// A lab page shows a training step, or the messages between ranks, event by event. It is one HTML file that needs
// neither a server nor a network.
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

/// The contents of a step's page: the results of explain(), and the numbers that calls read and wrote.
struct LabRecording {
  static constexpr int64_t kValues = 64;  ///< how many elements of an array are kept, in row-major order

  /// An array that a call reads or writes.
  struct Operand {
    std::string name;  ///< the parameter of the call: "x", "dw", "parameters.0.gradient"
    size_t block = 0;  ///< index of its memory in `blocks`
    DType dtype = DType::f32;
    Shape shape;
    bool is_written = false;  ///< true also if it is both read and written
    std::string values;       ///< "1 0.5 nan", before the call, or after it if written; empty if not kept
  };
  /// More about each of explanation.calls, in the same order.
  struct Call {
    std::vector<Operand> operands;
    size_t tick = 0;  ///< the time at which it begins, as in Block
  };
  /// Memory that calls use or that the step allocates.
  struct Block {
    std::string name;         ///< "0.weight", "gradient of 0.weight"; may be empty
    std::string made_by;      ///< "conv2d of features.0"; empty for memory from before the step
    std::string until;        ///< the operator that ran when it was released; may be empty
    int64_t bytes = 0;        ///< 0 if unknown, because it was not allocated while steps were watched
    size_t from = 0, to = 0;  ///< it exists during the ticks [from, to); allocations and releases are counted as ticks
  };
  /// An array that an operator keeps for the backward pass.
  struct Saved {
    size_t call = 0, block = 0;
    Shape shape;
    std::string kept_by;   ///< "linear of 0"
    uint32_t version = 0;  ///< how often its memory had been changed in place before
  };

  Explanation explanation;  ///< without proposals
  std::vector<Call> calls;
  std::vector<Block> blocks;
  std::vector<Saved> saved;
  size_t first_tick = 0, last_tick = 0;  ///< begin and end of the step
};

/// Runs explain() on a step, without proposals, and keeps the numbers that calls read and write. Parameters of `net`,
/// which may be null, and their gradients get names. Arrays on a GPU are copied, which waits for its kernels.
LabRecording record_lab(const std::function<void()>& step, const nn::Module* net = nullptr,
                        const ExplainOptions& options = {});

}  // namespace training

/// Writes the page of a step. A page has at most about 30 MB; it states how many calls had to be left out. Throws an
/// IoError if the file cannot be written.
void write_lab(const training::LabRecording& recording, const std::string& path,
               const std::string& title = "a training step");
/// Writes the page of messages between ranks (distributed/comm/local/local_group.h), with the same limits and errors.
void write_lab(const dist::MessageLog& log, const std::string& path, const std::string& title = "messages of ranks");

}  // namespace gradus
