// Storage: bytes on a device, which all views of an array share, and the version counter that counts writes to them.
#pragma once

#include <cstddef>
#include <functional>

#include <gradus/core/array/intrusive.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus {

/// Owner of a block of bytes. Views and detach() share it, and with it the version counter.
class Storage {
 public:
  Storage() = default;
  /// Allocates `bytes` uninitialised bytes (on the CPU filled with NaN patterns in debug builds) from the device's
  /// caching allocator.
  static Storage allocate(size_t bytes, Device device);
  /// Wraps bytes that the caller allocated. `deleter`, which may be empty, is called with `data` when the last owner
  /// releases them.
  static Storage adopt(void* data, size_t bytes, Device device, std::function<void(void*)> deleter);
  /// Allocates page-locked host memory for asynchronous copies to cuda.
  static Storage allocate_pinned(size_t bytes);

  /// A part of this storage that holds an unrelated tensor. It shares the memory and keeps it alive, but has its own
  /// version counter. Used for gradient buckets and flat parameters.
  Storage slice(size_t byte_offset, size_t bytes) const;

  explicit operator bool() const { return static_cast<bool>(impl_); }
  void* data() const { return impl_ ? impl_->data : nullptr; }
  size_t bytes() const { return impl_ ? impl_->bytes : 0; }
  Device device() const { return impl_ ? impl_->device : Device(); }
  bool pinned() const { return impl_ && impl_->pinned; }
  uint32_t use_count() const { return impl_ ? impl_->use_count() : 0; }
  /// True if only this handle refers to the bytes, so that it may overwrite them: they come from the allocator, no
  /// other handle or slice shares them, and record_stream has announced no other stream.
  bool is_exclusive() const { return use_count() == 1 && impl_->runtime && !impl_->on_other_streams; }

  /// Number of in-place writes so far.
  uint32_t version() const { return impl_ ? impl_->version.load(std::memory_order_relaxed) : 0; }
  void bump_version() const {
    if (impl_) impl_->version.fetch_add(1, std::memory_order_relaxed);
  }
  /// Prevents the bytes from being reused until the work queued on `stream` is complete.
  void record_stream(const Stream& stream) const;

  friend bool operator==(const Storage& a, const Storage& b) { return a.impl_ == b.impl_; }

 private:
  struct Impl : RefCounted {
    Impl(void* data_, size_t bytes_, Device device_) : data(data_), bytes(bytes_), device(device_) {}
    void* data;
    size_t bytes;
    Device device;
    bool pinned = false;
    std::atomic<uint32_t> version{0};
    std::atomic<bool> on_other_streams{false};
    DeviceRuntime* runtime = nullptr;    // if set, it frees `data`
    Ref<Impl> parent;                    // set for a slice: owns the memory
    std::function<void(void*)> deleter;  // frees adopted memory
    ~Impl();
  };
  Ref<Impl> impl_;
};

}  // namespace gradus
