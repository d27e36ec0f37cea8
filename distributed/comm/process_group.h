// Collectives between the ranks of a group, named as in torch.distributed. All ranks call the same ones in the same
// order.
//
// A call returns when its work is done, or throws. With `async` it returns at once, and Work::wait() says how it went.
// Tensors must not be touched meanwhile. The work is done in the order of the calls, except that of messages (send,
// recv): they wait for collectives in front of them, but for no messages except those of the same direction between the
// same two ranks. Over NCCL they wait for all in front of them.
//
// The first failure of a group ends it: it reaches every rank, and all calls from then on throw it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gradus/core/array/array.h>
#include <gradus/distributed/comm/collectives.h>
#include <gradus/distributed/comm/deadline.h>
#include <gradus/distributed/comm/status.h>

namespace gradus::dist {

/// The largest job.
inline constexpr int kMaxRanks = 1 << 16;
/// The most ranks that share a host's memory, and the most processes that a launcher or spawn() starts.
inline constexpr int kMaxRanksOfHost = 1024;

/// A ValueError unless 0 <= rank < size <= kMaxRanks. It is checked before anything is allocated for each rank.
void check_ranks(int rank, int size);

/// A collective on its way.
class Work {
 public:
  virtual ~Work() = default;
  /// Number of the collective in its group, from 1.
  virtual uint64_t sequence() const = 0;
  /// Whether it has ended, well or not.
  virtual bool is_completed() const = 0;
  /// What became of it; ok while it runs.
  virtual CommStatus status() const = 0;
  /// Returns when it is done, or throws the CollectiveError that ended it.
  virtual void wait() const = 0;
  /// False if it is not done within `timeout`. It goes on.
  virtual bool wait(Milliseconds timeout) const = 0;
};

struct CollectiveOptions {
  bool async = false;
  /// Sums in the order of the ranks whatever the size, so that all transports give the same bits.
  bool strict = false;
  /// Of the whole collective; none: the group's.
  std::optional<Milliseconds> timeout = std::nullopt;
};

class ProcessGroup {
 public:
  using WorkPtr = std::shared_ptr<Work>;

  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// "tcp", "shm", "local", "nccl" or "mpi"
  virtual std::string_view backend() const = 0;
  /// This process's number in the group, from 0.
  int rank() const { return rank_; }
  /// How many ranks there are.
  int size() const { return size_; }
  /// The ranks of this group as their numbers in the group of all ranks (torch.distributed.get_process_group_ranks).
  const std::vector<int>& ranks() const { return ranks_; }
  /// Of each collective that has none of its own.
  Milliseconds timeout() const { return timeout_; }
  void set_timeout(Milliseconds timeout) { timeout_ = timeout; }
  /// Whether all sums of this group, and of groups that are made of it later, are as with CollectiveOptions::strict.
  /// The same on all ranks.
  void set_strict(bool strict) { strict_ = strict; }

  /// Uninitialised memory of the kind that the group's collectives are fastest with. All ranks call this at the same
  /// point, with the same arguments but for the device.
  virtual Array empty(const Shape& shape, DType dtype, Device device = {}) {
    return Array::empty(shape, dtype, device);
  }

  // Arrays are contiguous; shapes may differ between ranks where their numbers of elements agree. A `peer` or `root` is
  // a rank of this group.

  /// x = the `kind` of all ranks' x.
  WorkPtr all_reduce(const Array& x, ReduceKind kind = ReduceKind::sum, const CollectiveOptions& options = {});
  /// The same of several arrays of one dtype, as one collective of all their elements. Where the group coalesces(), it
  /// copies none of them; elsewhere it does its work by way of a copy, and at once.
  WorkPtr all_reduce_coalesced(const std::vector<Array>& arrays, ReduceKind kind = ReduceKind::sum,
                               const CollectiveOptions& options = {});
  /// Whether all_reduce_coalesced() works without a copy.
  virtual bool coalesces() const { return false; }
  /// The same, of which only the root gets the result; the x of the others stay as they are.
  WorkPtr reduce(const Array& x, int root, ReduceKind kind = ReduceKind::sum, const CollectiveOptions& options = {});
  /// x = the root's x.
  WorkPtr broadcast(const Array& x, int root, const CollectiveOptions& options = {});
  /// y (n x.numel()) = all ranks' x, one behind the other.
  WorkPtr all_gather(const Array& x, const Array& y, const CollectiveOptions& options = {});
  /// y = this rank's part of the `kind` of all ranks' x (n y.numel()).
  WorkPtr reduce_scatter(const Array& x, const Array& y, ReduceKind kind = ReduceKind::sum,
                         const CollectiveOptions& options = {});
  /// The root's y (n x.numel()) = all ranks' x. The others give an undefined y.
  WorkPtr gather(const Array& x, const Array& y, int root, const CollectiveOptions& options = {});
  /// y = this rank's part of the root's x (n y.numel()). The others give an undefined x.
  WorkPtr scatter(const Array& x, const Array& y, int root, const CollectiveOptions& options = {});
  /// Part r of y = this rank's part of rank r's x, both of n equal parts, one behind the other.
  WorkPtr all_to_all(const Array& x, const Array& y, const CollectiveOptions& options = {});
  /// The same with parts of any lengths: x holds sent[r] elements for rank r, y received[r] from it, which is what that
  /// rank says it sends; else a CollectiveError (mismatch), over NCCL a timeout. (all_to_all_single with split sizes)
  WorkPtr all_to_all_v(const Array& x, const std::vector<int64_t>& sent, const Array& y,
                       const std::vector<int64_t>& received, const CollectiveOptions& options = {});
  /// all_gather of counts[r] elements of rank r; all ranks give the same counts.
  WorkPtr all_gather_v(const Array& x, const Array& y, const std::vector<int64_t>& counts,
                       const CollectiveOptions& options = {});
  /// all_gather of arrays of the CPU, whatever devices the group serves.
  virtual void gather_on_host(const Array& x, const Array& y) { all_gather(x, y); }
  /// The peer calls recv() with as many elements of the same type. Messages between two ranks are numbered by
  /// themselves.
  WorkPtr send(const Array& x, int peer, const CollectiveOptions& options = {});
  WorkPtr recv(const Array& x, int peer, const CollectiveOptions& options = {});
  /// Returns when all ranks have called it.
  WorkPtr barrier(const CollectiveOptions& options = {});

