// Collectives between the ranks of a group, named as in torch.distributed. All ranks must call the same collectives in
// the same order.
//
// A call returns when its work is done, or throws. With `async` it returns at once, and Work::wait() reports the
// outcome; until then the tensors must not be touched. Work is done in the order of the calls, except for messages
// (send, recv): a message waits for earlier collectives, and for earlier messages in the same direction between the
// same two ranks.
//
// Over NCCL a message waits for all earlier calls. Calls and Work::wait() return before the work is done: they only
// make the current stream wait for it, as in torch.distributed. Only barrier(), gather_on_host() and wait(timeout) also
// make the host wait.
//
// The first failure ends the group: it reaches every rank, and every later call throws it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <gradus/core/array/array.h>
#include <gradus/distributed/comm/collectives.h>

namespace gradus::dist {

class ProcessGroup;
/// Programs, and wrappers of their nets, share a group.
using GroupPtr = std::shared_ptr<ProcessGroup>;

/// The largest number of ranks in a job.
inline constexpr int kMaxRanks = 1 << 16;
/// The largest number of ranks that share a host's memory, and of processes that a launcher or spawn() starts.
inline constexpr int kMaxRanksOfHost = 1024;

/// Throws a ValueError unless 0 <= rank < size <= kMaxRanks. Called before anything is allocated for each rank.
void check_ranks(int rank, int size);

/// A collective in progress.
class Work {
 public:
  virtual ~Work() = default;
  /// Number of the collective in its group, from 1.
  virtual uint64_t sequence() const = 0;
  /// Whether the collective has ended, successfully or not.
  virtual bool is_completed() const = 0;
  /// The failure that ended the collective; ok if it succeeded or still runs.
  virtual CommStatus status() const = 0;
  /// Returns when the work is done, or throws the CollectiveError that ended it.
  virtual void wait() const = 0;
  /// Like wait(), but returns false if the work is not done within `timeout`. The work then goes on.
  virtual bool wait(Milliseconds timeout) const = 0;
};

struct CollectiveOptions {
  bool async = false;
  /// Reduce in the order of the ranks for every size, so that all transports give the same bits.
  bool strict = false;
  /// Timeout of the whole collective. Default: the group's.
  std::optional<Milliseconds> timeout = std::nullopt;
};

// Every virtual function is pure or inline. Otherwise the vtable and the type information would be in an object file of
// distributed/, and code that only uses this interface, such as training/metrics.cpp, would have to link it.
class ProcessGroup : NoCopy {
 public:
  using WorkPtr = std::shared_ptr<Work>;

  virtual ~ProcessGroup() = default;

  /// "tcp", "shm", "local", "nccl", "mpi" or "recording"
  virtual std::string_view backend() const = 0;
  /// This process's number in the group, from 0.
  int rank() const { return rank_; }
  /// How many ranks there are.
  int size() const { return size_; }
  /// The ranks of this group as their numbers in the group of all ranks (torch.distributed.get_process_group_ranks).
  const std::vector<int>& ranks() const { return ranks_; }
  /// Timeout of each collective that is called without one.
  Milliseconds timeout() const { return timeout_; }
  void set_timeout(Milliseconds timeout) { timeout_ = timeout; }
  /// If `strict` is true, all reductions of this group, and of groups made from it later, are as with
  /// CollectiveOptions::strict. Must be the same on all ranks.
  void set_strict(bool strict) { strict_ = strict; }

  /// Returns an uninitialised array in memory with which the group's collectives are fastest; over shm this is shared
  /// memory. All ranks must call this at the same point, with the same arguments except for the device.
  virtual Array empty(const Shape& shape, DType dtype, Device device = {}) {
    return Array::empty(shape, dtype, device);
  }

  // Arrays must be contiguous. Shapes may differ between ranks if their numbers of elements agree. A `peer` or `root`
  // is a rank of this group. n is the number of ranks, and "the sum" is the reduction that `kind` names.

