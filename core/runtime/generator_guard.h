// Replaces a thread's default generator.
#pragma once

#include <gradus/core/runtime/random.h>

namespace gradus {

/// Makes `generator` the default_generator() of this thread until the end of the scope. With one each, concurrent
/// threads draw numbers that do not depend on their timing.
class GeneratorGuard {
 public:
  explicit GeneratorGuard(Generator& generator);
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  Generator* const previous_;
};

/// The offset of the default generator's next draw; during a capture on this thread, the offset within the capture.
uint64_t draw_position();
void set_draw_position(uint64_t seed, uint64_t position);

}  // namespace gradus
