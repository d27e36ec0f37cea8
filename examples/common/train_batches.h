// Where the training batches of a run come from: a loader on the host, or a set that lies on the device whole.
#pragma once

#include <functional>
#include <memory>

#include <gradus/data/loader/device_images.h>
#include <gradus/examples/common/images.h>
#include <gradus/training/checkpoint.h>

/// This rank's parts of the batches of a training set in random order, epoch by epoch, on the device. The order depends
/// on the seed alone.
class TrainBatches {
 public:
  /// Does something with a batch; false: that is enough for now.
  using Use = std::function<bool(const gradus::TensorList& batch)>;

  virtual ~TrainBatches() = default;
  /// Hands on the next epoch, or what is left of the one that load_state_dict() took up. True when it came to its end,
  /// false when `use` had enough. A batch is what examples() takes; its tensors have a row for each image, none where a
  /// small batch has no image for this rank.
  virtual bool each(const Use& use) = 0;
  /// The images (B, C, H, W) and classes (B) of a batch. Nothing here waits, so it may be part of a captured step.
  virtual gradus::data::Example<> examples(const gradus::TensorList& batch) const = 0;
  /// How long each() has waited for batches in the epoch that began last.
  virtual double wait_seconds() const = 0;
  /// The position behind the last batch, for checkpoints.
  virtual gradus::training::State state_dict() const = 0;
  virtual void load_state_dict(const gradus::training::State& state) = 0;
};

/// Batches that the loader makes on the host; while one is computed with, the next are copied to the device.
std::unique_ptr<TrainBatches> loaded_batches(std::unique_ptr<TrainLoader> loader, gradus::Device device);
/// Batches of the first `count` of these images. What is sent to the device are the numbers of a batch's images: there
/// they are gathered, augmented and normalised in the step.
std::unique_ptr<TrainBatches> resident_batches(gradus::data::DeviceImages images, int64_t count,
                                               const gradus::data::DataLoaderOptions& options);
