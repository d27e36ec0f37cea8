// Writes tensors as PNG files: one image, or many in a grid. Names follow torchvision.utils. Not included by gradus.h.
#pragma once

#include <cstdint>
#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/core/platform/file.h>

namespace gradus::data {

/// Arranges images (N, C, H, W) or (N, H, W) in rows of `nrow`, with `padding` pixels of `pad_value` around each, to
/// one image (C, …, …) of the same type. No images, nrow below 1 or negative padding are a ValueError, other shapes a
/// ShapeError.
Tensor make_grid(const Tensor& images, int64_t nrow = 8, int64_t padding = 2, double pad_value = 0);

/// Encodes an image as PNG: (C, H, W) with C = 1 (grey), 3 (red, green, blue) or 4 (with alpha), or (H, W), grey. Bytes
/// are used unchanged; floating-point values in [0, 1] are clamped, multiplied by 255 and rounded. Other shapes are a
/// ShapeError, other types a DTypeError.
io::Bytes encode_image(const Tensor& image);

/// Writes a PNG file, of the grid of make_grid for several images (N, C, H, W). If this fails, an existing file remains
/// intact.
void save_image(const Tensor& images, const std::string& path, int64_t nrow = 8, int64_t padding = 2,
                double pad_value = 0);

}  // namespace gradus::data
