// Offsets in the Philox stream (core/runtime/random.h) from which the data module draws random numbers. They are so
// large that no generator reaches them by counting from zero. Not part of the public interface.
#pragma once

#include <cstdint>

namespace gradus::data {

/// The order of an epoch's samples: element i determines the i-th exchange.
constexpr uint64_t order_stream(uint64_t epoch) { return (uint64_t{1} << 63) | epoch; }
/// Seeds of the samples' generators: element i belongs to sample i.
constexpr uint64_t sample_stream(uint64_t epoch) { return (uint64_t{1} << 62) | epoch; }
/// Positions in the shuffle buffer of an epoch: element i determines the i-th position.
constexpr uint64_t shuffle_buffer_stream(uint64_t epoch) { return (uint64_t{1} << 60) | epoch; }
/// Shape and noise of a drawn digit.
constexpr uint64_t digit_stream(uint64_t index) { return (uint64_t{1} << 61) | index; }

}  // namespace gradus::data
