// The memory of arrays that a recorded step makes: address ranges without physical memory. The system supplies zeros
// when one is read. For a step on a GPU, too, they are addresses of the host.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus::graph {

/// Memory that the eager step allocates and frees. A time is the number of allocations and frees before it.
struct Allocation {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const char* data = nullptr;
  int64_t bytes = 0;
  int64_t begin = 0, end = kNever;  ///< allocated during the times [begin, end); kNever if the step does not free it
  int call = 0;                     ///< number of the call that follows, or whose workspace this is
  bool is_workspace = false;        ///< allocated by a kernel for itself
};

/// The blocks of one recording. Exists until the last block is freed.
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
  /// The most bytes that these blocks and the runtime's held at the same time, beyond what the runtime held at the
  /// start.
  int64_t peak() const { return peak_; }
  /// The time of the peak.
  int64_t peak_time() const { return peak_time_; }

 private:
  void free(void* data) noexcept;
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

}  // namespace gradus::graph
