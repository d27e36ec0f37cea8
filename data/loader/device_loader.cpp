#include <gradus/data/loader/device_loader.h>

#include <cstring>
#include <map>
#include <mutex>

#include <gradus/core/ops/ops.h>

namespace gradus::data::detail {
namespace {

// Copies an array to page-locked memory, because only from there can a copy to the device be asynchronous.
Array pinned(const Array& x) {
  if (x.storage().pinned() || x.numel() == 0) return x;
  const Array dense =
      ops::contiguous(x, x.is_contiguous(MemoryFormat::channels_last) && x.ndim() == 4 ? MemoryFormat::channels_last
                                                                                       : MemoryFormat::contiguous);
  const Array copy(Storage::allocate_pinned(dense.nbytes()), 0, dense.shape(), dense.strides(), dense.dtype());
  std::memcpy(copy.data(), dense.data(), dense.nbytes());
  return copy;
}

// Returns the stream of all uploads to a device. All loaders share one stream, because streams are never destroyed, so
// a stream for each loader would be a leak.
Stream upload_stream(Device device) {
  static std::mutex mutex;
  static std::map<int, Stream> streams;
  std::lock_guard lock(mutex);
  const auto [entry, is_new] = streams.try_emplace(device.index());
  if (is_new) entry->second = cuda::new_stream(device.index());
  return entry->second;
}

}  // namespace

Upload::Upload(Device device) : device_(device) {
  if (device.is_cuda()) stream_ = upload_stream(device);
}

void Upload::add(Tensor& tensor) {
  if (!device_.is_cuda() || !tensor.defined() || tensor.device() == device_) return;
  const cuda::StreamGuard guard(stream_);
  tensor = Tensor(ops::to_device(pinned(tensor.array()), device_, /*non_blocking=*/true));
  tensors_.push_back(tensor);
  if (!done_) done_.emplace();
  done_->record(stream_);  // the last record counts
}

void Upload::hand_over() {
  if (!done_) return;
  const Stream user = cuda::current_stream(device_.index());
  done_->wait(user);
  for (const Tensor& tensor : tensors_) tensor.array().storage().record_stream(user);
  tensors_.clear();
  done_.reset();
}

}  // namespace gradus::data::detail
