#include <gradus/data/images/save_image.h>

#include <algorithm>
#include <span>

#include <gradus/autograd/autograd.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/io/png.h>

namespace gradus::data {

Tensor make_grid(const Tensor& images, int64_t nrow, int64_t padding, double pad_value) {
  const OpContext context("make_grid");
  GRADUS_CHECK(images.dim() == 3 || images.dim() == 4, ShapeError, "takes images (N, C, H, W) or (N, H, W), not ",
               images.sizes());
  GRADUS_CHECK(images.numel() > 0 && nrow > 0 && padding >= 0, ValueError, "needs an image, nrow of at least 1 and ",
               "padding of at least 0: images ", images.sizes(), ", nrow ", nrow, ", padding ", padding);
  const Tensor all = images.dim() == 4 ? images.detach() : images.detach().unsqueeze(1);
  const int64_t count = all.size(0), columns = std::min(nrow, count);
  const int64_t height = all.size(2) + padding, width = all.size(3) + padding;
  const Tensor grid = full({all.size(1), ceil_div(count, columns) * height + padding, columns * width + padding},
                           pad_value, all.options());
  for (int64_t i = 0; i < count; ++i)
    grid.narrow(1, i / columns * height + padding, all.size(2))
        .narrow(2, i % columns * width + padding, all.size(3))
        .copy_(all[i]);
  return grid;
}

io::Bytes encode_image(const Tensor& image) {
  const OpContext context("encode_image");
  GRADUS_CHECK(image.dim() == 2 || (image.dim() == 3 && image.size(0) <= 4 && image.size(0) != 2), ShapeError,
               "takes an image (H, W) or (C, H, W) of 1, 3 or 4 channels, not ", image.sizes());
  GRADUS_CHECK(image.dtype() == kByte || image.is_floating_point(), DTypeError, "takes bytes or floating-point values ",
               "from 0 to 1, not ", name(image.dtype()));
  Tensor pixels = image.detach().to(kCPU);
  if (pixels.is_floating_point()) pixels = (pixels.to(kFloat) * 255).round().clamp(0, 255).to(kByte);
  if (pixels.dim() == 2) pixels = pixels.unsqueeze(0);
  pixels = pixels.permute({1, 2, 0}).contiguous();
  const std::span bytes(static_cast<const std::byte*>(pixels.data_ptr()), static_cast<size_t>(pixels.numel()));
  return io::encode_png(bytes, pixels.size(0), pixels.size(1), pixels.size(2));
}

void save_image(const Tensor& images, const std::string& path, int64_t nrow, int64_t padding, double pad_value) {
  io::write_file(path, encode_image(images.dim() == 4 ? make_grid(images, nrow, padding, pad_value) : images));
}

}  // namespace gradus::data
