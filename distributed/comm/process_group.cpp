#include <gradus/distributed/comm/process_group.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include <gradus/core/ops/ops.h>

namespace gradus::dist {
namespace {

/// Describes a collective in which each rank has x.numel() elements of x's type.
Collective describe(CollectiveKind kind, const Array& x, int root = -1, ReduceKind reduce = ReduceKind::sum) {
  Collective call;
  call.descriptor.kind = kind;
  call.descriptor.reduce = reduce;
  call.descriptor.root = root;
  if (!x.defined()) return call;
  call.descriptor.dtype = x.dtype();
  call.descriptor.count = static_cast<uint64_t>(x.numel());
  return call;
}

/// Checks that a and b have the same device and dtype.
void check_alike(const Array& a, const char* a_name, const Array& b, const char* b_name) {
  GRADUS_CHECK(a.device() == b.device(), DeviceError, a_name, " is on ", a.device(), ", ", b_name, " on ", b.device());
  GRADUS_CHECK(a.dtype() == b.dtype(), DTypeError, a_name, " is of ", a.dtype(), ", ", b_name, " of ", b.dtype());
}

/// The newest epoch of all groups of this process.
std::atomic<int64_t> newest_epoch = 0;

std::string call_of(const std::vector<int>& ranks) { return "new_group({" + joined(ranks) + "})"; }

}  // namespace

void check_ranks(int rank, int size) {
  GRADUS_CHECK(0 < size && size <= kMaxRanks, ValueError, "a group has 1 to ", kMaxRanks, " ranks, not ", size);
  GRADUS_CHECK(0 <= rank && rank < size, ValueError, "rank ", rank, " is not one of the ranks 0 to ", size - 1);
}

ProcessGroup::ProcessGroup(int rank, int size, uint32_t epoch, Milliseconds timeout)
    : rank_((check_ranks(rank, size), rank)), size_(size), epoch_(epoch), ranks_(static_cast<size_t>(size)),
      timeout_(timeout), sent_(static_cast<size_t>(size)), received_(static_cast<size_t>(size)) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

void ProcessGroup::check_array(const Array& x, const char* name) const {
  GRADUS_CHECK(x.defined(), ValueError, name, " is undefined");
  GRADUS_CHECK(serves(x.device()), DeviceError, name, " is on ", x.device().str(), ", but this rank's group of '",
               backend(), "' takes arrays on ", places(), ": communicate a copy there");
  GRADUS_CHECK(x.is_contiguous(), ShapeError, name, " of shape ", x.shape(),
               " is not contiguous: communicate x.contiguous() and copy the result back");
}

void ProcessGroup::check_parts(const Array& whole, const char* whole_name, const Array& part,
                               const char* part_name) const {
  check_array(whole, whole_name);
  check_alike(whole, whole_name, part, part_name);
  GRADUS_CHECK(whole.numel() == part.numel() * size_, ShapeError, whole_name, " has ", whole.numel(), " elements, but ",
               size_, " ranks with ", part.numel(), " in ", part_name, " need ", part.numel() * size_);
}

void ProcessGroup::check_apart(const Array& x, const Array& y) const {
  check_alike(x, "x", y, "y");
  GRADUS_CHECK(x.numel() == 0 || y.numel() == 0 || x.data() != y.data(), ValueError,
               "x and y are the same memory: give y its own");
}

void ProcessGroup::check_rank(int rank, const char* name) const {
  GRADUS_CHECK(0 <= rank && rank < size_, ValueError, name, " ", rank, " is not one of the ranks 0 to ", size_ - 1);
}

CommStatus ProcessGroup::status() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ProcessGroup::abort(const std::string& cause) {
  fail({CommFailure::aborted, rank_, "rank " + std::to_string(rank_) + " ended the group: " + cause});
}

CommStatus ProcessGroup::fail(CommStatus status) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (epoch_ != 0) {
      const auto which = " (group " + std::to_string(epoch_) + ": its ranks are the ranks " + joined(ranks_) + ")";
      // The message of a failure that another rank has announced has this part already.
      if (status.message.find(which) == std::string::npos) status.message += which;
    }
    failure_ = status;
  }
  announce(status);
  return status;
}

