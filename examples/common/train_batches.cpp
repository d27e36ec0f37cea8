#include <gradus/examples/common/train_batches.h>

#include <gradus/autograd/autograd.h>

using namespace gradus;

namespace {

TensorList tensors_of(const data::Example<>& batch) { return {batch.data, batch.target}; }
TensorList tensors_of(const Tensor& batch) { return {batch}; }

/// Batches of a loader, which are copied to the device before their use.
template <class Loader>
class CopiedBatches : public TrainBatches {
 public:
  /// Copies at most `ahead` batches before their use.
  CopiedBatches(std::unique_ptr<Loader> loader, Device device, size_t ahead)
      : loader_(std::move(loader)), on_device_(*loader_, device, ahead) {}

  bool each(const Use& use) override {
    for (const auto& batch : on_device_)
      if (!use(tensors_of(batch))) return false;
    return true;
  }
  double wait_seconds() const override { return on_device_.wait_seconds(); }
  training::State state_dict() const override { return on_device_.state_dict(); }
  void load_state_dict(const training::State& state) override { on_device_.load_state_dict(state); }

 private:
  const std::unique_ptr<Loader> loader_;
  data::DeviceLoader<Loader> on_device_;
};

struct LoadedBatches final : CopiedBatches<TrainLoader> {
  LoadedBatches(std::unique_ptr<TrainLoader> loader, Device device)
      : CopiedBatches(std::move(loader), device, /*ahead=*/2) {}
  data::Example<> examples(const TensorList& batch) const override { return {batch[0], batch[1]}; }
};

/// A dataset whose batches are the indices of their samples; the samples themselves are on the device.
class Numbers : public data::datasets::BatchDataset<Numbers, Tensor> {
 public:
  explicit Numbers(int64_t count) : count_(count) {}
  Tensor get_batch(const std::vector<size_t>& indices) override {
    return tensor(std::vector<int64_t>(indices.begin(), indices.end()));
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(count_); }

 private:
  int64_t count_;
};
using NumbersLoader = data::DataLoader<Numbers, data::samplers::RandomSampler>;

class ResidentBatches final : public CopiedBatches<NumbersLoader> {
 public:
  ResidentBatches(data::DeviceImages images, int64_t count, const data::DataLoaderOptions& options)
      : CopiedBatches(data::make_data_loader(Numbers(count), options), images.device(),
                      /*ahead=*/64),  // many, because they are small
        images_(std::move(images)) {}
  data::Example<> examples(const TensorList& batch) const override { return images_.batch(batch[0]); }

 private:
  const data::DeviceImages images_;
};

}  // namespace

std::unique_ptr<TrainBatches> loaded_batches(std::unique_ptr<TrainLoader> loader, Device device) {
  return std::make_unique<LoadedBatches>(std::move(loader), device);
}

std::unique_ptr<TrainBatches> resident_batches(data::DeviceImages images, int64_t count,
                                               const data::DataLoaderOptions& options) {
  return std::make_unique<ResidentBatches>(std::move(images), count, options);
}
