#include <gradus/core/array/storage.h>

#include <cstring>

#include <gradus/core/runtime/recorded_memory.h>

namespace gradus {

// Allocates from this thread's RecordedMemory. Returns an empty Storage if the runtime should allocate instead. Not
// inlined, to keep allocate() small.
[[gnu::noinline]] static Storage allocate_recorded(size_t bytes, Device device) {
  const std::shared_ptr<void> block = recorded_memory_of(device.type())->allocate(bytes);
  if (!block) return {};
  return Storage::adopt(block.get(), bytes, settled(device), [block](void*) {});  // the deleter keeps the block alive
}

Storage Storage::allocate(size_t bytes, Device device) {
  if (detail::recorded_memory && recorded_memory_of(device.type()) && bytes > 0) [[unlikely]] {
    if (Storage recorded = allocate_recorded(bytes, device)) {
      recorded.impl_->runtime = &runtime(device.type());
      return recorded;
    }
  }
  Storage storage;
  DeviceRuntime& owner = runtime(device.type());
  const Stream stream = owner.current_stream(device.index());
  storage.impl_ = make_ref<Impl>(nullptr, bytes, stream.device);  // not `device`: its index may be -1
  if (bytes == 0) return storage;
  storage.impl_->data = owner.allocate(bytes, stream);
  storage.impl_->runtime = &owner;
#ifndef NDEBUG
  if (device.is_cpu()) std::memset(storage.impl_->data, 0xff, bytes);  // all bits set is NaN in every floating type
#endif
  return storage;
}

Storage Storage::adopt(void* data, size_t bytes, Device device, std::function<void(void*)> deleter) {
  Storage storage;
  storage.impl_ = make_ref<Impl>(data, bytes, device);
  storage.impl_->deleter = std::move(deleter);
  return storage;
}

Storage Storage::allocate_pinned(size_t bytes) {
  check_not_recording(DeviceType::cpu, "page-locked memory");
  DeviceRuntime* cuda = find_runtime(DeviceType::cuda);
  DeviceRuntime& owner = cuda ? *cuda : runtime(DeviceType::cpu);
  Storage storage = adopt(bytes ? owner.allocate_pinned(bytes) : nullptr, bytes, Device(),
                          [&owner](void* data) { owner.free_pinned(data); });
  storage.impl_->pinned = true;
  return storage;
}

Storage Storage::slice(size_t byte_offset, size_t bytes) const {
  GRADUS_CHECK(byte_offset <= this->bytes() && bytes <= this->bytes() - byte_offset, ShapeError, "storage slice of ",
               bytes, " bytes at ", byte_offset, " does not fit in ", this->bytes(), " bytes");
  Storage part;
  part.impl_ = make_ref<Impl>(static_cast<char*>(data()) + byte_offset, bytes, device());
  part.impl_->pinned = pinned();
  part.impl_->parent = impl_;
  return part;
}

void Storage::record_stream(const Stream& stream) const {
  if (!impl_) return;
  Impl* owner = impl_.get();
  while (owner->parent) owner = owner->parent.get();
  owner->on_other_streams = true;
  if (owner->runtime) owner->runtime->record_stream(owner->data, stream);
}

Storage::Impl::~Impl() {
  if (deleter) deleter(data);
  else if (runtime) runtime->free(data);
}

}  // namespace gradus
