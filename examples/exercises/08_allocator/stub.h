#include "../common/exercise.h"

class Allocator {
 public:
  /// The place of a new block of `bytes` > 0: a multiple of 64, where no other living block lies.
  size_t allocate(size_t bytes) {
    todo("allocate: the first hole that is large enough; sizes rounded up to a multiple of 64");
  }
  /// Gives back the block that allocate put at `place`.
  void release(size_t place) { todo("release: the block becomes a hole, and holes that touch become one"); }
};