  /// Ends the group on all ranks; what runs and what is called later throws Aborted with this cause. From any thread.
  void abort(const std::string& cause);
  /// The failure that ended the group; ok while it lives.
  CommStatus status() const;

 protected:
  ProcessGroup(int rank, int size, uint32_t epoch, Milliseconds timeout);

  /// True if the group takes arrays that lie on this device.
  virtual bool serves(Device device) const = 0;
  /// Which those are, for messages.
  virtual std::string places() const = 0;
  /// Does the work of a call whose arguments are right, now or later. `in` and `out` are what `call` points to.
  virtual WorkPtr submit(const Collective& call, const Array& in, const Array& out,
                         const CollectiveOptions& options) = 0;
  /// The same for a call of several arrays, where the group coalesces(): call.descriptor.count is that of all.
  virtual WorkPtr submit_coalesced(const Collective& call, const std::vector<Array>& arrays,
                                   const CollectiveOptions& options);
  /// Tells the other ranks. May come from any thread, once.
  virtual void announce(const CommStatus& failure) noexcept = 0;
  /// A group of these ranks of this one, to which this rank belongs as number `rank`. They meet under this epoch.
  virtual std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                                   Milliseconds timeout) = 0;

  /// Throws what ended the group; else the descriptor of a call gets the next number.
  void take_number(Collective* call);
  /// Ends the group, unless it has ended. Returns the failure that counts.
  CommStatus fail(CommStatus status) noexcept;

 private:
  friend std::shared_ptr<ProcessGroup> new_group(const std::shared_ptr<ProcessGroup>&, std::vector<int>,
                                                 std::optional<Milliseconds>);

  void check_array(const Array& x, const char* name) const;
  void check_parts(const Array& whole, const char* whole_name, const Array& part, const char* part_name) const;
  /// x and y are of one kind, but not the same.
  void check_apart(const Array& x, const Array& y) const;
  void check_rank(int rank, const char* name) const;
  /// The parts of x, one behind the other, that have so many elements.
  std::vector<Range> parts_of(const Array& x, const char* name, const std::vector<int64_t>& counts) const;
  WorkPtr message(const Array& x, int peer, bool sends, const CollectiveOptions& options);
  WorkPtr launch(Collective call, const Array& in, const Array& out, const CollectiveOptions& options);
  /// Says which group of which ranks a failure is of.
  void complete(CommStatus* status) const;

  const int rank_, size_;
  const uint32_t epoch_;
  std::vector<int> ranks_;
  Milliseconds timeout_;
  bool strict_ = false;

  mutable std::mutex mutex_;
  uint64_t sequence_ = 0;
  std::vector<uint64_t> sent_, received_;  // messages to and from each rank
  CommStatus failure_;
};

/// A group of some of the ranks of `group`, in ascending order as in torch.distributed.new_group. All ranks of `group`
/// call this with the same list, in the same order as their other calls; those that are not on it get null. Ranks that
/// disagree about the list all get a CollectiveError (mismatch), and a rank that does not call this ends `group`, as it
/// would in any collective. The new group keeps `group` alive but fails on its own: its failures count its own ranks
/// from 0 and say which these are.
std::shared_ptr<ProcessGroup> new_group(const std::shared_ptr<ProcessGroup>& group, std::vector<int> ranks,
                                        std::optional<Milliseconds> timeout = std::nullopt);

}  // namespace gradus::dist
