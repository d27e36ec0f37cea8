// One rank of a group whose other ranks do not exist. It counts the bytes that the rank would send, and gradus::plan
// reports the memory that the rank would need.
//
//   const auto group = std::make_shared<dist::RecordingGroup>(0, 64);   // rank 0 of 64
//   dist::FullyShardedDataParallel fsdp(net, group);
//   optim::Adam adam(fsdp.parameters());
//   std::cout << plan(net, {8, 1024}, adam);
#pragma once

#include <map>

#include <gradus/distributed/comm/process_group.h>

namespace gradus::dist {

/// This rank receives from each other rank what it sends to that rank. The result of a reduction is this rank's own
/// operand.
class RecordingGroup final : public ProcessGroup {
 public:
  RecordingGroup(int rank, int size) : ProcessGroup(rank, size, 0, kDefaultTimeout) {}
  std::string_view backend() const override { return "recording"; }

  /// Bytes that leave this rank in collectives of this kind. With n ranks and an array of c bytes, a broadcast sends c
  /// bytes to each rank, all_gather and reduce_scatter send (n - 1) / n * c, and all_reduce twice that.
  int64_t bytes(CollectiveKind kind) const {
    const auto found = bytes_.find(kind);
    return found == bytes_.end() ? 0 : found->second;
  }
  void reset_bytes() { bytes_.clear(); }

 protected:
  bool serves(Device) const override { return true; }
  std::string places() const override { return "all devices"; }
  void announce(const CommStatus&) noexcept override {}
  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t, Milliseconds) override {
    return std::make_unique<RecordingGroup>(rank, static_cast<int>(ranks.size()));
  }
  WorkPtr submit(const Collective& call, const Array& in, const Array& out, const CollectiveOptions& options) override;

 private:
  std::map<CollectiveKind, int64_t> bytes_;
};

}  // namespace gradus::dist
