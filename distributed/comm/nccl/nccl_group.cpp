#include <gradus/distributed/comm/nccl/nccl_group.h>

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <gradus/distributed/comm/nccl/reduce_kernel.h>

namespace gradus::dist {
namespace {

/// How often the watchdog looks.
constexpr Milliseconds kLookOut{100};
/// Scratch of a sum in the order of the ranks.
constexpr size_t kScratchBytes = 64 << 20;

cudaStream_t cuda(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle); }

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::u8:
    case DType::boolean: break;
  }
  return ncclUint8;
}

ncclRedOp_t nccl_op(DType dtype, ReduceKind kind) {
  const bool boolean = dtype == DType::boolean;  // of 0 and 1 "or" is the larger, "and" the smaller
  switch (kind) {
    case ReduceKind::sum: return boolean ? ncclMax : ncclSum;
    case ReduceKind::avg: return ncclAvg;
    case ReduceKind::min: return ncclMin;
    case ReduceKind::max: return ncclMax;
    case ReduceKind::prod: return boolean ? ncclMin : ncclProd;
  }
  return ncclSum;
}

/// Makes a device current on this thread.
class CurrentDevice {
 public:
  CurrentDevice(DeviceRuntime& runtime, int index) : runtime_(runtime), previous_(runtime.current_device()) {
    if (index != previous_) runtime_.set_current_device(index);
  }
  ~CurrentDevice() { runtime_.set_current_device(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  DeviceRuntime& runtime_;
  const int previous_;
};

/// Memory of the device for work that is queued on `stream`.
class Scratch {
 public:
  Scratch(DeviceRuntime& runtime, size_t bytes, const Stream& stream)
      : runtime_(runtime), data_(runtime.allocate(bytes, stream)) {}
  ~Scratch() { runtime_.free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  DeviceRuntime& runtime_;
  void* const data_;
};

}  // namespace

class NcclGroup::NcclWork final : public Work {
 public:
  /// `captured`: it runs when the graph is replayed, and what it needs belongs to the graph.
  NcclWork(const Collective& call, Milliseconds timeout, DeviceRuntime& runtime, Device device, bool captured)
      : call_(call.descriptor), peer_(call.peer), deadline_(timeout), runtime_(runtime), device_(device),
        captured_(captured), ready_(runtime.new_event(false)), done_(runtime.new_event(false)) {}

  uint64_t sequence() const override { return call_.sequence; }
  bool is_completed() const override {
    if (captured_) return true;
    const std::lock_guard lock(mutex_);
    return !failure_.ok() || (queued_ && done_->query());
  }
  CommStatus status() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  /// Makes the current stream wait; the host goes on.
  void wait() const override {
    if (const CommStatus failure = status(); !failure.ok()) throw CollectiveError(failure);
    block(runtime_.current_stream(device_.index));
  }
  /// Makes the host wait.
  bool wait(Milliseconds timeout) const override {
    for (const Deadline end(timeout); !is_completed(); std::this_thread::sleep_for(std::chrono::microseconds(20)))
      if (end.passed()) return false;
    wait();
    return true;
  }

  const Descriptor& call() const { return call_; }
  bool is_message() const { return call_.kind == CollectiveKind::send; }
  /// The other end of a message.
  int peer() const { return peer_; }
  const Deadline& deadline() const { return deadline_; }
  /// True from when a warning is due.
  bool is_long() const { return patience_.passed(); }
  /// True once the device has come to it.
  bool is_reached() const {
    const std::lock_guard lock(mutex_);
    return queued_ && ready_->query();
  }
  /// What it was waiting for is over: it failed, unless it was done.
  void fail(const CommStatus& failure) {
    const std::lock_guard lock(mutex_);
    if (!queued_ || !done_->query()) failure_ = failure;
  }
  /// `stream` waits for what `before` has to do,
  void begin(const Stream& before, const Stream& stream) {
    ready_->record(before);
    if (!(stream == before)) ready_->block(stream);
  }
  /// and this is where the work ends.
  void end(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    done_->record(stream);
    queued_ = !captured_;  // events of a capture cannot be asked
  }
  /// `stream` waits for it.
  void block(const Stream& stream) const { done_->block(stream); }
  void keep(const Array& in, const Array& out) { kept_ = {in, out}; }

 private:
  const Descriptor call_;
  const int peer_;
  const Deadline deadline_, patience_{kPatience};
  DeviceRuntime& runtime_;
  const Device device_;
  const bool captured_;
  const std::unique_ptr<Event> ready_, done_;
  mutable std::mutex mutex_;
  bool queued_ = false;
  CommStatus failure_;
  std::pair<Array, Array> kept_;
};

NcclGroup::NcclGroup(std::shared_ptr<Store> store, int rank, int size, const NcclOptions& options)
    : ProcessGroup(rank, size, options.epoch, options.timeout), store_(std::move(store)), options_(options),
      runtime_(runtime(DeviceType::cuda)), device_(DeviceType::cuda, options.device),
      stream_(runtime_.new_stream(options.device)), board_(store_, rank, size) {
  const CurrentDevice current(runtime_, device_.index);
  connect(Deadline(options.timeout));
  watchdog_ = std::thread([this] { watch(); });
}

void NcclGroup::connect(const Deadline& deadline) {
  const std::string identity = host_identity();
  store_->set("process/" + std::to_string(rank()), identity + "\n" + std::to_string(getpid()));
  const std::string id = board_.meet(rank() == 0 ? Communicator::unique_id() : "", deadline);
  for (int r = 0; r < size(); ++r) {
    const std::string process = store_->get("process/" + std::to_string(r));
    const size_t end = process.find('\n');
    const bool here = process.substr(0, end) == identity && r != rank();
    processes_.emplace_back();
    if (here) processes_.back().emplace(std::stoi(process.substr(end + 1)));
  }
  communicator_ = std::make_unique<Communicator>(id, rank(), size(), deadline);
  token_ = Storage::allocate(1, device_);
  // What ranks still have to set up between them they do at their first collective: now, when all are there.
  const Collective barrier{{.kind = CollectiveKind::barrier}};
  NcclWork first(barrier, deadline.timeout(), runtime_, device_, false);
  first.begin(runtime_.current_stream(device_.index), stream_);
  queue(barrier, stream_);
  first.end(stream_);
  if (first.wait(deadline.left())) return;
  communicator_->abort();
  GRADUS_FAIL(CommError, "rank ", rank(), " waited ", deadline.timeout().count(),
              " ms for the first collective of a group over NCCL");
}

NcclGroup::~NcclGroup() {
  while (status().ok()) {  // the watchdog sees to it that this ends
    forget_completed();
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty()) break;
    }
    std::this_thread::sleep_for(Milliseconds(1));
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  watchdog_.join();
  try {
    board_.leave();
  } catch (const CommError&) {  // the store may have gone before
  }
}

std::unique_ptr<ProcessGroup> NcclGroup::make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                                    Milliseconds timeout) {
  NcclOptions options = options_;
  options.epoch = epoch;
  options.timeout = timeout;
  auto store = std::make_shared<PrefixStore>("group/" + std::to_string(epoch), store_);
  return std::make_unique<NcclGroup>(std::move(store), rank, static_cast<int>(ranks.size()), options);
}

