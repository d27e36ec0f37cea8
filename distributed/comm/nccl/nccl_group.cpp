#include <gradus/distributed/comm/nccl/nccl_group.h>

#include <unistd.h>

#include <algorithm>

#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::dist {
namespace {

/// Bytes of scratch memory for a reduction in the order of the ranks.
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
  const bool boolean = dtype == DType::boolean;  // stored as 0 and 1: "or" is the maximum, "and" the minimum
  switch (kind) {
    case ReduceKind::sum: return boolean ? ncclMax : ncclSum;
    case ReduceKind::avg: return ncclAvg;
    case ReduceKind::min: return ncclMin;
    case ReduceKind::max: return ncclMax;
    case ReduceKind::prod: return boolean ? ncclMin : ncclProd;
  }
  return ncclSum;
}

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<Store> store, int rank, int size, const NcclOptions& options)
    : ProcessGroup(rank, size, options.epoch, options.timeout), store_(std::move(store)), options_(options),
      runtime_(runtime(DeviceType::cuda)), device_(DeviceType::cuda, options.device),
      stream_(runtime_.new_stream(options.device)), board_(store_, rank, size) {
  const DeviceGuard guard(device_);
  connect(Deadline(options.timeout));
  watchdog_ = std::thread([this] { watch(); });
}

void NcclGroup::connect(const Deadline& deadline) {
  const std::string identity = host_identity();
  store_->set("process/" + std::to_string(rank()), identity + "\n" + std::to_string(getpid()));
  const std::string id = board_.meet(rank() == 0 ? Communicator::unique_id() : "", deadline);
  bool on_one_host = true;
  for (int r = 0; r < size(); ++r) {
    const std::string process = store_->get("process/" + std::to_string(r));
    const size_t end = process.find('\n');
    const bool here = process.substr(0, end) == identity && r != rank();
    on_one_host = on_one_host && (here || r == rank());
    processes_.emplace_back();
    if (here) processes_.back().emplace(std::stoi(process.substr(end + 1)));
  }
  communicator_ = std::make_unique<Communicator>(id, rank(), size(), deadline);
  token_ = Storage::allocate(1, device_);
  // Ranks set up further connections in their first collective, so it runs now, while all are present.
  const Collective barrier{{.kind = CollectiveKind::barrier}};
  NcclWork first(barrier, deadline.timeout(), runtime_, device_, false);
  first.begin(runtime_.current_stream(device_.index()), stream_);
  queue(barrier, stream_);
  first.end(stream_);
  if (!first.wait(deadline.left())) {
    communicator_->abort();
    GRADUS_FAIL(CommError, "rank ", rank(), " waited ", deadline.timeout().count(),
                " ms for the first collective of a group over NCCL");
  }
  peers_ = PeerMemory::connect(store_, rank(), size(), on_one_host, deadline);
}

