#include "../common/exercise.h"

class Allocator {
 public:
  /// Returns the place of a new block of `bytes` > 0 bytes: a multiple of 64, so that the block overlaps no other
  /// block.
  size_t allocate(size_t bytes) {
    // [hole] allocate: the first hole that is large enough; sizes rounded up to a multiple of 64
    bytes = (bytes + 63) / 64 * 64;
    auto hole = holes_.begin();
    while (hole->second - hole->first < bytes) ++hole;
    const auto [begin, end] = *hole;
    holes_.erase(hole);
    if (begin + bytes < end) holes_[begin + bytes] = end;
    blocks_[begin] = bytes;
    return begin;
    // [end]
  }
  /// Releases the block that allocate() put at `place`.
  void release(size_t place) {
    // [hole] release: the block becomes a hole, and holes that touch become one
    size_t begin = place, end = place + blocks_.at(place);
    blocks_.erase(place);
    const auto next = holes_.lower_bound(place);
    if (next != holes_.begin() && std::prev(next)->second == begin) begin = std::prev(next)->first;
    if (next->first == end) {
      end = next->second;
      holes_.erase(next);
    }
    holes_[begin] = end;
    // [end]
  }
  // [hole]

 private:
  std::map<size_t, size_t> holes_ = {{0, SIZE_MAX}};  // ends of holes by their begins
  std::map<size_t, size_t> blocks_;                   // sizes of blocks by their places
  // [end]
};
