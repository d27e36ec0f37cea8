// TrainBatches: the training batches of a run, from a loader on the host or from a dataset that is entirely on the
// device.
#pragma once

#include <functional>
#include <memory>

#include <gradus/data/loader/device_images.h>
#include <gradus/examples/common/images.h>
#include <gradus/training/checkpoint.h>

/// This rank's parts of the batches of a training set, on the device. The samples of each epoch are in a random order
/// that depends only on the seed.
class TrainBatches {
 public:
  /// Uses a batch. Returns false to interrupt the iteration.
  using Use = std::function<bool(const gradus::TensorList& batch)>;

  virtual ~TrainBatches() = default;
  /// Calls `use` for each batch of the next epoch, or for the remaining batches of an epoch that load_state_dict()
  /// continues. Returns true at the end of the epoch, and false if `use` returned false. A batch is an argument for
  /// examples(): its tensors have a row for each image of this rank, and no rows if a small batch has no image for this
  /// rank.
  virtual bool each(const Use& use) = 0;
  /// Returns the images (B, C, H, W) and classes (B) of a batch. Does not wait for the device, so it may be part of a
  /// captured step.
  virtual gradus::data::Example<> examples(const gradus::TensorList& batch) const = 0;
  /// How long each() waited for batches in the current or last epoch.
  virtual double wait_seconds() const = 0;
  /// The position after the last batch, for a Checkpoint.
  virtual gradus::training::State state_dict() const = 0;
  virtual void load_state_dict(const gradus::training::State& state) = 0;
};

/// Batches that a loader makes on the host. While the device computes with a batch, the next batches are copied to it.
std::unique_ptr<TrainBatches> loaded_batches(std::unique_ptr<TrainLoader> loader, gradus::Device device);
/// Batches of the first `count` of these images. Only the indices of a batch's images are copied to the device; the
/// step gathers, augments and normalises the images there.
std::unique_ptr<TrainBatches> resident_batches(gradus::data::DeviceImages images, int64_t count,
                                               const gradus::data::DataLoaderOptions& options);
