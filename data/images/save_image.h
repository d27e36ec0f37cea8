// Pictures of tensors: one image or many side by side, as PNG files. Names follow torchvision.utils. Not in gradus.h.
#pragma once

#include <cstdint>
#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/core/io/file.h>

namespace gradus::data {

/// Images (N, C, H, W) or (N, H, W) in rows of `nrow`, with `padding` pixels of `pad_value` around each: one image
/// (C, …, …) of the same type. Less than one image, a row of none or negative padding are a ValueError, other shapes a
/// ShapeError.
Tensor make_grid(const Tensor& images, int64_t nrow = 8, int64_t padding = 2, double pad_value = 0);

/// A PNG file of an image (C, H, W), C = 1 grey, 3 red, green and blue, or 4 with alpha; or (H, W), grey. Bytes as they
/// are; floating-point values from 0 to 1 times 255, rounded, what lies beyond cut off. Other shapes are a ShapeError,
/// other types a DTypeError.
io::Bytes encode_image(const Tensor& image);

/// Writes that file, of several images (N, C, H, W) that of make_grid. The old file or the new one is there, whatever
/// happens.
void save_image(const Tensor& images, const std::string& path, int64_t nrow = 8, int64_t padding = 2,
                double pad_value = 0);

}  // namespace gradus::data
