// A lab page: a training step, or the messages of ranks, to go through one by one. One HTML file, which needs
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

/// What a page shows of a step: what explain() says of it, and the numbers that its calls read and wrote.
struct LabRecording {
  static constexpr int64_t kValues = 64;  ///< that are kept of an array: its first ones in row-major order

  /// What a call reads or writes.
  struct Operand {
    std::string name;  ///< the parameter of the call: "x", "dw", "parameters.0.gradient"
    size_t block = 0;  ///< whose memory it is, in `blocks`
    DType dtype = DType::f32;
    Shape shape;
    bool is_written = false;  ///< or read and written
    std::string values;       ///< "1 0.5 nan": before the call, of a written one behind it; "" where they are not kept
  };
  /// What the page shows of explanation.calls, in that order.
  struct Call {
    std::vector<Operand> operands;
    size_t tick = 0;  ///< when it begins, as of blocks
  };
  /// Memory that calls use, or that the step takes.
  struct Block {
    std::string name;         ///< "0.weight", "gradient of 0.weight"; may be empty
    std::string made_by;      ///< "conv2d of features.0"; "" for memory from before the step
    std::string until;        ///< what ran when it was let go; may be empty
    int64_t bytes = 0;        ///< 0 where nobody knows: memory that was not taken while the step was watched
    size_t from = 0, to = 0;  ///< it is there at the ticks [from, to): allocations and releases, counted
  };
  /// An array that an operator keeps for the backward pass.
  struct Saved {
    size_t call = 0, block = 0;
    Shape shape;
    std::string kept_by;   ///< "linear of 0"
    uint32_t version = 0;  ///< of its memory then: how often it had been changed in place
  };

  Explanation explanation;  ///< without proposals
  std::vector<Call> calls;
  std::vector<Block> blocks;
  std::vector<Saved> saved;
  size_t first_tick = 0, last_tick = 0;  ///< of the step
};

/// explain() of a step, without proposals, that keeps numbers. Parameters of `net`, and their gradients, get names; it
/// may be null. Arrays on a GPU are read by copies that wait for what runs there.
LabRecording record_lab(const std::function<void()>& step, const nn::Module* net = nullptr,
                        const ExplainOptions& options = {});

}  // namespace training

/// Writes the page of a step, of some 30 MB at most: of a longer one it says how many calls are left out. IoError where
/// it cannot be written.
void write_lab(const training::LabRecording& recording, const std::string& path,
               const std::string& title = "a training step");
/// Writes the page of what ranks say to each other (distributed/comm/local/message_log.h). Limits and errors as above.
void write_lab(const dist::MessageLog& log, const std::string& path, const std::string& title = "messages of ranks");

}  // namespace gradus
