// The process group of ranks on one host: they read each other's memory instead of sending it.
//
// Every rank has a slot that all map. A rank copies a piece of what it contributes into its slot; a fence; then each
// reads what it needs from the slots of the others. Slots take turns, so one fence a piece is enough: nobody writes to
// a slot before all have passed the next fence, and so have read it.
#pragma once

#include <memory>
#include <string>
#include <vector>

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
  /// Meets the other ranks by way of the store, which has to outlive the group. A CommError if they are not all on this
  /// host, a ValueError if there are more than kMaxRanksOfHost.
  ShmGroup(Store& store, int rank, int size, const ShmOptions& options = {})
      : ShmGroup(borrow(store), rank, size, options) {}
  ~ShmGroup() override;

  std::string_view backend() const override { return "shm"; }
  /// On the cpu an array that all ranks see, each its own: all_reduce of it copies nothing.
  Array empty(const Shape& shape, DType dtype, Device device = {}) override;

 private:
  struct Header;    // of the segment: who failed
  struct RankLine;  // what the others see of a rank
  struct CallRecord;
  struct Mailbox;
  /// Where the data of a call lie: in which memory of empty(), if any, and where there.
  struct Place {
    int32_t bucket = -1;
    uint64_t offset = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  /// Where those of all ranks do: in arrays of their own, at the same place of the same memory of empty(), or neither.
  enum class Arrays { own, shared, mixed };
  /// Memory of empty(), seen by this rank: the parts of all ranks.
  struct Bucket {
    SharedMemory memory;
    size_t bytes_each;
  };

  ShmGroup(std::shared_ptr<Store> store, int rank, int size, const ShmOptions& options);

  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                           Milliseconds timeout) override;
  void run(const Collective& call, const Deadline& deadline) override;
  void announce(const CommStatus& failure) noexcept override;

  /// What a rank shows at a time: with the slots of the others it stays in the second-level cache.
  static constexpr size_t kSlotBytes = 256 << 10;
  /// all_reduce shows a piece while the others may still take the one that came three steps before.
  static constexpr uint32_t kSlots = 4;

  /// all_reduce and reduce.
  void all_reduce(const Collective& call, Arrays arrays, const Deadline& deadline);
  void all_reduce_in_place(const Collective& call, const Deadline& deadline);
  void reduce_scatter(const Collective& call, const Deadline& deadline);
  void all_gather(const Collective& call, const Deadline& deadline);
  void broadcast(const Collective& call, const Deadline& deadline);
  void scatter(const Collective& call, const Deadline& deadline);
  /// Of all parts that one rank sends another. Throws if two ranks disagree about one.
  size_t longest_part(const Collective& call, const Deadline& deadline);
  void all_to_all(const Collective& call, const Deadline& deadline);
  void send(const Collective& call, const Deadline& deadline);
  void receive(const Collective& call, const Deadline& deadline);

  /// Says what this rank calls and passes the first fence, behind which all compare. What is to be reduced has its
  /// first piece shown by then, unless it lies in memory of empty().
  Arrays begin(const Collective& call, const Deadline& deadline);
  Place locate(const void* data, size_t bytes) const;
  /// Copies a piece of all_reduce into this rank's slot, if there are so many.
  void show(const Collective& call, size_t piece);
  void fence(const Descriptor& descriptor, const Deadline& deadline);
  /// Waits until `word` has come to `value` or past it, as `peer` makes it.
  void await(std::atomic<uint32_t>& word, uint32_t value, int peer, const Descriptor& descriptor,
             const Deadline& deadline);
  void advance(std::atomic<uint32_t>& word);
  void look_after(int peer, const Descriptor& descriptor);
  /// Whom this rank waits for in the end: those that wait for nobody themselves, stopped or not yet in the call; else
  /// `peer`.
  std::vector<int> awaited_ranks(int peer, const Descriptor& descriptor);
  void check_failure();

  Header& header() const;
  RankLine& line(int rank) const;
  /// The slot of `rank` for the piece that is under way, or for one before it.
  std::byte* slot(int rank, uint32_t ago = 0) const;
  Mailbox& mailbox(int from, int to) const;

  std::string store_key_;
  const std::shared_ptr<Store> store_;
  SharedMemory memory_;
  std::vector<ProcessWatch> processes_;
  std::vector<std::weak_ptr<Bucket>> buckets_;
  Place place_;  // of the call that runs
  uint32_t fences_ = 0, calls_ = 0, pieces_ = 0;
  bool spins_ = false;
};

}  // namespace gradus::dist
