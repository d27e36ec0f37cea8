// Draws the images of SyntheticDigits. Not part of the public interface.
#pragma once

#include <cstdint>

namespace gradus::data {

inline constexpr int kDigitSize = 28;

/// Draws digit number `index` of `seed` into 28x28 bytes in row-major order and returns its class.
int draw_digit(uint64_t seed, uint64_t index, uint8_t* pixels);

}  // namespace gradus::data
