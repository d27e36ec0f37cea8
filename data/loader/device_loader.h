// Transfers batches to a device ahead of their use. While the consumer computes with a batch, a separate thread takes
// the next one from a loader and copies it from page-locked memory on a separate stream.
//
//   for (auto& batch : data::on_device(*loader, "cuda")) train(batch.data, batch.target);
//
// The batches are those of the loader, in its order. On the CPU they are passed through without a copy. The loader is
// ahead of the consumer, so the consumer's position and waiting time are state() and wait_seconds() of this class.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gradus/core/runtime/clock.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/data/example.h>
#include <gradus/data/loader/data_loader.h>
#include <gradus/data/loader/prefetcher.h>

namespace gradus::data {

namespace detail {

/// Copies the tensors of one batch to a device and makes them usable on another stream.
class Upload {
 public:
  /// If the device is a CPU, nothing is copied.
  explicit Upload(Device device);

  void add(Tensor& tensor);
  template <class Data, class Target>
  void add(Example<Data, Target>& example) {
    add(example.data);
    if constexpr (requires { example.target; }) add(example.target);
  }
  /// Marks the end of the copies.
  void close();
  /// Makes this thread's stream wait for the copies. The tensors belong to that stream from then on.
  void hand_over();

 private:
  Device device_;
  Stream stream_;
  std::vector<Tensor> tensors_;
  std::optional<cuda::Event> done_;
};

}  // namespace detail

/// Iterates over epochs of `Loader`, a DataLoader whose batches are tensors or Examples of tensors.
template <class Loader>
class DeviceLoader {
 public:
  using Batch = typename Loader::Batch;

  using Iterator = BatchIterator<DeviceLoader, Batch>;

  /// At most `ahead` batches wait on the device. `loader` must outlive this object.
  DeviceLoader(Loader& loader, Device device, size_t ahead)
      : loader_(loader), device_(settled(device)), ahead_(ahead), state_(loader.state()) {}
  DeviceLoader(const DeviceLoader&) = delete;
  DeviceLoader& operator=(const DeviceLoader&) = delete;

  /// Starts the loader's next epoch.
  Iterator begin() {
    rest();
    ended_ = false;
    wait_seconds_ = 0;
    const size_t threads = device_.is_cuda() ? 1 : 0;
    prefetcher_ = std::make_unique<Prefetcher>(
        threads, ahead_, [this] { return ended_ ? std::nullopt : std::make_optional<Prefetcher::Request>(); },
        [this](size_t, const Prefetcher::Request&) { return fetch(); });
    return Iterator(this);
  }
  Iterator end() { return {}; }

  /// The position after the last batch that the consumer got, as in DataLoader. A new loader with this state continues
  /// there.
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
    LoaderState state;  // the loader's state after this batch
  };

  void rest() {
    prefetcher_.reset();
    position_.reset();
  }

  // Runs on the prefetcher's thread, the only one that uses the loader's iterator.
  std::shared_ptr<Arrived> fetch() {
    if (!position_) position_ = loader_.begin();
    else if (!(*position_ == loader_.end())) ++*position_;
    if (*position_ == loader_.end()) return nullptr;
    auto arrived = std::make_shared<Arrived>(Arrived{std::move(**position_), detail::Upload(device_), loader_.state()});
    arrived->upload.add(arrived->batch);
    arrived->upload.close();
    return arrived;
  }
  std::shared_ptr<Batch> next() {
    const auto start = std::chrono::steady_clock::now();
    auto arrived = std::static_pointer_cast<Arrived>(prefetcher_->next());
    wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!arrived) {
      ended_ = true;
      state_ = loader_.state();  // at the end of the epoch that thread no longer changes it
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
  bool ended_ = false;  // the loader has no more batches; read only by the consumer's thread
  std::optional<typename Loader::Iterator> position_;
  std::unique_ptr<Prefetcher> prefetcher_;  // last, because its thread uses the members above
};

/// Moves the loader's batches to `device`, at most `ahead` of them before their use.
template <class Loader>
DeviceLoader<Loader> on_device(Loader& loader, Device device, size_t ahead = 2) {
  return DeviceLoader<Loader>(loader, device, ahead);
}

}  // namespace gradus::data
