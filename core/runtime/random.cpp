#include <gradus/core/runtime/random.h>

namespace gradus {

static thread_local bool capturing = false;
static thread_local uint64_t captured_draws = 0;
static thread_local const uint64_t* captured_offset = nullptr;
static thread_local constinit Generator* guarded = nullptr;  // this thread's default inside a GeneratorGuard

RandomState Generator::next() {
  if (capturing) return {seed_, captured_draws++, captured_offset};
  return {seed_, offset_.fetch_add(1), nullptr};
}

void Generator::begin_capture(const uint64_t* device_offset) {
  capturing = true;
  captured_draws = 0;
  captured_offset = device_offset;
}

uint64_t Generator::end_capture() {
  capturing = false;
  return captured_draws;
}

Generator& default_generator() {
  static Generator generator;
  return guarded ? *guarded : generator;
}

GeneratorGuard::GeneratorGuard(Generator& generator) : ScopedValue(guarded, &generator) {}

uint64_t draw_position() { return capturing ? captured_draws : default_generator().offset(); }
void set_draw_position(uint64_t seed, uint64_t position) {
  if (capturing) captured_draws = position;
  else default_generator().set_state(seed, position);
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace gradus
