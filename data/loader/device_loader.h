// DeviceLoader copies batches to a device before the consumer asks for them. While the consumer computes with a batch,
// another thread takes the next batch from a loader and copies it on another stream from page-locked memory.
//
//   for (auto& batch : data::on_device(*loader, "cuda")) train(batch.data, batch.target);
//
// A DeviceLoader returns the batches of the loader in the loader's order. If the device is the CPU, it copies nothing.
// While it runs, call state() and wait_seconds() of the DeviceLoader, not of the loader, whose position is already
// ahead of the consumer's.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gradus/core/runtime/clock.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/data/loader/data_loader.h>
#include <gradus/data/loader/prefetcher.h>

namespace gradus::data {

namespace detail {

/// Copies the tensors of one batch to a device on a stream for uploads, and then hands them over to the consumer's
/// stream.
class Upload {
 public:
  /// If the device is a CPU, the upload copies nothing.
  explicit Upload(Device device);

  /// Starts a copy, and records an event after it.
  void add(Tensor& tensor);
  template <class Data, class Target>
  void add(Example<Data, Target>& example) {
    add(example.data);
    if constexpr (!std::is_void_v<Target>) add(example.target);
  }
  /// Makes the current stream of this thread wait for the copies. Tells the allocator that this stream uses the
  /// tensors, so that it does not reuse their memory too early.
  void hand_over();

 private:
  Device device_;
  Stream stream_;
  TensorList tensors_;
  std::optional<cuda::Event> done_;
};

}  // namespace detail

/// Iterates over epochs of a DataLoader whose batches are tensors or Examples of tensors.
template <class Loader>
class DeviceLoader : NoCopy {
 public:
  using Batch = typename Loader::Batch;

  using Iterator = BatchIterator<DeviceLoader, Batch>;

  /// Copies at most `ahead` batches to the device before their use. `loader` must outlive this object.
  DeviceLoader(Loader& loader, Device device, size_t ahead)
      : loader_(loader), device_(settled(device)), ahead_(ahead), state_(loader.state()) {}

  /// Starts the loader's next epoch.
  Iterator begin() {
    rest();
    ended_ = false;
    wait_seconds_ = 0;
    const size_t threads = device_.is_cuda() ? 1 : 0;
    prefetcher_ = make_prefetcher(
        threads, ahead_, [this] { return ended_ ? std::nullopt : std::make_optional<Prefetcher::Request>(); },
        [this](size_t, const Prefetcher::Request&) { return fetch(); });
    return Iterator(this);
  }
  Iterator end() { return {}; }

  /// The position after the last batch that the consumer got (DataLoaderBase::state). A new loader with this state
  /// continues after that batch.
  LoaderState state() const { return state_; }
  void load_state(const LoaderState& state) {
    rest();
    loader_.load_state(state);
    state_ = state;
  }
  OrderedDict<std::string, Tensor> state_dict() const { return detail::dict_of(state_); }
  void load_state_dict(const OrderedDict<std::string, Tensor>& state) { load_state(detail::state_of(state)); }
  /// Total time that the consumer waited for batches in the current or last epoch.
  double wait_seconds() const { return wait_seconds_; }

 private:
  friend Iterator;

  struct Arrived {
    Batch batch;
    detail::Upload upload;
    LoaderState state;  // the loader's state() after this batch
  };

  void rest() {
    prefetcher_.reset();
    position_.reset();
  }

  // Takes the next batch from the loader and starts its upload. Runs on the prefetcher's thread, which alone uses the
  // loader's iterator.
  std::shared_ptr<Arrived> fetch() {
    if (!position_) position_ = loader_.begin();
    else if (!(*position_ == loader_.end())) ++*position_;
    if (*position_ == loader_.end()) return nullptr;
    auto arrived = std::make_shared<Arrived>(Arrived{std::move(**position_), detail::Upload(device_), loader_.state()});
    arrived->upload.add(arrived->batch);
    return arrived;
  }
  std::shared_ptr<Batch> next() {
    const auto start = std::chrono::steady_clock::now();
    auto arrived = std::static_pointer_cast<Arrived>(prefetcher_->next());
    wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!arrived) {
      ended_ = true;
      state_ = loader_.state();  // at the end of an epoch, the prefetcher's thread no longer uses the loader
      return nullptr;
    }
    state_ = arrived->state;
    arrived->upload.hand_over();
    return {arrived, &arrived->batch};
  }

  Loader& loader_;
  Device device_;
  const size_t ahead_;
  LoaderState state_;
  double wait_seconds_ = 0;
  bool ended_ = false;  // the loader has no more batches; used only by the consumer's thread
  std::optional<typename Loader::Iterator> position_;
  std::unique_ptr<Prefetcher> prefetcher_;  // last, because its thread uses the members above
};

/// Returns a DeviceLoader that copies the loader's batches to `device`, at most `ahead` batches before their use.
template <class Loader>
DeviceLoader<Loader> on_device(Loader& loader, Device device, size_t ahead = 2) {
  return DeviceLoader<Loader>(loader, device, ahead);
}

}  // namespace gradus::data
