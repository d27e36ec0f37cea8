#include <gradus/distributed/comm/process_group.h>

#include <gradus/core/error.h>

namespace gradus::dist {
namespace {

void check_array(const Array& x, const char* name) {
  GRADUS_CHECK(x.defined(), ValueError, name, " is undefined");
  GRADUS_CHECK(x.device().is_cpu(), DeviceError, name, " is on ", x.device().str(),
               ", and ranks read the cpu's memory alone: communicate a copy there");
  GRADUS_CHECK(x.is_contiguous(), ShapeError, name, " of shape ", x.shape(),
               " is not contiguous: communicate x.contiguous() and copy the result back");
}

void check_parts(const Array& whole, const char* whole_name, const Array& part, const char* part_name, int ranks) {
  check_array(whole, whole_name);
  GRADUS_CHECK(whole.dtype() == part.dtype(), DTypeError, whole_name, " is of ", whole.dtype(), ", ", part_name, " of ",
               part.dtype());
  GRADUS_CHECK(whole.numel() == part.numel() * ranks, ShapeError, whole_name, " has ", whole.numel(), " elements, but ",
               ranks, " ranks with ", part.numel(), " in ", part_name, " need ", part.numel() * ranks);
}

void check_rank(int rank, int size, const char* name) {
  GRADUS_CHECK(0 <= rank && rank < size, ValueError, name, " ", rank, " is none of the ranks 0 to ", size - 1);
}

/// A collective in which each rank has x.numel() elements of x's type.
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

}  // namespace

bool Work::is_completed() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

CommStatus Work::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Work::wait() const {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return done_; });
  if (!status_.ok()) throw CollectiveError(status_);
}

bool Work::wait(Milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  if (!finished_.wait_for(lock, timeout, [&] { return done_; })) return false;
  if (!status_.ok()) throw CollectiveError(status_);
  return true;
}

void Work::finish(CommStatus status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  finished_.notify_all();
}

ProcessGroup::ProcessGroup(int rank, int size, uint32_t epoch, Milliseconds timeout)
    : rank_(rank), size_(size), epoch_(epoch), timeout_(timeout), sent_(static_cast<size_t>(size)),
      received_(static_cast<size_t>(size)) {}

void ProcessGroup::stop() {
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    thread.swap(thread_);
    changed_.notify_all();
  }
  if (thread.joinable()) thread.join();
}

CommStatus ProcessGroup::status() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ProcessGroup::abort(const std::string& cause) {
  fail({CommFailure::aborted, rank_, "rank " + std::to_string(rank_) + " ended the group: " + cause});
}

void ProcessGroup::fail(const CommStatus& status) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
  }
  announce(status);
}

void ProcessGroup::execute(const Job& job) noexcept {
  CommStatus status;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.ok()) throw CollectiveError(failure_);
    }
    run(job.call, Deadline(job.timeout));
  } catch (const CollectiveError& error) { status = error.status(); } catch (const std::exception& error) {
    status = {CommFailure::aborted, rank_, error.what()};
  }
  if (!status.ok()) fail(status);
  job.work->finish(std::move(status));
}

void ProcessGroup::work_off() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || (!queue_.empty() && !busy_); });
    if (queue_.empty()) return;
    if (busy_) continue;
    const Job job = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    execute(job);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

ProcessGroup::WorkPtr ProcessGroup::submit(Collective call, const Array& in, const Array& out,
                                           const CollectiveOptions& options) {
  if (in.defined()) call.in = in.data();
  if (out.defined()) {
    call.out = out.data();
    out.bump_version();
  }
  Descriptor& d = call.descriptor;
  d.epoch = epoch_;
  d.strict = options.strict;
  std::unique_lock lock(mutex_);
  if (!failure_.ok()) throw CollectiveError(failure_);
  const bool is_message = d.kind == CollectiveKind::send;
  uint64_t& counter = is_message ? (call.sends ? sent_ : received_)[static_cast<size_t>(call.peer)] : sequence_;
  d.sequence = ++counter;
  const Job job{call, options.timeout.value_or(timeout_), in, out, std::make_shared<Work>(d.sequence)};

  if (!options.async && !busy_ && queue_.empty()) {  // nothing is in front of it, so no other thread need be woken
    busy_ = true;
    lock.unlock();
    execute(job);
    lock.lock();
    busy_ = false;
  } else {
    queue_.push_back(job);
    if (!thread_.joinable()) thread_ = std::thread([this] { work_off(); });
  }
  changed_.notify_all();
  lock.unlock();
  if (!options.async) job.work->wait();
  return job.work;
}

