// A rank of a group without the others: what it would send is written down.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <gradus/distributed/comm/process_group.h>

namespace gradus::test {

/// The other ranks are taken to do as this one: they send what it sends to them, in their place.
class RecordingGroup final : public dist::ProcessGroup {
 public:
  RecordingGroup(int rank, int size) : ProcessGroup(rank, size, 0, dist::Milliseconds(1000)) {}
  std::string_view backend() const override { return "recording"; }

  /// Bytes that leave this rank, by kind, when all_reduce is a reduce_scatter and an all_gather of equal parts.
  std::map<dist::CollectiveKind, int64_t> bytes;

 protected:
  bool serves(Device device) const override { return device.is_cpu(); }
  std::string places() const override { return "the cpu"; }
  void announce(const dist::CommStatus&) noexcept override {}
  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>&, int, uint32_t, dist::Milliseconds) override {
    return nullptr;
  }
  WorkPtr submit(const dist::Collective& call, const Array& in, const Array& out,
                 const dist::CollectiveOptions&) override {
    using enum dist::CollectiveKind;
    const auto kind = call.descriptor.kind;
    const int64_t part = static_cast<int64_t>(call.descriptor.count * size_of(call.descriptor.dtype)),
                  others = size() - 1;
    const auto part_of = [&](const Array& x, int r) { return static_cast<std::byte*>(x.data()) + r * part; };
    switch (kind) {
      case all_reduce: bytes[kind] += 2 * part * others / size(); break;
      case all_gather:
        bytes[kind] += part * others;
        for (int r = 0; r < size(); ++r) std::memcpy(part_of(out, r), in.data(), static_cast<size_t>(part));
        break;
      case reduce_scatter:
        bytes[kind] += part * others;
        std::memcpy(out.data(), part_of(in, rank()), static_cast<size_t>(part));
        break;
      case all_to_all:
      case all_to_all_v:
        bytes[kind] += static_cast<int64_t>(in.nbytes() - call.in_part(rank()).size() * size_of(in.dtype()));
        std::memcpy(out.data(), in.data(), in.nbytes());
        break;
      default: GRADUS_FAIL(CommError, "a RecordingGroup does not do this");
    }
    return nullptr;
  }
};

}  // namespace gradus::test