  /// x = the sum of all ranks' x.
  WorkPtr all_reduce(const Array& x, ReduceKind kind = ReduceKind::sum, const CollectiveOptions& options = {}) {
    return collective(CollectiveKind::all_reduce, x, x, -1, kind, options);
  }
  /// Does all_reduce() for several arrays of one dtype in one collective. If the group coalesces(), nothing is copied.
  /// Otherwise the arrays are copied into one array and back, and the call blocks even if it is `async`.
  WorkPtr all_reduce_coalesced(const std::vector<Array>& arrays, ReduceKind kind = ReduceKind::sum,
                               const CollectiveOptions& options = {});
  /// Whether all_reduce_coalesced() works without a copy.
  virtual bool coalesces() const { return false; }
  /// Like all_reduce(), but only the root gets the result. On the other ranks x is unchanged.
  WorkPtr reduce(const Array& x, int root, ReduceKind kind = ReduceKind::sum, const CollectiveOptions& options = {}) {
    return collective(CollectiveKind::reduce, x, x, root, kind, options);
  }
  /// x = the root's x.
  WorkPtr broadcast(const Array& x, int root, const CollectiveOptions& options = {}) {
    return collective(CollectiveKind::broadcast, x, x, root, ReduceKind::sum, options);
  }
  /// y (n * x.numel() elements) = the concatenation of all ranks' x.
  WorkPtr all_gather(const Array& x, const Array& y, const CollectiveOptions& options = {}) {
    return collective(CollectiveKind::all_gather, x, y, -1, ReduceKind::sum, options);
  }
  /// y = this rank's part of the sum of all ranks' x (n * y.numel() elements).
  WorkPtr reduce_scatter(const Array& x, const Array& y, ReduceKind kind = ReduceKind::sum,
                         const CollectiveOptions& options = {}) {
    return collective(CollectiveKind::reduce_scatter, x, y, -1, kind, options);
  }
  /// On the root, y (n * x.numel() elements) = the concatenation of all ranks' x. The other ranks pass an undefined y.
  WorkPtr gather(const Array& x, const Array& y, int root, const CollectiveOptions& options = {}) {
    return collective(CollectiveKind::gather, x, y, root, ReduceKind::sum, options);
  }
  /// y = this rank's part of the root's x (n * y.numel() elements). The other ranks pass an undefined x.
  WorkPtr scatter(const Array& x, const Array& y, int root, const CollectiveOptions& options = {}) {
    return collective(CollectiveKind::scatter, x, y, root, ReduceKind::sum, options);
  }
  /// Part r of y = this rank's part of rank r's x. Both x and y consist of n equal parts.
  WorkPtr all_to_all(const Array& x, const Array& y, const CollectiveOptions& options = {});
  /// all_to_all() with parts of any lengths (all_to_all_single with split sizes): x holds sent[r] elements for rank r,
  /// and y gets received[r] elements from it. If rank r sends another number of elements, the call throws a
  /// CollectiveError: a mismatch, over NCCL a timeout.
  WorkPtr all_to_all_v(const Array& x, const std::vector<int64_t>& sent, const Array& y,
                       const std::vector<int64_t>& received, const CollectiveOptions& options = {});
  /// all_gather() of counts[r] elements from rank r. All ranks must pass the same counts.
  WorkPtr all_gather_v(const Array& x, const Array& y, const std::vector<int64_t>& counts,
                       const CollectiveOptions& options = {});
  /// all_gather() of CPU arrays, whatever devices the group serves.
  virtual void gather_on_host(const Array& x, const Array& y) { all_gather(x, y); }
  /// Sends x to `peer`, which must call recv() with as many elements of the same type. Messages are numbered separately
  /// for each pair of ranks and each direction.
  WorkPtr send(const Array& x, int peer, const CollectiveOptions& options = {}) {
    return message(x, peer, true, options);
  }
  WorkPtr recv(const Array& x, int peer, const CollectiveOptions& options = {}) {
    return message(x, peer, false, options);
  }
  /// Returns when all ranks have called it.
  WorkPtr barrier(const CollectiveOptions& options = {});

  /// Ends the group on all ranks. Calls in progress and later calls throw a CollectiveError (aborted) with this cause.
  /// May be called from any thread.
  void abort(const std::string& cause);
  /// The failure that ended the group; ok if it has not ended.
  CommStatus status() const;

 protected:
  ProcessGroup(int rank, int size, uint32_t epoch, Milliseconds timeout);

  /// Returns true if the group takes arrays on this device.
  virtual bool serves(Device device) const = 0;
  /// The devices that the group serves, for error messages.
  virtual std::string places() const = 0;
  /// Starts a call whose arguments have been checked. Unless it is `async`, a group that runs calls on the host also
  /// waits for its end. `in` and `out` own the memory that `call` points to.
  virtual WorkPtr submit(const Collective& call, const Array& in, const Array& out,
                         const CollectiveOptions& options) = 0;
  /// submit() for several arrays; only for groups whose coalesces() is true. call.descriptor.count is the number of
  /// elements of all arrays.
  virtual WorkPtr submit_coalesced(const Collective& /*call*/, const std::vector<Array>& /*arrays*/,
                                   const CollectiveOptions& /*options*/) {
    GRADUS_FAIL(CommError, "a group of '", backend(), "' does not coalesce");
  }
  /// Announces the failure that ended the group to the other ranks. Called once, from any thread.
  virtual void announce(const CommStatus& failure) noexcept = 0;
  /// Makes a group of `ranks`, which are numbers in this group. In the new group this process is rank `rank`. Its ranks
  /// find each other by `epoch`, a number that none of them has used for a group before.
  virtual std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                                   Milliseconds timeout) = 0;

