// Records a step: stores the calls of this thread to a device's backend instead of running them. The arrays that the
// step creates get addresses but no physical memory.
//
//   graph::Recorder recorder;
//   Tensor loss = step(x, y);                     // runs no kernels
//   graph::Graph recorded = recorder.finish();
//
// Kernels only run "dry", without computing anything, to determine how much workspace they need.
//
// Arrays that are created while recording have shapes, strides and addresses, but no values: reading one (item(),
// print) is an error that names the line. Arrays from before the recording are read and written in place when the graph
// runs. Values that the step copies from the host into an array (tensor({1, 2})) become constants of the graph. If a
// step on a GPU computes something on the CPU, this happens once, while recording, and its results become constants,
// too. Random operators draw new numbers in each run: the numbers that an eager step would draw, with the seed that the
// generator had while recording.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include <gradus/core/registry.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/graph/graph.h>
#include <gradus/graph/recorded_call.h>

namespace gradus::graph {

/// Allocates the arrays that a recorded step creates: address ranges of the host without physical memory, also for a
/// step on a GPU. The operating system supplies zeros if such memory is read. The object exists until its last block is
/// freed.
class RecordedBlocks final : public RecordedMemory, public std::enable_shared_from_this<RecordedBlocks> {
 public:
  struct Block {
    std::shared_ptr<char> memory;
    size_t bytes;
    size_t allocation;  // index in allocations()
    bool used = true, filled = false;
  };

  explicit RecordedBlocks(Device device) : device_(device), bytes_before_(allocated()) {}

  DeviceType type() const override { return device_.type(); }
  /// An address range of this size that belongs to no block. Reading it gives zeros.
  static std::shared_ptr<char> addresses(size_t bytes);
  std::shared_ptr<void> allocate(size_t bytes) override;
  void fill(void* to, const void* from, size_t bytes) override;
  /// Ends the recording. From then on, a block that is freed is returned to the system. During the recording freed
  /// blocks keep their addresses, so that no address is used twice.
  void close();

  /// Allocations between begin_workspace() and end_workspace() are the workspace of the next call. When one of them is
  /// freed, it is returned to the system at once. end_workspace() returns these allocations in order.
  void begin_workspace();
  std::vector<Allocation> end_workspace();

  /// All blocks by address. Until close(), these include freed blocks, except freed workspace.
  std::map<const char*, Block> blocks() const;
  /// Returns true if the address is in a block.
  bool contains(const char* data) const;
  std::vector<Allocation> allocations() const;
  int64_t time() const { return time_; }
  /// The peak of the bytes in these blocks plus the bytes that the runtime has allocated since the recording began.
  int64_t peak() const { return peak_; }
  /// The time at which the peak is reached.
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
  int call_ = 0;  // number of calls whose workspace has ended
  bool in_workspace_ = false;
  size_t workspace_begin_ = 0;  // index in allocations_ of the current call's first workspace allocation
  int64_t bytes_ = 0, peak_ = 0;
  bool closed_ = false;
};

/// A backend that runs nothing: it passes each call with its arguments to `sink`. Its name, device type, libraries and
/// capabilities are those of `like`, which must outlive it.
std::unique_ptr<Backend> call_backend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink);

/// Records the calls of this thread.
class Recorder {
 public:
  /// Records until finish(). Arrays have the layouts that the device's current backend would give them.
  explicit Recorder(Device device = Device());
  /// Discards a recording that was not finished.
  ~Recorder();

  /// The current time: the number of allocations and frees so far (as in Allocation).
  int64_t time() const { return graph_.blocks_->time(); }
  /// The number of calls so far.
  size_t size() const { return graph_.calls_.size(); }
  /// Ends the recording and returns the graph. Throws a ValueError if a call writes into an array that the step filled
  /// with values from the host. (A call with an operand on another device already throws while it is recorded.)
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
  std::unique_ptr<Backend> calls_;     // the current backend while recording; passes its calls to on_call()
  std::optional<BackendGuard> guard_;  // empty after finish()
  std::shared_ptr<char> scrap_;        // run_dry() makes calls write here instead of into arrays from before the step
  size_t scrap_bytes_ = 0;
};

}  // namespace gradus::graph