void ProcessGroup::take_number(Collective* call) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) throw CollectiveError(failure_);
  const bool is_message = call->descriptor.kind == CollectiveKind::send;
  uint64_t& counter = is_message ? (call->sends ? sent_ : received_)[static_cast<size_t>(call->peer)] : sequence_;
  call->descriptor.sequence = ++counter;
}

ProcessGroup::WorkPtr ProcessGroup::launch(Collective call, const Array& in, const Array& out,
                                           const CollectiveOptions& options, const std::vector<Array>& coalesced) {
  check_reduction(call.descriptor.dtype, call.descriptor.reduce);
  if (in.defined()) call.in = in.data();
  if (out.defined()) {
    call.out = out.data();
    out.bump_version();
  }
  call.descriptor.epoch = epoch_;
  call.descriptor.strict = options.strict || strict_;
  for (const Array& x : coalesced) x.bump_version();
  const Array& any = !coalesced.empty() ? coalesced[0] : in.defined() ? in : out;
  call.descriptor.on_device = any.defined() && !any.device().is_cpu();
  return coalesced.empty() ? submit(call, in, out, options) : submit_coalesced(call, coalesced, options);
}

ProcessGroup::WorkPtr ProcessGroup::collective(CollectiveKind kind, const Array& x, const Array& y, int root,
                                               ReduceKind reduction, const CollectiveOptions& options) {
  using enum CollectiveKind;
  const OpContext context(name(kind));
  const bool joins = kind == all_gather || kind == gather, cuts = kind == reduce_scatter || kind == scatter;
  const bool to_root = kind == reduce || kind == gather, from_root = kind == broadcast || kind == scatter;
  const Array& own = cuts ? y : x;  // the array that every rank passes
  check_array(own, cuts ? "y" : "x");
  if (to_root || from_root) check_rank(root, "root");
  const bool is_root = root == rank_, contributes = !from_root || is_root;
  const bool receives = kind == broadcast ? !is_root : !to_root || is_root;
  if (joins && receives) check_parts(y, "y", x, "x");
  if (cuts && contributes) check_parts(x, "x", y, "y");
  return launch(describe(kind, own, root, reduction), contributes ? x : Array(), receives ? y : Array(), options);
}

ProcessGroup::WorkPtr ProcessGroup::all_reduce_coalesced(const std::vector<Array>& arrays, ReduceKind kind,
                                                         const CollectiveOptions& options) {
  const OpContext context("all_reduce_coalesced");
  GRADUS_CHECK(!arrays.empty(), ValueError, "there are no arrays");
  std::vector<Array> lines;
  int64_t count = 0;
  for (const Array& x : arrays) {
    check_array(x, "an array");
    ops::check_same_dtype(arrays[0], "the first array", x, "another one");
    lines.push_back(x.view({x.numel()}));
    count += x.numel();
  }
  if (!coalesces()) {
    const Array flat = ops::cat(lines, 0);
    WorkPtr work = all_reduce(flat, kind, {.strict = options.strict, .timeout = options.timeout});
    int64_t begin = 0;
    for (const Array& line : lines) {
      ops::copy_into(line, flat.slice(0, begin, begin + line.numel()));
      begin += line.numel();
    }
    return work;
  }
  Collective call = describe(CollectiveKind::all_reduce, arrays[0], -1, kind);
  call.descriptor.count = static_cast<uint64_t>(count);
  return launch(call, {}, {}, options, lines);
}

std::vector<Range> ProcessGroup::parts_of(const Array& x, const char* name, const std::vector<int64_t>& counts) const {
  GRADUS_CHECK(static_cast<int>(counts.size()) == size_, ValueError, counts.size(), " counts for ", size_, " ranks");
  std::vector<Range> parts;
  size_t end = 0;
  for (const int64_t count : counts) {
    GRADUS_CHECK(0 <= count && count <= x.numel(), ValueError, "a count of ", count, " where ", name, " has ",
                 x.numel(), " elements");
    parts.push_back({end, end + static_cast<size_t>(count)});
    end = parts.back().end;
  }
  GRADUS_CHECK(end == static_cast<size_t>(x.numel()), ShapeError, name, " has ", x.numel(),
               " elements, but its counts add up to ", end);
  return parts;
}