void NcclGroup::gather_on_host(const Array& x, const Array& y) {
  const Array own = Array::empty(x.shape(), x.dtype(), device_), all = Array::empty(y.shape(), y.dtype(), device_);
  runtime_.copy(own.data(), device_, x.data(), Device(), x.nbytes(), /*non_blocking=*/false);
  all_gather(own, all);
  runtime_.copy(y.data(), Device(), all.data(), device_, y.nbytes(), /*non_blocking=*/false);
  if (const CommStatus failure = status(); !failure.ok()) throw CollectiveError(failure);
}

NcclGroup::WorkPtr NcclGroup::submit(const Collective& call, const Array& in, const Array& out,
                                     const CollectiveOptions& options) {
  const CurrentDevice current_device(runtime_, device_.index);
  NcclWorkPtr work;
  try {
    work = launch(call, options.async, options.timeout.value_or(timeout()));
  } catch (const CollectiveError& error) {
    throw CollectiveError(end(error.status()));
  } catch (const CommError& error) {
    throw CollectiveError(end({CommFailure::aborted, rank(), "rank " + std::to_string(rank()) + ": " + error.what()}));
  }
  if (runtime_.capturing()) {
    if (!options.async) work->wait();
    work->keep(in, out);
  } else if (options.async) {
    in.storage().record_stream(stream_);
    out.storage().record_stream(stream_);
  } else if (call.descriptor.kind == CollectiveKind::barrier) {
    while (!work->wait(kLookOut)) {}
  }
  return work;
}

