// The memory of arrays that a recorded step makes: addresses, behind which the system puts zeros where somebody looks.
// On a GPU, too, they are addresses of the host, which no device has.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include <gradus/core/recorded_memory.h>
#include <gradus/core/runtime.h>

namespace gradus::graph {

/// Lives until the last of its blocks is freed.
class RecordedBlocks final : public RecordedMemory, public std::enable_shared_from_this<RecordedBlocks> {
 public:
  struct Block {
    size_t bytes;
    bool used = true, filled = false;
  };

  explicit RecordedBlocks(Device device) : device_(device), bytes_before_(allocated()) {}
  ~RecordedBlocks() override { close(); }
  RecordedBlocks(const RecordedBlocks&) = delete;
  RecordedBlocks& operator=(const RecordedBlocks&) = delete;

  DeviceType type() const override { return device_.type; }
  std::shared_ptr<void> allocate(size_t bytes) override;
  void fill(void* to, const void* from, size_t bytes) override;
  /// From here on blocks that are freed go back to the system; until then no address is given twice.
  void close();

  /// By address, those too that are free.
  std::map<const char*, Block> blocks() const;
  /// The most bytes at a time that were in these blocks and in those of the runtime, beyond the latter's at the start.
  int64_t peak() const { return peak_; }

 private:
  void free(void* data) noexcept;
  int64_t allocated() const { return runtime(device_.type).memory_stats(device_.index).allocated; }

  const Device device_;
  const int64_t bytes_before_;
  mutable std::mutex mutex_;
  std::map<const char*, Block> blocks_;
  int64_t bytes_ = 0, peak_ = 0;
  bool closed_ = false;
};

}  // namespace gradus::graph
