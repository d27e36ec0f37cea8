// DeviceImages: a small image dataset whose images are all in the memory of a device. The device also gathers, augments
// and normalises batches, so nothing is copied from the host for a batch.
//
//   data::DeviceImages images(train, "cuda");
//   images.random_crop(4).random_horizontal_flip().normalize({0.49, 0.48, 0.45}, {0.25, 0.24, 0.26});
//   for (const Tensor& indices : images.shuffled().split(128)) {
//     auto batch = images.batch(indices);            // batch.data (128, C, H, W), batch.target (128)
//   }
//
// batch() does not wait for the device, so it can be part of a captured step. Its random numbers come from the default
// generator and are the same on every device.
#pragma once

#include <vector>

#include <gradus/data/datasets/image_dataset.h>

namespace gradus::data {

class DeviceImages {
 public:
  /// Copies the images to the device as bytes, which take a quarter of the memory that float32 would take.
  DeviceImages(const datasets::ImageDataset& dataset, Device device);

  /// Makes batch() compute (x - mean) / stddev of the pixel values x in [0, 1] (transforms::Normalize). Takes one mean
  /// and stddev for each channel, or one for all channels.
  DeviceImages& normalize(std::vector<double> mean, std::vector<double> stddev);
  /// Makes batch() shift each image by up to `padding` pixels horizontally and vertically. Pixels from outside of the
  /// image are black (transforms::RandomCrop with padding).
  DeviceImages& random_crop(int64_t padding);
  /// Makes batch() mirror each image horizontally with probability `p`.
  DeviceImages& random_horizontal_flip(double p = 0.5);
  /// Makes batch() set a square with sides of `length` pixels around a random pixel of each normalised image to 0; the
  /// square may extend beyond the image (transforms::Cutout after Normalize). A length of 0 disables this.
  DeviceImages& cutout(int64_t length);

  int64_t size() const { return images_.size(0); }
  Device device() const { return images_.device(); }
  /// The indices of all samples in a new random order, (N) int64 on the device, for an epoch.
  Tensor shuffled() const;
  /// Returns images (B, C, H, W) float32 and classes (B) of the samples `indices`, (B) int64 on the device in [0,
  /// size()). If `augment` is false, skips the random changes, as for testing.
  Example<> batch(const Tensor& indices, bool augment = true) const;

 private:
  Tensor moved(const Tensor& images) const;
  Tensor outside_hole(const Tensor& images) const;

  Tensor images_, labels_;
  Tensor scale_, shift_;  // (1, C, 1, 1): normalised images are bytes * scale_ + shift_
  int64_t padding_ = 0, hole_ = 0;
  double flip_probability_ = 0;
};

}  // namespace gradus::data
