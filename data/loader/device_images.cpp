#include <gradus/data/loader/device_images.h>

#include <gradus/autograd/autograd.h>
#include <gradus/core/ops/ops.h>

namespace gradus::data {

DeviceImages::DeviceImages(const datasets::ImageDataset& dataset, Device device)
    : images_(Tensor(dataset.bytes()).to(device)), labels_(dataset.targets().to(device)) {
  normalize({0}, {1});
}

DeviceImages& DeviceImages::normalize(std::vector<double> mean, std::vector<double> stddev) {
  const auto channels = static_cast<size_t>(images_.size(1));
  for (std::vector<double>* numbers : {&mean, &stddev}) {
    if (numbers->size() == 1) numbers->resize(channels, numbers->front());
    GRADUS_CHECK(numbers->size() == channels, ValueError, "normalize has ", numbers->size(), " numbers for ", channels,
                 " channels");
  }
  std::vector<float> scale, shift;
  for (size_t c = 0; c < channels; ++c) {
    GRADUS_CHECK(stddev[c] > 0, ValueError, "normalize divides by a deviation of ", stddev[c]);
    scale.push_back(static_cast<float>(1 / (255 * stddev[c])));
    shift.push_back(static_cast<float>(-mean[c] / stddev[c]));
  }
  const auto per_channel = [&](const std::vector<float>& numbers) {
    return tensor(numbers, kFloat).view({1, -1, 1, 1}).to(images_.device());
  };
  scale_ = per_channel(scale);
  shift_ = per_channel(shift);
  return *this;
}

DeviceImages& DeviceImages::random_crop(int64_t padding) {
  GRADUS_CHECK(padding >= 0, ValueError, "random_crop by ", padding, " pixels");
  padding_ = padding;
  return *this;
}

DeviceImages& DeviceImages::random_horizontal_flip(double p) {
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, "random_horizontal_flip with the probability ", p);
  flip_probability_ = p;
  return *this;
}

DeviceImages& DeviceImages::cutout(int64_t length) {
  GRADUS_CHECK(length >= 0, ValueError, "cutout of ", length, " pixels");
  hole_ = length;
  return *this;
}

Tensor DeviceImages::shuffled() const { return randperm(size(), TensorOptions(kLong).device(device())); }

Example<> DeviceImages::batch(const Tensor& indices, bool augment) const {
  const NoGradGuard no_grad;
  const Tensor images = images_.index_select(0, indices).to(kFloat);  // (B, C, H, W)
  const bool moves = augment && (padding_ > 0 || flip_probability_ > 0);
  const Tensor normalised = (moves ? moved(images) : images) * scale_ + shift_;
  return {augment && hole_ > 0 ? normalised * outside_hole(images) : normalised, labels_.index_select(0, indices)};
}

// Returns shifted and mirrored images. One gather does both: pixel (h, w) of a result is pixel (rows[h], columns[w]) of
// its image, or 0 if this is outside of the image.
Tensor DeviceImages::moved(const Tensor& images) const {
  const int64_t B = images.size(0), C = images.size(1), H = images.size(2), W = images.size(3);
  const TensorOptions whole = TensorOptions(kLong).device(device());
  const auto positions = [&](int64_t size) {
    return arange(size, whole).unsqueeze(0) + randint(-padding_, padding_ + 1, {B, 1}, whole);
  };
  const Tensor rows = positions(H);  // (B, H)
  Tensor columns = positions(W);     // (B, W)
  const Tensor mirrored = rand({B, 1}, TensorOptions(kFloat).device(device())) < flip_probability_;
  columns = where(mirrored, W - 1 - columns, columns);
  const auto inside = [](const Tensor& at, int64_t size) { return at.ge(0).logical_and(at.lt(size)); };
  const Tensor visible = inside(rows, H).unsqueeze(2).logical_and(inside(columns, W).unsqueeze(1));  // (B, H, W)
  const Tensor from = rows.clamp(0, H - 1).unsqueeze(2) * W + columns.clamp(0, W - 1).unsqueeze(1);  // (B, H, W)
  const Tensor pixels = images.view({B, C, H * W}).gather(2, from.view({B, 1, H * W}).expand({B, C, H * W}));
  return pixels.view({B, C, H, W}) * visible.unsqueeze(1);
}

/// Returns a mask (B, 1, H, W) for images (B, C, H, W). It is 0 in a random square of each image and 1 elsewhere.
Tensor DeviceImages::outside_hole(const Tensor& images) const {
  const int64_t B = images.size(0);
  const TensorOptions whole = TensorOptions(kLong).device(device());
  const auto covered = [&](int64_t size) {  // (B, size)
    const Tensor first = randint(0, size, {B, 1}, whole) - hole_ / 2;
    const Tensor positions = arange(size, whole).unsqueeze(0);
    return positions.ge(first).logical_and(positions.lt(first + hole_));
  };
  const Tensor rows = covered(images.size(2));
  return rows.unsqueeze(2).logical_and(covered(images.size(3)).unsqueeze(1)).logical_not().unsqueeze(1);
}

}  // namespace gradus::data
