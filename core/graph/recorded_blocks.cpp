#include <gradus/core/graph/recorded_blocks.h>

#include <sys/mman.h>

#include <algorithm>

namespace gradus::graph {
namespace {

char* begin_of(void* data) { return static_cast<char*>(data) - RecordedMemory::kHeader; }
size_t mapped(size_t bytes) { return bytes + RecordedMemory::kHeader; }

}  // namespace

void* RecordedBlocks::allocate(size_t bytes) {
  void* const memory = bytes < size_t{1} << 62 ? mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE,
                                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                               : MAP_FAILED;
  GRADUS_CHECK(memory != MAP_FAILED, OutOfMemoryError, "a recorded step has no addresses for an array of ", bytes,
               " bytes");
  char* const data = static_cast<char*>(memory) + kHeader;
  std::lock_guard lock(mutex_);
  blocks_[data] = {bytes, shared_from_this()};
  bytes_ += static_cast<int64_t>(bytes);
  peak_ = std::max(peak_, bytes_ + allocated() - bytes_before_);
  return data;
}

void RecordedBlocks::free(void* data) noexcept {
  std::shared_ptr<RecordedBlocks> last;  // perhaps; let go of behind the lock
  std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<char*>(data));
  bytes_ -= static_cast<int64_t>(block->second.bytes);
  last = std::move(block->second.owner);
  if (closed_) {
    munmap(begin_of(data), mapped(block->second.bytes));
    blocks_.erase(block);
  }
}

void RecordedBlocks::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  std::erase_if(blocks_, [](const auto& entry) {
    const auto& [data, block] = entry;
    if (block.owner) return false;
    munmap(begin_of(const_cast<char*>(data)), mapped(block.bytes));
    return true;
  });
}

std::map<const char*, RecordedBlocks::Block> RecordedBlocks::blocks() const {
  std::lock_guard lock(mutex_);
  return blocks_;
}

}  // namespace gradus::graph
