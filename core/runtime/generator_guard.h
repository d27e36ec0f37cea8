// Another default generator for a thread.
#pragma once

#include <gradus/core/runtime/random.h>

namespace gradus {

/// Makes `generator` what default_generator() is on this thread until the end of the scope: threads that work side by
/// side draw numbers that do not depend on who comes first.
class GeneratorGuard {
 public:
  explicit GeneratorGuard(Generator& generator);
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  Generator* const previous_;
};

/// The number of the default generator's next draw: in a capture on this thread the capture's own.
uint64_t draw_position();
void set_draw_position(uint64_t seed, uint64_t position);

}  // namespace gradus
