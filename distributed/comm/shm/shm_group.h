// The process group of ranks on one host, which read each other's memory instead of sending messages.
//
// Every rank has slots in memory that all ranks map. To exchange a piece of data, each rank copies its contribution
// into a slot, all ranks pass a fence (a barrier), and each rank reads what it needs from the slots of the others. A
// rank uses its slots in turn, so one fence for each piece is enough: before it writes to a slot again, all ranks have
// passed a later fence, and therefore have read the slot.
#pragma once

#include <atomic>

#include <gradus/distributed/comm/host_group.h>
#include <gradus/distributed/comm/shm/shared_memory.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

struct ShmOptions {
  Milliseconds timeout = kDefaultTimeout;
  uint32_t epoch = 0;
};

class ShmGroup final : public HostGroup {
 public:
  /// Meets the other ranks through the store, which must outlive the group. Throws a CommError if the ranks are not all
  /// on this host, and a ValueError if there are more than kMaxRanksOfHost.
  ShmGroup(Store& store, int rank, int size, const ShmOptions& options = {})
      : ShmGroup(borrow(store), rank, size, options) {}
  /// The same with a store that the group keeps.
  ShmGroup(std::shared_ptr<Store> store, int rank, int size, const ShmOptions& options);
  ~ShmGroup() override;

  std::string_view backend() const override { return "shm"; }
  /// On the CPU, returns an array in memory that all ranks map: all_reduce() of such arrays copies nothing.
  Array empty(const Shape& shape, DType dtype, Device device = {}) override;

 private:
  struct Header;    // the beginning of the shared memory; says which failure ended the group
  struct RankLine;  // what a rank publishes about itself
  struct CallRecord;
  struct Mailbox;
  /// Where the array of a call is: at `offset` in this rank's part of bucket number `bucket`, or in no bucket (-1).
  struct Place {
    int32_t bucket = -1;
    uint64_t offset = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  /// Where the arrays of all ranks are: all outside of buckets (own), all at the same place of the same bucket
  /// (shared), or at different places (mixed).
  enum class Arrays { own, shared, mixed };
  /// Shared memory made by one call of empty(). It has a part of `bytes_each` bytes for each rank.
  struct Bucket {
    SharedMemory memory;
    size_t bytes_each;
  };

  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                           Milliseconds timeout) override {
    return std::make_unique<ShmGroup>(store_, rank, static_cast<int>(ranks.size()), ShmOptions{timeout, epoch});
  }
  void run(const Collective& call, const Deadline& deadline) override;
  void announce(const CommStatus& failure) noexcept override;

  /// Size of a slot. The slots that a rank reads and writes at a time fit in its second-level cache.
  static constexpr size_t kSlotBytes = 256 << 10;
  /// While a rank writes piece i in all_reduce(), slower ranks may still read piece i - 3, so it needs another slot.
  static constexpr uint32_t kSlots = 4;

  /// Does all_reduce() and reduce().
  void all_reduce(const Collective& call, Arrays arrays, const Deadline& deadline);
  void all_reduce_in_place(const Collective& call, const Deadline& deadline);
  /// Does broadcast(), gather() and all_gather(): ranks copy their arrays to their slots, and the receiving ranks copy
  /// them from there.
  void exchange_whole(const Collective& call, const Deadline& deadline);
  /// The length of the longest part that a rank sends to another rank. Throws if two ranks disagree about a length.
  size_t longest_part(const Collective& call, const Deadline& deadline);
  /// Does scatter(), reduce_scatter(), all_to_all(), all_to_all_v() and all_gather_v(): the slot of each rank has a
  /// part for every rank, and every rank copies or sums the parts for it.
  void exchange_parts(const Collective& call, const Deadline& deadline);
  void send_or_receive(const Collective& call, const Deadline& deadline);

  /// Publishes this rank's call, passes the first fence, and compares the calls of all ranks. Before the fence it
  /// copies the first piece of a reduction to its slot, unless the array is in a bucket.
  Arrays begin(const Collective& call, const Deadline& deadline);
  Place locate(const void* data, size_t bytes) const;
  /// Copies piece number `piece` of a reduction into this rank's slot. Does nothing after the last piece.
  void show(const Collective& call, size_t piece);
  void fence(const Descriptor& descriptor, const Deadline& deadline);
  /// Waits until `peer` has advanced `word` to `value` or beyond.
  void await(std::atomic<uint32_t>& word, uint32_t value, int peer, const Descriptor& descriptor,
             const Deadline& deadline);
  void advance(std::atomic<uint32_t>& word);
  void check_peer(int peer, const Descriptor& descriptor);
  /// Returns the ranks that this rank waits for: those whose heartbeat does not change. A rank that waits in a call
  /// changes its heartbeat, so these ranks are stopped or not yet in the call. Returns `peer` if all heartbeats change.
  std::vector<int> awaited_ranks(int peer, const Descriptor& descriptor);
  void check_failure();

  Header& header() const;
  RankLine& line(int rank) const;
  std::byte* slots() const;
  /// The slot of `rank` for the current piece, or for the piece that is `ago` pieces before it.
  std::byte* slot(int rank, uint32_t ago = 0) const;
  Mailbox& mailbox(int from, int to) const;

  std::string store_key_;
  const std::shared_ptr<Store> store_;
  SharedMemory memory_;
  std::vector<ProcessWatch> processes_;
  std::vector<std::weak_ptr<Bucket>> buckets_;
  Place place_;  // where the array of the current call is
  uint32_t fences_ = 0, calls_ = 0, pieces_ = 0;
  bool spins_ = false;
  std::atomic<bool> announced_ = false;  // this rank has announced a failure of this group
};

}  // namespace gradus::dist
