// A small set of images that lives on a device whole: batches are gathered, augmented and normalised there, and the
// host sends nothing but the command to.
//
//   data::DeviceImages images(train, "cuda");
//   images.random_crop(4).random_horizontal_flip().normalize({0.49, 0.48, 0.45}, {0.25, 0.24, 0.26});
//   for (const Tensor& indices : images.shuffled().split(128)) {
//     auto batch = images.batch(indices);            // batch.data (128, C, H, W), batch.target (128)
//   }
//
// Nothing here waits for the device, so batch() may be part of a captured step; random numbers are the default
// generator's, the same on every device.
#pragma once

#include <vector>

#include <gradus/data/datasets/image_dataset.h>
#include <gradus/data/example.h>

namespace gradus::data {

class DeviceImages {
 public:
  /// Copies the images as the bytes that they are kept as: a quarter of float32.
  DeviceImages(const datasets::ImageDataset& dataset, Device device);

  /// (x - mean) / stddev of the values in [0, 1], a number a channel or one for all (transforms::Normalize).
  DeviceImages& normalize(std::vector<double> mean, std::vector<double> stddev);
  /// Each image shifted by up to `padding` pixels in either direction, black where nothing was (RandomCrop with
  /// padding).
  DeviceImages& random_crop(int64_t padding);
  /// Each image mirrored with probability `p`.
  DeviceImages& random_horizontal_flip(double p = 0.5);
  /// A square of `length` pixels about a random middle, as far as it is within the image, becomes 0 after normalize
  /// (transforms::Cutout behind Normalize); 0: none.
  DeviceImages& cutout(int64_t length);

  int64_t size() const { return images_.size(0); }
  Device device() const { return images_.device(); }
  /// The numbers of all samples in random order, (N) int64 on the device: an epoch.
  Tensor shuffled() const;
  /// Images (B, C, H, W) float32 and classes (B) of these samples; `indices` (B) int64 on the device, in [0, size()).
  /// Without `augment` the random steps are left out, as for testing.
  Example<> batch(const Tensor& indices, bool augment = true) const;

 private:
  Tensor moved(const Tensor& images) const;
  Tensor outside_hole(const Tensor& images) const;

  Tensor images_, labels_;
  Tensor scale_, shift_;  // (1, C, 1, 1): bytes times scale_ plus shift_ are what a net sees
  int64_t padding_ = 0, hole_ = 0;
  double flip_probability_ = 0;
};

}  // namespace gradus::data
