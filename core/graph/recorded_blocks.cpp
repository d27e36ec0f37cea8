#include <gradus/core/graph/recorded_blocks.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include <gradus/core/ceil_div.h>
#include <gradus/core/error.h>

namespace gradus::graph {
namespace {

/// As MemoryStats counts.
int64_t counted(size_t bytes, DeviceType type) {
  return static_cast<int64_t>(type == DeviceType::cuda ? round_up(bytes, size_t{512}) : bytes);
}

}  // namespace

std::shared_ptr<void> RecordedBlocks::allocate(size_t bytes) {
  void* const data = bytes < size_t{1} << 62 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                             : MAP_FAILED;
  GRADUS_CHECK(data != MAP_FAILED, OutOfMemoryError, "a recorded step has no addresses for an array of ", bytes,
               " bytes");
  std::lock_guard lock(mutex_);
  blocks_[static_cast<char*>(data)] = {bytes};
  bytes_ += counted(bytes, device_.type);
  peak_ = std::max(peak_, bytes_ + allocated() - bytes_before_);
  return {data, [blocks = shared_from_this()](void* data) { blocks->free(data); }};
}

void RecordedBlocks::fill(void* to, const void* from, size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto behind = blocks_.upper_bound(static_cast<char*>(to));
  const auto block = behind == blocks_.begin() ? blocks_.end() : std::prev(behind);
  GRADUS_CHECK(
      block != blocks_.end() && static_cast<char*>(to) < block->first + block->second.bytes && !block->second.filled,
      DeviceError, "in a recorded step numbers from the host go into a new array alone, once: copy them to ",
      "others before the step");
  std::memcpy(to, from, bytes);
  block->second.filled = true;
}

void RecordedBlocks::free(void* data) noexcept {
  std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<char*>(data));
  bytes_ -= counted(block->second.bytes, device_.type);
  block->second.used = false;
  if (closed_) {
    munmap(data, block->second.bytes);
    blocks_.erase(block);
  }
}

void RecordedBlocks::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  std::erase_if(blocks_, [](const auto& entry) {
    const auto& [data, block] = entry;
    if (!block.used) munmap(const_cast<char*>(data), block.bytes);
    return !block.used;
  });
}

std::map<const char*, RecordedBlocks::Block> RecordedBlocks::blocks() const {
  std::lock_guard lock(mutex_);
  return blocks_;
}

}  // namespace gradus::graph