ProcessGroup::WorkPtr ProcessGroup::all_to_all(const Array& x, const Array& y, const CollectiveOptions& options) {
  const OpContext context("all_to_all");
  check_array(y, "y");
  const Array part = y.numel() % size_ == 0 ? y.view({y.numel()}).slice(0, 0, y.numel() / size_) : y;
  check_parts(x, "x", part, "a part of y");
  check_apart(x, y);
  return launch(describe(CollectiveKind::all_to_all, part), x, y, options);
}

ProcessGroup::WorkPtr ProcessGroup::all_to_all_v(const Array& x, const std::vector<int64_t>& sent, const Array& y,
                                                 const std::vector<int64_t>& received,
                                                 const CollectiveOptions& options) {
  const OpContext context("all_to_all_v");
  check_array(x, "x");
  check_array(y, "y");
  check_apart(x, y);
  Collective call;
  call.descriptor.kind = CollectiveKind::all_to_all_v;
  call.descriptor.dtype = x.dtype();
  call.in_parts = parts_of(x, "x", sent);
  call.out_parts = parts_of(y, "y", received);
  const size_t own = call.in_part(rank_).size(), back = call.out_part(rank_).size();
  GRADUS_CHECK(own == back, ValueError, "rank ", rank_, " sends itself ", own, " elements, but receives ", back);
  return launch(call, x, y, options);
}

ProcessGroup::WorkPtr ProcessGroup::all_gather_v(const Array& x, const Array& y, const std::vector<int64_t>& counts,
                                                 const CollectiveOptions& options) {
  const OpContext context("all_gather_v");
  check_array(x, "x");
  check_array(y, "y");
  check_apart(x, y);
  Collective call = describe(CollectiveKind::all_gather_v, y);
  call.out_parts = parts_of(y, "y", counts);
  const size_t own = call.out_part(rank_).size();
  GRADUS_CHECK(static_cast<size_t>(x.numel()) == own, ShapeError, "x has ", x.numel(), " elements, but counts[", rank_,
               "] is ", own);
  call.in_parts.assign(static_cast<size_t>(size_), {0, own});
  return launch(call, x, y, options);
}

ProcessGroup::WorkPtr ProcessGroup::message(const Array& x, int peer, bool sends, const CollectiveOptions& options) {
  const OpContext context(sends ? "send" : "recv");
  check_array(x, "x");
  check_rank(peer, "peer");
  GRADUS_CHECK(peer != rank_, ValueError, "rank ", peer, " is this rank itself");
  Collective call = describe(CollectiveKind::send, x);
  call.peer = peer;
  call.sends = sends;
  return launch(call, sends ? x : Array(), sends ? Array() : x, options);
}

ProcessGroup::WorkPtr ProcessGroup::barrier(const CollectiveOptions& options) {
  const OpContext context("barrier");
  return launch(describe(CollectiveKind::barrier, {}), {}, {}, options);
}

std::vector<std::byte> broadcast_bytes(ProcessGroup& group, io::ByteSpan own, int root, Device device) {
  const auto from_root = [&](const Array& x) {
    const Array there = ops::to_device(x, device);
    group.broadcast(there, root);
    return ops::to_device(there, Device());
  };
  const auto size = static_cast<int64_t>(own.size());
  const int64_t sent = ops::item(from_root(ops::full({}, size, DType::i64))).to<int64_t>();
  Array bytes = ops::zeros({sent}, DType::u8);
  std::copy_n(own.begin(), std::min(size, sent), static_cast<std::byte*>(bytes.data()));
  bytes = from_root(bytes);
  // Over NCCL, a broadcast that is aborted ends without an exception.
  if (const CommStatus failure = group.status(); !failure.ok()) throw CollectiveError(failure);
  const auto* const begin = static_cast<const std::byte*>(bytes.data());
  return {begin, begin + sent};
}