NcclGroup::~NcclGroup() {
  while (status().ok()) {  // the watchdog ends the group if this takes too long
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
  {
    const DeviceGuard guard(device_);
    peers_.reset();
  }
  try {
    board_.leave();
  } catch (const CommError&) {  // the store may have ended first
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
  const DeviceGuard guard(device_);
  const NcclWorkPtr work = launch(call, {}, options);
  if (runtime_.capturing()) {
    if (!options.async) work->wait();
    work->keep({in, out});
  } else if (options.async) {
    in.storage().record_stream(stream_);
    out.storage().record_stream(stream_);
  } else if (call.descriptor.kind == CollectiveKind::barrier) {
    while (!work->wait(Milliseconds(1000))) {}
  }
  return work;
}

NcclGroup::WorkPtr NcclGroup::submit_coalesced(const Collective& call, const std::vector<Array>& arrays,
                                               const CollectiveOptions& options) {
  const DeviceGuard guard(device_);
  const NcclWorkPtr work = launch(call, arrays, options);
  work->keep(arrays);  // this is cheaper than record_stream() for each array
  if (!options.async) work->wait();
  return work;
}

NcclGroup::NcclWorkPtr NcclGroup::launch(Collective call, const std::vector<Array>& several,
                                         const CollectiveOptions& options) try {
  check_not_recording(DeviceType::cuda, "a collective");
  const std::lock_guard launching(launch_mutex_);
  const Milliseconds timeout = options.timeout.value_or(this->timeout());
  take_number(&call);
  if (options_.debug) compare(call, Deadline(timeout));
  if (call.descriptor.kind != CollectiveKind::send) board_.note(call.descriptor);
  const bool captured = runtime_.capturing();
  const auto work = std::make_shared<NcclWork>(call, timeout, runtime_, device_, captured);
  if (!captured) {
    const std::lock_guard lock(mutex_);
    pending_.push_back(work);
  }
  // A stream that is being captured cannot wait for work outside the capture, so a captured collective does not wait
  // for `last_`. It runs on stream_, which is a separate branch of the graph.
  const Stream current = runtime_.current_stream(device_.index()),
               stream = options.async || captured ? stream_ : current;
  work->begin(current, stream);
  if (!captured && last_ && !(last_stream_ == stream))
    last_->block(stream);  // otherwise calls on two streams could run in different orders on different ranks
  if (several.empty()) queue(call, stream);
  else queue_coalesced(call, several, stream);
  work->end(stream);
  if (!captured) {
    last_ = work;
    last_stream_ = stream;
  }
  return work;
} catch (const CollectiveError& error) { throw CollectiveError(end(error.status())); } catch (const CommError& error) {
  const CommStatus ended = wait_for_ended_rank(call.descriptor);  // if none has ended, the error is about this rank
  throw CollectiveError(end(
      !ended.ok() ? ended
                  : CommStatus{CommFailure::aborted, rank(), "rank " + std::to_string(rank()) + ": " + error.what()}));
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
  using enum CollectiveKind;
  const Descriptor& d = call.descriptor;
  if (d.count == 0 && call.out_parts.empty() && d.kind != barrier) return;
  if (peers_ && peers_->serves(d)) return peers_->all_reduce(d, {{call.in, call.out, d.count}}, stream);
  const ncclComm_t communicator = communicator_->get();
  const ncclDataType_t type = nccl_type(d.dtype);
  const ncclRedOp_t op = nccl_op(d.dtype, d.reduce);
  const bool reduces = d.kind == all_reduce || d.kind == reduce || d.kind == reduce_scatter;
  // NCCL does not guarantee that averages of integers are rounded toward 0.
  if (reduces && (d.strict || (d.reduce == ReduceKind::avg && !is_floating(d.dtype))))
    return queue_in_order(call, stream);
  switch (d.kind) {
    case all_reduce:
      return GRADUS_NCCL_CHECK(ncclAllReduce(call.in, call.out, d.count, type, op, communicator, cuda(stream)));
    case reduce:
      return GRADUS_NCCL_CHECK(ncclReduce(call.in, call.out, d.count, type, op, d.root, communicator, cuda(stream)));
    case broadcast: {
      void* data = call.in != nullptr ? const_cast<void*>(call.in) : call.out;
      return GRADUS_NCCL_CHECK(ncclBroadcast(data, data, d.count, type, d.root, communicator, cuda(stream)));
    }
    case all_gather:
      return GRADUS_NCCL_CHECK(ncclAllGather(call.in, call.out, d.count, type, communicator, cuda(stream)));
    case reduce_scatter:
      return GRADUS_NCCL_CHECK(ncclReduceScatter(call.in, call.out, d.count, type, op, communicator, cuda(stream)));
    case barrier:
      return GRADUS_NCCL_CHECK(
          ncclAllReduce(token_.data(), token_.data(), 1, ncclUint8, ncclMax, communicator, cuda(stream)));
    default: return queue_point_to_point(call, stream);
  }
}

void NcclGroup::queue_coalesced(Collective call, const std::vector<Array>& arrays, const Stream& stream) {
  if (peers_ && peers_->serves(call.descriptor)) {
    std::vector<PeerLine> lines;
    for (const Array& x : arrays) lines.push_back({x.data(), x.data(), static_cast<size_t>(x.numel())});
    return peers_->all_reduce(call.descriptor, lines, stream);
  }
  const bool fused = !call.descriptor.strict;  // queue_in_order() launches kernels too, which NCCL cannot fuse
  if (fused) GRADUS_NCCL_CHECK(ncclGroupStart());
  for (const Array& x : arrays) {
    call.in = call.out = x.data();
    call.descriptor.count = static_cast<uint64_t>(x.numel());
    queue(call, stream);
  }
  if (fused) GRADUS_NCCL_CHECK(ncclGroupEnd());
}

void NcclGroup::queue_point_to_point(const Collective& call, const Stream& stream) {
  const Descriptor& d = call.descriptor;
  const ncclDataType_t type = nccl_type(d.dtype);
  const auto send = [&](const Range& part, int peer) {
    if (part.size() == 0) return;
    const void* data = at(call.in, part.begin, d.dtype);
    GRADUS_NCCL_CHECK(ncclSend(data, part.size(), type, peer, communicator_->get(), cuda(stream)));
  };
  const auto receive = [&](const Range& part, int peer) {
    if (part.size() == 0) return;
    void* data = at(call.out, part.begin, d.dtype);
    GRADUS_NCCL_CHECK(ncclRecv(data, part.size(), type, peer, communicator_->get(), cuda(stream)));
  };
  const Range all{0, d.count};
  const bool is_gather = d.kind == CollectiveKind::gather, is_scatter = d.kind == CollectiveKind::scatter;
  GRADUS_NCCL_CHECK(ncclGroupStart());
  if (d.kind == CollectiveKind::send) {
    if (call.sends) send(all, call.peer);
    else receive(all, call.peer);
  } else {
    if (is_gather) send(all, d.root);
    else if (call.in != nullptr)
      for (int r = 0; r < size(); ++r) send(call.in_part(r), r);
    if (is_scatter) receive(all, d.root);
    else if (call.out != nullptr)
      for (int r = 0; r < size(); ++r) receive(call.out_part(r), r);
  }
  GRADUS_NCCL_CHECK(ncclGroupEnd());
}

void NcclGroup::queue_in_order(const Collective& call, const Stream& stream) {
  const Descriptor& d = call.descriptor;
  const auto ranks = static_cast<size_t>(size());
  const ncclDataType_t type = nccl_type(d.dtype);
  const size_t length = std::min<size_t>(d.count, kScratchBytes / ranks / size_of(d.dtype));
  if (length == 0) return;
  const StreamGuard guard(stream);  // the scratch memory belongs to this stream
  const Array scratch = Array::empty({static_cast<int64_t>(length * ranks)}, d.dtype, device_);
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

// ---- The watchdog: notices that the group makes no progress, finds out why, and ends it ----

CommStatus NcclGroup::end(const CommStatus& status) noexcept {
  CommStatus first = status;
  try {
    first = board_.announce(status);
  } catch (const std::exception&) {  // the store may have ended
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
  // Waits for a thread that is queueing work. If NCCL holds that thread, only abort() below releases it.
  std::unique_lock launching(launch_mutex_, std::defer_lock);
  const bool waited = launching.try_lock_for(std::chrono::seconds(1));
  if (peers_) peers_->stop();
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
  runtime_.set_current_device(device_.index());
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kPollInterval, [&] { return stopping_; });
    if (stopping_) return;
    lock.unlock();
    if (status().ok()) try {
        watch_once();
      } catch (const CollectiveError& error) { end(error.status()); } catch (const std::exception& error) {
        end({CommFailure::aborted, rank(), "rank " + std::to_string(rank()) + ": " + error.what()});
      }
    lock.lock();
  }
}

void NcclGroup::watch_once() {
  forget_completed();
  NcclWorkPtr waiting;
  {
    const std::lock_guard lock(mutex_);
    if (!pending_.empty()) waiting = pending_.front();
  }
  CommStatus announced;
  try {
    announced = board_.look(reached());
  } catch (const CommError&) {  // a store that has ended matters only while a call is in progress
    if (waiting) throw;
  }
  if (!announced.ok()) throw CollectiveError(announced);
  if (!waiting) return;
  const Descriptor& call = waiting->call;
  if (const std::string error = communicator_->error(); !error.empty()) {
    if (const CommStatus ended = wait_for_ended_rank(call); !ended.ok()) throw CollectiveError(ended);
    const std::vector<int> missing = board_.missing(call, reached());
    if (!missing.empty()) throw CollectiveError(peer_lost(call, missing[0], "NCCL: " + error));
    throw CollectiveError({CommFailure::aborted, -1, "[" + call.str() + "] NCCL: " + error});
  }
  const bool too_late = waiting->deadline.passed();
  if (too_late || (waiting->is_long() && warned_ != call.sequence)) {
    const std::vector<int> missing =
        waiting->is_message() ? std::vector{waiting->peer} : board_.missing(call, reached());
    if (waiting->is_completed()) return;
    if (too_late) throw CollectiveError(timed_out(call, rank(), missing, waiting->deadline.timeout()));
    warn_of_waiting(call, rank(), missing);
    warned_ = call.sequence;
  }
  const CommStatus ended = ended_rank(call);
  if (ended.ok()) return;
  std::this_thread::sleep_for(kPollInterval);  // the call completes if the rank sent all its data before it ended
  forget_completed();
  const std::lock_guard lock(mutex_);
  if (!pending_.empty() && pending_.front()->call == call) throw CollectiveError(ended);
}

CommStatus NcclGroup::ended_rank(const Descriptor& call) {
  for (int r = 0; r < size(); ++r) {
    const std::optional<ProcessWatch>& process = processes_[static_cast<size_t>(r)];
    if (!process || !process->has_ended()) continue;
    try {
      if (board_.has_left(r)) return peer_left(call, r);
    } catch (const CommError&) {}  // the store ended with that rank
    return peer_lost(call, r, "its process ended");
  }
  return {};
}

CommStatus NcclGroup::wait_for_ended_rank(const Descriptor& call) {
  CommStatus ended;
  for (const Deadline end(kExitTime); (ended = ended_rank(call)).ok() && !end.passed();)
    std::this_thread::sleep_for(Milliseconds(10));
  return ended;
}

}  // namespace gradus::dist
