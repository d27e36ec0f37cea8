// The memory of arrays that a recorded step makes: addresses, behind which the system puts zeros where somebody looks.
// On a GPU, too, they are addresses of the host, which no device has.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus::graph {

/// Memory that a step takes and gives back, where it is eager. Times count what it takes and gives back before.
struct Allocation {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const char* data = nullptr;
  int64_t bytes = 0;
  int64_t begin = 0, end = kNever;  ///< it is there at the times [begin, end); never given back: what the step leaves
  int call = 0;                     ///< that follows, or whose workspace this is, by number
  bool is_workspace = false;        ///< a kernel's own
};

/// Lives until the last of its blocks is freed.
class RecordedBlocks final : public RecordedMemory, public std::enable_shared_from_this<RecordedBlocks> {
 public:
  struct Block {
    size_t bytes;
    size_t allocation;  // its number
    bool used = true, filled = false;
  };

  explicit RecordedBlocks(Device device = Device()) : device_(device), bytes_before_(allocated()) {}
  ~RecordedBlocks() override { close(); }
  RecordedBlocks(const RecordedBlocks&) = delete;
  RecordedBlocks& operator=(const RecordedBlocks&) = delete;

  DeviceType type() const override { return device_.type(); }
  /// Addresses that are nobody's block, and lead to zeros too.
  static std::shared_ptr<char> addresses(size_t bytes);
  std::shared_ptr<void> allocate(size_t bytes) override;
  void fill(void* to, const void* from, size_t bytes) override;
  /// From here on blocks that are freed go back to the system; until then no address is given twice.
  void close();

  struct Workspace {
    int64_t peak;                    ///< the most bytes that were there at a time
    std::vector<Allocation> pieces;  ///< in order
  };
  /// What is allocated from begin_workspace to end_workspace is the workspace of call `call`, and its memory goes back
  /// to the system at once.
  void begin_workspace(int call);
  Workspace end_workspace();

  /// By address, those too that are free.
  std::map<const char*, Block> blocks() const;
  /// Whether an address is in a block.
  bool contains(const char* data) const;
  std::vector<Allocation> allocations() const;
  int64_t time() const { return time_; }
  /// The most bytes at a time that were in these blocks and in those of the runtime, beyond the latter's at the start.
  int64_t peak() const { return peak_; }
  /// When that was.
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
