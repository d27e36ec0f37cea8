// The memory of arrays that a recorded step makes: addresses, behind which the system puts zeros where somebody looks.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include <gradus/core/cpu_runtime.h>

namespace gradus::graph {

/// Lives until the last of its blocks is freed.
class RecordedBlocks final : public RecordedMemory, public std::enable_shared_from_this<RecordedBlocks> {
 public:
  struct Block {
    size_t bytes;
    std::shared_ptr<RecordedBlocks> owner;  // this; null where the block is free
  };

  RecordedBlocks() : bytes_before_(allocated()) {}
  ~RecordedBlocks() override { close(); }
  RecordedBlocks(const RecordedBlocks&) = delete;
  RecordedBlocks& operator=(const RecordedBlocks&) = delete;

  void* allocate(size_t bytes) override;
  void free(void* data) noexcept override;
  /// From here on blocks that are freed go back to the system; until then no address is given twice.
  void close();

  /// By address, those too that are free.
  std::map<const char*, Block> blocks() const;
  /// The most bytes at a time that were in these blocks and in those of the runtime, beyond the latter's at the start.
  int64_t peak() const { return peak_; }

 private:
  static int64_t allocated() { return runtime(DeviceType::cpu).memory_stats(0).allocated; }

  const int64_t bytes_before_;
  mutable std::mutex mutex_;
  std::map<const char*, Block> blocks_;
  int64_t bytes_ = 0, peak_ = 0;
  bool closed_ = false;
};

}  // namespace gradus::graph
