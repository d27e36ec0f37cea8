#include <gradus/graph/recorded_blocks.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include <gradus/core/error.h>
#include <gradus/core/platform/process.h>

namespace gradus::graph {
namespace {

char* map(size_t bytes) {
  char* const data = platform::map_memory(bytes);
  GRADUS_CHECK(data, OutOfMemoryError, "there are no addresses left for an array of ", bytes,
               " bytes in a recorded step");
  return data;
}

}  // namespace

std::shared_ptr<char> RecordedBlocks::addresses(size_t bytes) {
  return {map(bytes), [bytes](char* data) { platform::unmap_memory(data, bytes); }};
}

std::shared_ptr<void> RecordedBlocks::allocate(size_t bytes) {
  char* const data = map(bytes);
  const int64_t count = counted_bytes(bytes, device_.type());
  std::lock_guard lock(mutex_);
  blocks_[data] = {bytes, allocations_.size()};
  allocations_.push_back({data, count, time_++, Allocation::kNever, call_, in_workspace_});
  bytes_ += count;
  if (in_workspace_) workspace_peak_ = std::max(workspace_peak_, workspace_ += count);
  if (const int64_t now = bytes_ + allocated() - bytes_before_; now > peak_) peak_ = now, peak_time_ = time_ - 1;
  return {data, [blocks = shared_from_this()](void* data) { blocks->free(data); }};
}

void RecordedBlocks::fill(void* to, const void* from, size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto behind = blocks_.upper_bound(static_cast<char*>(to));
  const auto block = behind == blocks_.begin() ? blocks_.end() : std::prev(behind);
  GRADUS_CHECK(
      block != blocks_.end() && static_cast<char*>(to) < block->first + block->second.bytes && !block->second.filled,
      DeviceError, "a recorded step can copy values from the host only into a new array, and only once: ",
      "fill other arrays before the step");
  std::memcpy(to, from, bytes);
  block->second.filled = true;
}

void RecordedBlocks::free(void* data) noexcept {
  std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<char*>(data));
  Allocation& allocation = allocations_[block->second.allocation];
  bytes_ -= allocation.bytes;
  if (allocation.is_workspace) workspace_ -= allocation.bytes;
  if (!closed_) allocation.end = time_++;
  block->second.used = false;
  if (closed_ || allocation.is_workspace) {
    platform::unmap_memory(data, block->second.bytes);
    blocks_.erase(block);
  }
}

void RecordedBlocks::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  std::erase_if(blocks_, [](const auto& entry) {
    const auto& [data, block] = entry;
    if (!block.used) platform::unmap_memory(const_cast<char*>(data), block.bytes);
    return !block.used;
  });
}

void RecordedBlocks::begin_workspace(int call) {
  std::lock_guard lock(mutex_);
  call_ = call, in_workspace_ = true, workspace_begin_ = allocations_.size(), workspace_peak_ = workspace_ = 0;
}

RecordedBlocks::Workspace RecordedBlocks::end_workspace() {
  std::lock_guard lock(mutex_);
  ++call_, in_workspace_ = false;
  return {workspace_peak_, {allocations_.begin() + static_cast<std::ptrdiff_t>(workspace_begin_), allocations_.end()}};
}

std::map<const char*, RecordedBlocks::Block> RecordedBlocks::blocks() const {
  std::lock_guard lock(mutex_);
  return blocks_;
}

bool RecordedBlocks::contains(const char* data) const {
  std::lock_guard lock(mutex_);
  const auto behind = blocks_.upper_bound(data);
  if (behind == blocks_.begin()) return false;
  const auto& [begin, block] = *std::prev(behind);
  return data < begin + block.bytes;
}

std::vector<Allocation> RecordedBlocks::allocations() const {
  std::lock_guard lock(mutex_);
  return allocations_;
}

}  // namespace gradus::graph