  /// Throws the failure that ended the group, if any; otherwise gives the call the next sequence number.
  void take_number(Collective* call);
  /// Ends the group, unless it has ended already. Returns the failure that ended the group. Its message names the epoch
  /// and the ranks of a sub-group.
  CommStatus fail(CommStatus status) noexcept;

 private:
  friend GroupPtr new_group(const GroupPtr&, std::vector<int>, std::optional<Milliseconds>);

  void check_array(const Array& x, const char* name) const;
  void check_parts(const Array& whole, const char* whole_name, const Array& part, const char* part_name) const;
  /// Checks that x and y have the same device and dtype and are not the same memory.
  void check_apart(const Array& x, const Array& y) const;
  void check_rank(int rank, const char* name) const;
  /// The consecutive parts of x with these numbers of elements.
  std::vector<Range> parts_of(const Array& x, const char* name, const std::vector<int64_t>& counts) const;
  /// Checks the arguments of a collective from x to y, and launches it. `root` is ignored if the collective has none.
  WorkPtr collective(CollectiveKind kind, const Array& x, const Array& y, int root, ReduceKind reduction,
                     const CollectiveOptions& options);
  WorkPtr message(const Array& x, int peer, bool sends, const CollectiveOptions& options);
  /// Completes the description of a call from `in` to `out`, or of the arrays `coalesced`, and submits it.
  WorkPtr launch(Collective call, const Array& in, const Array& out, const CollectiveOptions& options,
                 const std::vector<Array>& coalesced = {});

  const int rank_, size_;
  const uint32_t epoch_;
  std::vector<int> ranks_;
  Milliseconds timeout_;
  bool strict_ = false;

  mutable std::mutex mutex_;
  uint64_t sequence_ = 0;
  std::vector<uint64_t> sent_, received_;  // numbers of messages to and from each rank
  CommStatus failure_;
};

/// Shares `group` and keeps `dependency`, which the group uses, alive until the group has been destroyed.
inline GroupPtr keep_for(std::unique_ptr<ProcessGroup> group, std::shared_ptr<void> dependency) {
  return {group.release(), [dependency = std::move(dependency)](ProcessGroup* own) mutable {
            delete own;
            dependency.reset();
          }};
}

/// Sends the bytes of rank `root` to all ranks and returns them. The other ranks may pass any number of bytes. Data
/// is sent from and to memory of `device`, a device that the group serves.
std::vector<std::byte> broadcast_bytes(ProcessGroup& group, io::ByteSpan own, int root, Device device);

/// Makes a group of some of the ranks of `group`, in ascending order as in torch.distributed.new_group. All ranks of
/// `group` must call this with the same list, in the same order as their other calls; ranks that are not on the list
/// get null. If ranks disagree about the list, all of them get a CollectiveError (mismatch). If a rank does not call
/// this, `group` fails by its timeout, as in any collective. The new group keeps `group` alive but fails independently
/// of it. Its error messages number its ranks from 0, and say which ranks of the job these are.
GroupPtr new_group(const GroupPtr& group, std::vector<int> ranks, std::optional<Milliseconds> timeout = std::nullopt);

/// Ranks in a grid, for two kinds of parallelism at once: tensor parallelism along one dimension and data parallelism
/// along the other (torch.distributed.device_mesh.init_device_mesh).
///
///   const auto mesh = dist::make_mesh(group, {2, 4});      // ranks 0 1 2 3   one net, cut in four
///   nn::ColumnParallelLinear layer(options, mesh[1]);      //       4 5 6 7   another copy, with other samples
///   dist::DistributedDataParallel ddp(net, mesh[0]);       // averages between 0 and 4, 1 and 5, …
///
/// Arranges the ranks of `group` in row-major order in a grid of these sizes. Group d of the result has the sizes[d]
/// ranks that differ from this one only in coordinate d. The dimension with the most communication should be the last,
/// whose ranks are neighbours. All ranks must call this with the same sizes. Throws a ValueError if their product is
/// not the number of ranks.
std::vector<GroupPtr> make_mesh(const GroupPtr& group, const Shape& sizes);

}  // namespace gradus::dist
