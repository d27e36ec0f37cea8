#include <gradus/distributed/comm/local/recording_group.h>

#include <algorithm>

#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/distributed/comm/host_group.h>

namespace gradus::dist {
namespace {

/// Copies part `from` of x to part `to` of y, unless they are the same memory or the device only records calls without
/// running them (is_recording).
void copy_part(const Array& x, int64_t from, const Array& y, int64_t to, size_t bytes) {
  const Device device = x.device();
  if (is_recording(device.type()) || bytes == 0) return;
  auto* source = static_cast<std::byte*>(x.data()) + from * static_cast<int64_t>(bytes);
  auto* target = static_cast<std::byte*>(y.data()) + to * static_cast<int64_t>(bytes);
  if (source != target) runtime(device.type()).copy(target, device, source, device, bytes, /*non_blocking=*/true);
}

}  // namespace

ProcessGroup::WorkPtr RecordingGroup::submit(const Collective& call, const Array& in, const Array& out,
                                             const CollectiveOptions&) {
  using enum CollectiveKind;
  Collective numbered = call;
  take_number(&numbered);
  const CollectiveKind kind = call.descriptor.kind;
  const size_t part = call.descriptor.count * size_of(call.descriptor.dtype);
  const auto bytes = static_cast<int64_t>(part), others = int64_t{size()} - 1;
  switch (kind) {
    case all_reduce: bytes_[kind] += 2 * bytes * others / size(); break;
    case broadcast: bytes_[kind] += in.defined() ? bytes * others : 0; break;
    case all_gather:
      bytes_[kind] += bytes * others;
      for (int r = 0; r < size(); ++r) copy_part(in, 0, out, r, part);
      break;
    case reduce_scatter:
      bytes_[kind] += bytes * others;
      copy_part(in, rank(), out, 0, part);
      break;
    case all_to_all:
    case all_to_all_v:
      bytes_[kind] += static_cast<int64_t>(in.nbytes() - call.in_part(rank()).size() * size_of(in.dtype()));
      copy_part(in, 0, out, 0, std::min(in.nbytes(), out.nbytes()));
      break;
    case all_gather_v:
      bytes_[kind] += static_cast<int64_t>(in.nbytes()) * others;
      for (int r = 0; r < size(); ++r) {  // a longer part gets zeros at its end
        const Range part = call.out_part(r);
        const Array to =
            out.view({out.numel()}).slice(0, static_cast<int64_t>(part.begin), static_cast<int64_t>(part.end));
        if (to.nbytes() > in.nbytes() && !is_recording(in.device().type())) ops::fill(to, 0);
        copy_part(in, 0, to, 0, std::min(in.nbytes(), to.nbytes()));
      }
      break;
    case barrier: break;
    default: GRADUS_FAIL(CommError, "a RecordingGroup does not support ", name(kind));
  }
  const auto work = std::make_shared<HostWork>(numbered.descriptor.sequence);
  work->finish({});
  return work;
}

}  // namespace gradus::dist
