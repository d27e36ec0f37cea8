// Where the data module draws its random numbers: offsets of the Philox stream (core/runtime/random.h) that no generator
// reaches by counting from zero. Internal to data.
#pragma once

#include <cstdint>

namespace gradus::data {

/// Order of the samples of an epoch: element i decides the i-th exchange.
constexpr uint64_t order_stream(uint64_t epoch) { return (uint64_t{1} << 63) | epoch; }
/// Seeds of the samples' generators: element i belongs to sample i.
constexpr uint64_t sample_stream(uint64_t epoch) { return (uint64_t{1} << 62) | epoch; }
/// Places in the shuffle buffer of an epoch: element i decides the i-th.
constexpr uint64_t shuffle_buffer_stream(uint64_t epoch) { return (uint64_t{1} << 60) | epoch; }
/// Shape and noise of a drawn digit.
constexpr uint64_t digit_stream(uint64_t index) { return (uint64_t{1} << 61) | index; }

}  // namespace gradus::data