NcclGroup::NcclWorkPtr NcclGroup::launch(Collective call, bool async, Milliseconds timeout) {
  const std::lock_guard launching(launch_mutex_);
  take_number(&call);
  if (options_.debug) compare(call, Deadline(timeout));
  if (call.descriptor.kind != CollectiveKind::send) board_.note(call.descriptor);
  const bool captured = runtime_.capturing();
  const auto work = std::make_shared<NcclWork>(call, timeout, runtime_, device_, captured);
  if (!captured) {
    const std::lock_guard lock(mutex_);
    pending_.push_back(work);
  }
  // A capture has only the current stream, which it would not let wait for what came before; what is recorded has a branch
  // of its own.
  const Stream current = runtime_.current_stream(device_.index), stream = async || captured ? stream_ : current;
  work->begin(current, stream);
  if (!captured && last_ && !(last_stream_ == stream)) last_->block(stream);  // one after the other on all ranks
  queue(call, stream);
  work->end(stream);
  if (!captured) {
    last_ = work;
    last_stream_ = stream;
  }
  return work;
}

void NcclGroup::compare(const Collective& call, const Deadline& deadline) {
  std::string scope = "call";
  std::vector<int> others;
  if (call.descriptor.kind == CollectiveKind::send) {
    const int from = call.sends ? rank() : call.peer, to = call.sends ? call.peer : rank();
    scope = "message/" + std::to_string(from) + "/" + std::to_string(to);
    others = {call.peer};
  } else {
    for (int r = 0; r < size(); ++r)
      if (r != rank()) others.push_back(r);
  }
  board_.compare(scope, call.descriptor, others, deadline);
}

void NcclGroup::queue(const Collective& call, const Stream& stream) {
  const Descriptor& d = call.descriptor;
  if (d.count == 0 && d.kind != CollectiveKind::barrier) return;
  const ncclComm_t communicator = communicator_->get();
  const ncclDataType_t type = nccl_type(d.dtype);
  const ncclRedOp_t op = nccl_op(d.dtype, d.reduce);
  const bool reduces = d.kind == CollectiveKind::all_reduce || d.kind == CollectiveKind::reduce ||
                       d.kind == CollectiveKind::reduce_scatter;
  // An average of integers is rounded towards 0, which NCCL does not promise.
  if (reduces && (d.strict || (d.reduce == ReduceKind::avg && !is_floating(d.dtype))))
    return queue_in_order(call, stream);
  switch (d.kind) {
    case CollectiveKind::all_reduce:
      GRADUS_NCCL_CHECK(ncclAllReduce(call.in, call.out, d.count, type, op, communicator, cuda(stream)));
      return;
    case CollectiveKind::reduce:
      GRADUS_NCCL_CHECK(ncclReduce(call.in, call.out, d.count, type, op, d.root, communicator, cuda(stream)));
      return;
    case CollectiveKind::broadcast: {
      void* data = call.in != nullptr ? const_cast<void*>(call.in) : call.out;
      GRADUS_NCCL_CHECK(ncclBroadcast(data, data, d.count, type, d.root, communicator, cuda(stream)));
      return;
    }
    case CollectiveKind::all_gather:
      GRADUS_NCCL_CHECK(ncclAllGather(call.in, call.out, d.count, type, communicator, cuda(stream)));
      return;
    case CollectiveKind::reduce_scatter:
      GRADUS_NCCL_CHECK(ncclReduceScatter(call.in, call.out, d.count, type, op, communicator, cuda(stream)));
      return;
    case CollectiveKind::barrier:
      GRADUS_NCCL_CHECK(ncclAllReduce(token_.data(), token_.data(), 1, ncclUint8, ncclMax, communicator, cuda(stream)));
      return;
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::send: return queue_point_to_point(call, stream);
  }
}