ProcessGroup::WorkPtr ProcessGroup::all_reduce(const Array& x, ReduceKind kind, const CollectiveOptions& options) {
  const OpContext context("all_reduce");
  check_array(x, "x");
  check_reduction(x.dtype(), kind);
  return submit(describe(CollectiveKind::all_reduce, x, -1, kind), x, x, options);
}

ProcessGroup::WorkPtr ProcessGroup::reduce(const Array& x, int root, ReduceKind kind,
                                           const CollectiveOptions& options) {
  const OpContext context("reduce");
  check_array(x, "x");
  check_rank(root, size_, "root");
  check_reduction(x.dtype(), kind);
  return submit(describe(CollectiveKind::reduce, x, root, kind), x, root == rank_ ? x : Array(), options);
}

ProcessGroup::WorkPtr ProcessGroup::broadcast(const Array& x, int root, const CollectiveOptions& options) {
  const OpContext context("broadcast");
  check_array(x, "x");
  check_rank(root, size_, "root");
  const bool is_root = root == rank_;
  return submit(describe(CollectiveKind::broadcast, x, root), is_root ? x : Array(), is_root ? Array() : x, options);
}

ProcessGroup::WorkPtr ProcessGroup::all_gather(const Array& x, const Array& y, const CollectiveOptions& options) {
  const OpContext context("all_gather");
  check_array(x, "x");
  check_parts(y, "y", x, "x", size_);
  return submit(describe(CollectiveKind::all_gather, x), x, y, options);
}

ProcessGroup::WorkPtr ProcessGroup::reduce_scatter(const Array& x, const Array& y, ReduceKind kind,
                                                   const CollectiveOptions& options) {
  const OpContext context("reduce_scatter");
  check_array(y, "y");
  check_parts(x, "x", y, "y", size_);
  check_reduction(x.dtype(), kind);
  return submit(describe(CollectiveKind::reduce_scatter, y, -1, kind), x, y, options);
}

ProcessGroup::WorkPtr ProcessGroup::gather(const Array& x, const Array& y, int root, const CollectiveOptions& options) {
  const OpContext context("gather");
  check_array(x, "x");
  check_rank(root, size_, "root");
  if (root == rank_) check_parts(y, "y", x, "x", size_);
  return submit(describe(CollectiveKind::gather, x, root), x, root == rank_ ? y : Array(), options);
}

ProcessGroup::WorkPtr ProcessGroup::scatter(const Array& x, const Array& y, int root,
                                            const CollectiveOptions& options) {
  const OpContext context("scatter");
  check_array(y, "y");
  check_rank(root, size_, "root");
  if (root == rank_) check_parts(x, "x", y, "y", size_);
  return submit(describe(CollectiveKind::scatter, y, root), root == rank_ ? x : Array(), y, options);
}

ProcessGroup::WorkPtr ProcessGroup::send(const Array& x, int peer, const CollectiveOptions& options) {
  const OpContext context("send");
  return message(x, peer, true, options);
}

ProcessGroup::WorkPtr ProcessGroup::recv(const Array& x, int peer, const CollectiveOptions& options) {
  const OpContext context("recv");
  return message(x, peer, false, options);
}

ProcessGroup::WorkPtr ProcessGroup::message(const Array& x, int peer, bool sends, const CollectiveOptions& options) {
  check_array(x, "x");
  check_rank(peer, size_, "peer");
  GRADUS_CHECK(peer != rank_, ValueError, "rank ", peer, " is this rank itself");
  Collective call = describe(CollectiveKind::send, x);
  call.peer = peer;
  call.sends = sends;
  return submit(call, sends ? x : Array(), sends ? Array() : x, options);
}

ProcessGroup::WorkPtr ProcessGroup::barrier(const CollectiveOptions& options) {
  const OpContext context("barrier");
  return submit(describe(CollectiveKind::barrier, {}), {}, {}, options);
}

}  // namespace gradus::dist