GroupPtr new_group(const GroupPtr& group, std::vector<int> ranks, std::optional<Milliseconds> timeout) {
  const OpContext context("new_group");
  std::sort(ranks.begin(), ranks.end());
  GRADUS_CHECK(!ranks.empty(), ValueError, "the list of ranks is empty");
  for (size_t i = 0; i < ranks.size(); ++i) {
    group->check_rank(ranks[i], "rank");
    GRADUS_CHECK(i == 0 || ranks[i] != ranks[i - 1], ValueError, "rank ", ranks[i], " is listed twice");
  }
  // Each rank sends its list and the newest epoch that it knows. The new group gets the epoch after the largest of
  // these, which is new to every rank.
  const auto size = static_cast<size_t>(group->size());
  Array own = Array::empty({static_cast<int64_t>(size) + 1}, DType::i64);
  std::fill_n(own.data<int64_t>(), size + 1, 0);
  own.data<int64_t>()[0] = newest_epoch;
  for (int rank : ranks) own.data<int64_t>()[rank + 1] = 1;
  Array gathered = Array::empty({static_cast<int64_t>(size * (size + 1))}, DType::i64);
  group->gather_on_host(own, gathered);
  const int64_t* all = gathered.data<int64_t>();
  int64_t epoch = 0;
  const auto listed_by = [&](size_t r) {
    std::vector<int> listed;
    for (size_t i = 0; i < size; ++i)
      if (all[r * (size + 1) + 1 + i] != 0) listed.push_back(static_cast<int>(i));
    return listed;
  };
  for (size_t r = 0; r < size; ++r) epoch = std::max(epoch, all[r * (size + 1)] + 1);
  for (int64_t newest = newest_epoch; newest < epoch && !newest_epoch.compare_exchange_weak(newest, epoch);) {}
  for (size_t r = 1; r < size; ++r)
    if (listed_by(r) != listed_by(0))
      throw CollectiveError({CommFailure::mismatch, static_cast<int>(r),
                             "ranks disagree: rank 0 called " + call_of(listed_by(0)) + ", rank " + std::to_string(r) +
                                 " called " + call_of(listed_by(r))});

  const auto mine = std::find(ranks.begin(), ranks.end(), group->rank());
  if (mine == ranks.end()) return nullptr;
  const auto child = keep_for(group->make_group(ranks, static_cast<int>(mine - ranks.begin()),
                                                static_cast<uint32_t>(epoch), timeout.value_or(group->timeout())),
                              group);
  const std::lock_guard lock(child->mutex_);  // over NCCL, the group's watchdog thread is already running
  for (size_t i = 0; i < ranks.size(); ++i) child->ranks_[i] = group->ranks_[static_cast<size_t>(ranks[i])];
  child->strict_ = group->strict_;
  return child;
}

std::vector<GroupPtr> make_mesh(const GroupPtr& group, const Shape& sizes) {
  const OpContext context("make_mesh");
  GRADUS_CHECK(group, ValueError, "the process group is null");
  int64_t product = 1;
  for (const int64_t size : sizes) {
    GRADUS_CHECK(size > 0, ValueError, "a mesh cannot have a dimension of ", size, " ranks");
    product *= size;
    if (product > group->size()) break;
  }
  GRADUS_CHECK(product == group->size(), ValueError, "a mesh of sizes ", sizes, " does not have ", group->size(),
               " ranks");

  std::vector<GroupPtr> mesh;
  int64_t stride = group->size();
  for (const int64_t size : sizes) {
    stride /= size;  // distance between neighbours along this dimension
    for (int64_t first = 0; first < group->size(); ++first) {
      if (first / stride % size != 0) continue;
      std::vector<int> line;
      for (int64_t i = 0; i < size; ++i) line.push_back(static_cast<int>(first + i * stride));
      // All ranks take part in making the group of each line. Each rank keeps the group that it belongs to.
      if (auto own = new_group(group, line)) mesh.push_back(std::move(own));
    }
  }
  return mesh;
}

}  // namespace gradus::dist