void NcclGroup::queue_point_to_point(const Collective& call, const Stream& stream) {
  const Descriptor& d = call.descriptor;
  const auto send = [&](const void* data, int peer) {
    GRADUS_NCCL_CHECK(ncclSend(data, d.count, nccl_type(d.dtype), peer, communicator_->get(), cuda(stream)));
  };
  const auto receive = [&](void* data, int peer) {
    GRADUS_NCCL_CHECK(ncclRecv(data, d.count, nccl_type(d.dtype), peer, communicator_->get(), cuda(stream)));
  };
  GRADUS_NCCL_CHECK(ncclGroupStart());
  if (d.kind == CollectiveKind::send) {
    if (call.sends) send(call.in, call.peer);
    else receive(call.out, call.peer);
  } else if (d.kind == CollectiveKind::gather) {
    send(call.in, d.root);
    for (int r = 0; call.out != nullptr && r < size(); ++r)
      receive(at(call.out, static_cast<size_t>(r) * d.count, d.dtype), r);
  } else {
    for (int r = 0; call.in != nullptr && r < size(); ++r)
      send(at(call.in, static_cast<size_t>(r) * d.count, d.dtype), r);
    receive(call.out, d.root);
  }
  GRADUS_NCCL_CHECK(ncclGroupEnd());
}

void NcclGroup::queue_in_order(const Collective& call, const Stream& stream) {
  const Descriptor& d = call.descriptor;
  const auto ranks = static_cast<size_t>(size());
  const ncclDataType_t type = nccl_type(d.dtype);
  const size_t length = std::min<size_t>(d.count, kScratchBytes / ranks / size_of(d.dtype));
  if (length == 0) return;
  const Scratch scratch(runtime_, length * ranks * size_of(d.dtype), stream);
  for (size_t begin = 0; begin < d.count; begin += length) {
    const size_t count = std::min(length, d.count - begin);
    if (d.kind == CollectiveKind::reduce_scatter) {
      GRADUS_NCCL_CHECK(ncclGroupStart());
      for (size_t r = 0; r < ranks; ++r) {
        GRADUS_NCCL_CHECK(ncclSend(at(call.in, r * d.count + begin, d.dtype), count, type, static_cast<int>(r),
                                   communicator_->get(), cuda(stream)));
        GRADUS_NCCL_CHECK(ncclRecv(at(scratch.data(), r * count, d.dtype), count, type, static_cast<int>(r),
                                   communicator_->get(), cuda(stream)));
      }
      GRADUS_NCCL_CHECK(ncclGroupEnd());
    } else {
      GRADUS_NCCL_CHECK(
          ncclAllGather(at(call.in, begin, d.dtype), scratch.data(), count, type, communicator_->get(), cuda(stream)));
    }
    if (call.out != nullptr)
      reduce_in_order_on(stream, d.dtype, d.reduce, scratch.data(), size(), at(call.out, begin, d.dtype), count);
  }
}

CommStatus NcclGroup::end(const CommStatus& status) noexcept {
  CommStatus first = status;
  try {
    first = board_.announce(status);
  } catch (const std::exception&) {  // the store may have gone
  }
  return fail(first);
}

