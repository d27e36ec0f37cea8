// A small image dataset that is kept entirely on a device. Batches are gathered, augmented and normalised there; the
// host transfers no data.
//
//   data::DeviceImages images(train, "cuda");
//   images.random_crop(4).random_horizontal_flip().normalize({0.49, 0.48, 0.45}, {0.25, 0.24, 0.26});
//   for (const Tensor& indices : images.shuffled().split(128)) {
//     auto batch = images.batch(indices);            // batch.data (128, C, H, W), batch.target (128)
//   }
//
// Nothing here waits for the device, so batch() can be part of a captured step. Random numbers come from the default
// generator and are the same on every device.
#pragma once

#include <vector>

#include <gradus/data/datasets/image_dataset.h>
#include <gradus/data/example.h>

namespace gradus::data {

class DeviceImages {
 public:
  /// Copies the images to the device as bytes, which need a quarter of the memory of float32.
  DeviceImages(const datasets::ImageDataset& dataset, Device device);

  /// Computes (x - mean) / stddev of the values in [0, 1], with one number for each channel or one for all
  /// (transforms::Normalize).
  DeviceImages& normalize(std::vector<double> mean, std::vector<double> stddev);
  /// Shifts each image by up to `padding` pixels in both directions and fills with black (RandomCrop with padding).
  DeviceImages& random_crop(int64_t padding);
  /// Mirrors each image with probability `p`.
  DeviceImages& random_horizontal_flip(double p = 0.5);
  /// Sets a square of `length` pixels around a random centre to 0 after normalize, as far as it is within the image
  /// (transforms::Cutout after Normalize). 0 disables it.
  DeviceImages& cutout(int64_t length);

  int64_t size() const { return images_.size(0); }
  Device device() const { return images_.device(); }
  /// The indices of all samples in random order, (N) int64 on the device: one epoch.
  Tensor shuffled() const;
  /// Returns images (B, C, H, W) float32 and classes (B) of the samples `indices`, (B) int64 on the device in [0,
  /// size()). If `augment` is false, the random steps are skipped, as for testing.
  Example<> batch(const Tensor& indices, bool augment = true) const;

 private:
  Tensor moved(const Tensor& images) const;
  Tensor outside_hole(const Tensor& images) const;

  Tensor images_, labels_;
  Tensor scale_, shift_;  // (1, C, 1, 1): a net's input is bytes * scale_ + shift_
  int64_t padding_ = 0, hole_ = 0;
  double flip_probability_ = 0;
};

}  // namespace gradus::data
