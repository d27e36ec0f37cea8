// Records a step: the calls that this thread would run on a device are stored instead, with arrays without memory.
//
//   graph::Recorder recorder;
//   Tensor loss = step(x, y);                     // computes nothing
//   graph::Graph recorded = recorder.finish();
//
// Kernels run only to find out how much workspace they need.
//
// Arrays made while recording have shapes, strides and addresses, but no values: reading one (item(), print) is an
// error that names the line. Arrays from before the recording are read and written in place when the graph runs. Values
// that the step copies into an array from the host (tensor({1, 2})) become constants of the graph. So does what a step
// on a GPU computes on the CPU, which happens once, while recording. Random operators draw new numbers in each run, the
// same ones as in an eager step, from the seed at the time of recording.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <gradus/core/registry.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/graph/graph.h>
#include <gradus/graph/recorded_call.h>

namespace gradus::graph {

/// The memory of arrays that a recorded step makes: address ranges without physical memory. The system supplies zeros
/// when one is read. For a step on a GPU, too, they are addresses of the host. Exists until the last block is freed.
class RecordedBlocks final : public RecordedMemory, public std::enable_shared_from_this<RecordedBlocks> {
 public:
  struct Block {
    size_t bytes;
    size_t allocation;  // index in allocations()
    bool used = true, filled = false;
  };

  explicit RecordedBlocks(Device device = Device()) : device_(device), bytes_before_(allocated()) {}
  ~RecordedBlocks() override { close(); }
  RecordedBlocks(const RecordedBlocks&) = delete;
  RecordedBlocks& operator=(const RecordedBlocks&) = delete;

  DeviceType type() const override { return device_.type(); }
  /// An address range that belongs to no block. It reads as zeros, too.
  static std::shared_ptr<char> addresses(size_t bytes);
  std::shared_ptr<void> allocate(size_t bytes) override;
  void fill(void* to, const void* from, size_t bytes) override;
  /// Ends the recording: blocks that are freed later go back to the system. Before that, no address is used twice.
  void close();

  struct Workspace {
    int64_t peak;                    ///< the most bytes that were allocated at the same time
    std::vector<Allocation> pieces;  ///< its allocations in order
  };
  /// Allocations between begin_workspace() and end_workspace() are the workspace of call number `call`. Their memory
  /// goes back to the system as soon as it is freed.
  void begin_workspace(int call);
  Workspace end_workspace();

  /// All blocks by address. Until close(), this includes freed ones.
  std::map<const char*, Block> blocks() const;
  /// Returns true if the address is in a block.
  bool contains(const char* data) const;
  std::vector<Allocation> allocations() const;
  int64_t time() const { return time_; }
  /// The peak of the bytes in these blocks and in the runtime's memory together, less what the runtime held at the
  /// start.
  int64_t peak() const { return peak_; }
  /// The time of the peak.
  int64_t peak_time() const { return peak_time_; }

 private:
  void free(void* data) noexcept;
  /// The block that contains this address; blocks_.end() if there is none.
  std::map<const char*, Block>::const_iterator find(const void* data) const;
  int64_t allocated() const { return runtime(device_.type()).memory_stats(device_.index()).allocated; }

  const Device device_;
  const int64_t bytes_before_;
  mutable std::mutex mutex_;
  std::map<const char*, Block> blocks_;
  std::vector<Allocation> allocations_;
  int64_t time_ = 0, peak_time_ = 0;
  int call_ = 0;
  bool in_workspace_ = false;
  size_t workspace_begin_ = 0;  // in allocations_
  int64_t bytes_ = 0, peak_ = 0, workspace_ = 0, workspace_peak_ = 0;
  bool closed_ = false;
};

/// A backend with the name, the device type and the libraries of `like`, which must outlive it. It runs nothing: it
/// passes each call with its arguments to `sink`.
std::unique_ptr<Backend> call_backend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink);

/// Records the calls of this thread.
class Recorder {
 public:
  /// Records until finish(). Results have the layouts that the device's current backend would give them.
  explicit Recorder(Device device = Device());
  /// Discards a recording that was not finished.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The current time in the unit of Allocation: allocations and frees so far.
  int64_t time() const { return graph_.blocks_->time(); }
  /// The number of calls so far.
  size_t size() const { return graph_.calls_.size(); }
  /// Ends the recording and returns it. Throws a ValueError if a call writes into an array that the step filled with
  /// values from the host. A call with an operand on another device of this type throws one immediately.
  Graph finish();

 private:
  void on_call(std::unique_ptr<Call> call);
  void find_workspace(Call& call);
  void run_dry(Call& call);
  void end() noexcept;
  void find_buffers();
  void find_operands();
  void make_constant(Buffer& buffer);

  Graph graph_;
  std::unique_ptr<Backend> calls_;     // passes its calls to on_call()
  std::optional<BackendGuard> guard_;  // set while this records
  std::shared_ptr<char> scrap_;        // dry runs write here instead of into memory from before the step
  size_t scrap_bytes_ = 0;
};

}  // namespace gradus::graph