void NcclGroup::announce(const CommStatus& failure) noexcept {
  {
    const std::lock_guard lock(mutex_);
    for (const NcclWorkPtr& work : pending_) work->fail(failure);
    pending_.clear();
  }
  try {
    board_.announce(failure);
  } catch (const std::exception&) {}
  // Whoever is about to queue something comes to an end; if NCCL holds him, only this lets him go.
  std::unique_lock launching(launch_mutex_, std::defer_lock);
  const bool waited = launching.try_lock_for(std::chrono::seconds(1));
  communicator_->abort();
  if (waited) launching.unlock();
}

void NcclGroup::forget_completed() {
  const std::lock_guard lock(mutex_);
  while (!pending_.empty() && pending_.front()->is_completed()) {
    if (!pending_.front()->is_message()) completed_ = std::max(completed_, pending_.front()->sequence());
    pending_.pop_front();
  }
}

uint64_t NcclGroup::reached() const {
  const std::lock_guard lock(mutex_);
  uint64_t last = completed_;
  for (const NcclWorkPtr& work : pending_) {
    if (!work->is_reached()) break;
    if (!work->is_message()) last = work->sequence();
  }
  return last;
}

void NcclGroup::watch() {
  runtime_.set_current_device(device_.index);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kLookOut, [&] { return stopping_; });
    if (stopping_) return;
    lock.unlock();
    if (status().ok()) try {
        look_after();
      } catch (const CollectiveError& error) { end(error.status()); } catch (const std::exception& error) {
        end({CommFailure::aborted, rank(), "rank " + std::to_string(rank()) + ": " + error.what()});
      }
    lock.lock();
  }
}

void NcclGroup::look_after() {
  forget_completed();
  NcclWorkPtr waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!pending_.empty()) waiting = pending_.front();
  }
  CommStatus announced;
  try {
    announced = board_.look(reached());
  } catch (const CommError&) {  // the store ends with its job: that matters to who waits
    if (waiting) throw;
  }
  if (!announced.ok()) throw CollectiveError(announced);
  if (!waiting) return;
  const Descriptor& call = waiting->call();
  if (const std::string error = communicator_->error(); !error.empty()) explain("NCCL: " + error, call);
  const bool too_late = waiting->deadline().passed();
  if (too_late || (waiting->is_long() && warned_ != call.sequence)) {
    const std::vector<int> missing =
        waiting->is_message() ? std::vector{waiting->peer()} : board_.missing(call, reached());
    if (waiting->is_completed()) return;
    if (too_late) throw CollectiveError(timed_out(call, rank(), missing, waiting->deadline().timeout()));
    warn_of_waiting(call, rank(), missing);
    warned_ = call.sequence;
  }
  look_for_dead_ranks(call);
}

void NcclGroup::explain(const std::string& error, const Descriptor& waiting) {
  std::this_thread::sleep_for(kLookOut);  // NCCL may know of a rank's end before others do
  look_for_dead_ranks(waiting);
  const std::vector<int> missing = board_.missing(waiting, reached());
  if (!missing.empty()) throw CollectiveError(peer_lost(waiting, missing[0], error));
  throw CollectiveError({CommFailure::aborted, -1, "[" + waiting.str() + "] " + error});
}

void NcclGroup::look_for_dead_ranks(const Descriptor& waiting) {
  for (int r = 0; r < size(); ++r) {
    const std::optional<ProcessWatch>& process = processes_[static_cast<size_t>(r)];
    if (!process || !process->has_ended()) continue;
    std::this_thread::sleep_for(kLookOut);  // what it did before it ended may complete the collective
    forget_completed();
    const std::lock_guard lock(mutex_);
    if (pending_.empty() || pending_.front()->call() != waiting) return;
    throw CollectiveError(board_.has_left(r) ? peer_left(waiting, r) : peer_lost(waiting, r, "its process ended"));
  }
}

}  // namespace gradus::dist
