#include <gradus/distributed/comm/host_group.h>

#include <algorithm>
#include <functional>

#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::dist {
namespace {

/// Size of the pieces in which Staging moves an array. Long pieces use the network well. Short pieces reduce the time
/// of the two copies that no transfer hides: of the first piece off the device, and of the last piece back to it.
constexpr size_t kPieceBytes = 1 << 20;

/// From this size on, dividing an array between two lanes is faster, although the second lane needs a thread.
constexpr size_t kTwoLaneBytes = 2 << 20;

/// Returns 0 for a collective, and for a message a number that stands for its peer and direction. Calls with the same
/// number run one after the other. A collective also waits for all earlier calls, and all later calls wait for it.
int order_of(const Collective& call) {
  return call.descriptor.kind == CollectiveKind::send ? 1 + 2 * call.peer + call.sends : 0;
}

}  // namespace

/// Collectives of device arrays over transports that can read only host memory. An array passes through pinned buffers
/// piece by piece. Each piece is a separate collective. While one piece is on the wire, the next one is copied off the
/// device, and the previous one is copied back to it:
///
///   off the device   | piece 0 | piece 1 | piece 2 | …
///   wire                       | piece 0 | piece 1 | piece 2 | …
///   to the device                        | piece 0 | piece 1 | piece 2 | …
class Staging {
 public:
  /// For a group of `ranks` ranks, of which this is `rank`.
  Staging(Device device, int rank, int ranks)
      : device_(device), rank_(rank), ranks_(static_cast<size_t>(ranks)), runtime_(runtime(device.type())),
        down_(runtime_.new_stream(device.index())), up_(runtime_.new_stream(device.index())) {
    for (Slot& slot : slots_) {
      slot.memory = Storage::allocate_pinned(2 * kPieceBytes);
      slot.filled = runtime_.new_event(false);
      slot.emptied = runtime_.new_event(false);
    }
  }

  Device device() const { return device_; }
  /// Runs `call` for the elements of `range` of arrays in device memory. For each piece, `carry_out` runs the same
  /// collective on host memory. Work begins once the event `ready` has occurred. Returns when the result is in device
  /// memory. `in` and `out` own the memory that `call` points to.
  void run(const Collective& call, const Range& range, const Array& in, const Array& out, const Event& ready,
           const Deadline& deadline, const std::function<void(const Collective&)>& carry_out) {
    using enum CollectiveKind;
    const Descriptor& d = call.descriptor;
    // Whether the input and the output consist of a block for each rank.
    const bool before = d.kind == reduce_scatter || d.kind == scatter || d.kind == all_to_all;
    const bool after = d.kind == all_gather || d.kind == gather || d.kind == all_to_all;
    Side from, to;
    if (call.in != nullptr) from = {const_cast<std::byte*>(at(call.in, 0, d.dtype)), before ? ranks_ : 1, 0};
    // A reduction writes its result over its operand, so both use the same place in the slot.
    const bool in_place = d.kind == all_reduce || d.kind == reduce;
    if (call.out != nullptr) to = {at(call.out, 0, d.dtype), after ? ranks_ : 1, in_place ? 0 : kPieceBytes};

    const size_t length = kPieceBytes / size_of(d.dtype) / (before || after ? ranks_ : 1);
    const size_t pieces = std::max<size_t>(1, ceil_div(range.size(), length));
    const auto piece = [&](size_t i) {
      return Piece{range.begin + i * length, std::min(length, range.size() - i * length)};
    };
    const auto fill = [&](size_t i) {
      slot(i).emptied->block(down_);
      copy(d, from, piece(i), place(i, from), down_);
      slot(i).filled->record(down_);
    };

    try {
      ready.block(down_);
      ready.block(up_);
      for (size_t i = 0; i + 1 < slots_.size() && i < pieces; ++i) fill(i);
      for (size_t i = 0; i < pieces; ++i) {
        const size_t ahead = i + slots_.size() - 1;
        if (ahead < pieces) fill(ahead);
        await(*slot(i).filled, d, deadline);
        Collective part = call;
        part.whole = d;
        part.descriptor.count = piece(i).count;
        part.in = call.in != nullptr ? place(i, from) : nullptr;
        part.out = call.out != nullptr ? place(i, to) : nullptr;
        carry_out(part);
        copy(d, to, piece(i), place(i, to), up_);
        slot(i).emptied->record(up_);
      }
      await(*slot(pieces - 1).emptied, d, deadline);
    } catch (...) {  // copies may still be in progress
      for (const Stream& stream : {down_, up_}) {
        in.storage().record_stream(stream);
        out.storage().record_stream(stream);
      }
      throw;
    }
  }

 private:
  /// The buffer of a piece while it is in transit.
  struct Slot {
    Storage memory;
    std::unique_ptr<Event> filled, emptied;
  };
  struct Piece {
    size_t begin, count;
  };
  /// The input or output of a call in device memory, which consists of `blocks` blocks of call.count elements. In a
  /// slot, the pieces of all blocks are consecutive.
  struct Side {
    std::byte* data = nullptr;
    size_t blocks = 0, offset = 0;  // offset in the slot
  };

  Slot& slot(size_t piece) { return slots_[piece % slots_.size()]; }
  std::byte* place(size_t piece, const Side& side) {
    return static_cast<std::byte*>(slot(piece).memory.data()) + side.offset;
  }
  void copy(const Descriptor& call, const Side& side, const Piece& piece, std::byte* host, const Stream& stream) {
    const bool off = stream == down_;
    const StreamGuard guard(stream);
    for (size_t block = 0; block < side.blocks; ++block) {
      std::byte* there = at(side.data, block * call.count + piece.begin, call.dtype);
      std::byte* here = at(host, block * piece.count, call.dtype);
      const size_t bytes = piece.count * size_of(call.dtype);
      if (off) runtime_.copy(here, Device(), there, device_, bytes, /*non_blocking=*/true);
      else runtime_.copy(there, device_, here, Device(), bytes, /*non_blocking=*/true);
    }
  }
  void await(const Event& event, const Descriptor& call, const Deadline& deadline) const {
    while (!event.query()) {
      if (deadline.passed())
        throw CollectiveError({CommFailure::timeout, rank_,
                               "[" + call.str() + "] rank " + std::to_string(rank_) + " waited " +
                                   std::to_string(deadline.timeout().count()) + " ms for its own " + device_.str() +
                                   ": earlier work on the stream takes longer"});
      std::this_thread::yield();
    }
  }

  const Device device_;
  const int rank_;
  const size_t ranks_;
  DeviceRuntime& runtime_;
  const Stream down_, up_;  // copies from the device, and to it
  std::array<Slot, 3> slots_;
};

void HostGroup::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

void HostGroup::execute(Job& job) noexcept {
  CommStatus failure;
  try {
    failure = status();
    const Deadline deadline(job.timeout);
    const EventScope event(name(job.call.descriptor.kind));
    if (failure.ok() && job.ready && !job.call.out_parts.empty()) run_on_host(job, deadline);
    else if (failure.ok() && job.ready) run_staged(job, deadline);
    else if (failure.ok()) run(job.call, deadline);
  } catch (const CollectiveError& error) { failure = fail(error.status()); } catch (const std::exception& error) {
    failure = fail({CommFailure::aborted, rank(), error.what()});
  }
  job.in = job.out = Array();  // released before wait() returns, because callers may rely on that
  job.work->finish(std::move(failure));
}

void HostGroup::run_staged(const Job& job, const Range& range, const Deadline& deadline) {
  const Device device = job.in.defined() ? job.in.device() : job.out.device();
  std::list<std::shared_ptr<Staging>> borrowed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(staging_, device, &Staging::device);
    if (found != staging_.end()) borrowed.splice(borrowed.end(), staging_, found);
  }
  if (borrowed.empty()) borrowed.push_back(std::make_shared<Staging>(device, rank(), size()));
  const std::shared_ptr<void> at_end(nullptr, [&](void*) {
    const std::lock_guard lock(mutex_);
    staging_.splice(staging_.end(), borrowed);
  });
  borrowed.front()->run(job.call, range, job.in, job.out, *job.ready, deadline,
                        [&](const Collective& piece) { run(piece, deadline); });
}

void HostGroup::run_staged(const Job& job, const Deadline& deadline) {
  const Descriptor& d = job.call.descriptor;
  if (!second_lane_ || d.count * size_of(d.dtype) < kTwoLaneBytes) return run_staged(job, {0, d.count}, deadline);
  const Range first = part_of(d.count, 2, 0), second = part_of(d.count, 2, 1);
  const auto run_on = [&](HostGroup& lane, const Range& range, HostGroup& other) {
    CommStatus failure;
    try {
      lane.run_staged(job, range, deadline);
    } catch (const CollectiveError& error) { failure = error.status(); } catch (const std::exception& error) {
      failure = {CommFailure::aborted, rank(), error.what()};
    }
    if (!failure.ok()) other.announce(failure);  // otherwise the other lane would wait until its deadline
    return failure;
  };
  CommStatus of_second;
  std::thread helper([&] { of_second = run_on(*second_lane_, second, *this); });
  const CommStatus of_first = run_on(*this, first, *second_lane_);
  helper.join();
  for (const CommStatus& failure : {of_first, of_second})
    if (!failure.ok()) throw CollectiveError(failure);
}

void HostGroup::run_on_host(const Job& job, const Deadline& deadline) {
  const Device device = job.in.device();
  DeviceRuntime& runtime = gradus::runtime(device.type());
  job.ready->block(runtime.current_stream(device.index()));
  const Array in = Array::empty(job.in.shape(), job.in.dtype()), out = Array::empty(job.out.shape(), job.out.dtype());
  runtime.copy(in.data(), Device(), job.in.data(), device, in.nbytes(), /*non_blocking=*/false);
  Collective call = job.call;
  call.in = in.data();
  call.out = out.data();
  run(call, deadline);
  runtime.copy(job.out.data(), device, out.data(), Device(), out.nbytes(), /*non_blocking=*/false);
}

bool HostGroup::may_begin(const Job& job) const {
  for (const std::shared_ptr<Job>& earlier : jobs_) {
    if (earlier.get() == &job) break;
    const int before = order_of(earlier->call), own = order_of(job.call);
    if (before == own || before == 0 || own == 0) return false;
  }
  return true;
}

void HostGroup::carry_out(Job& job, std::unique_lock<std::mutex>& lock) {
  job.begun = true;
  lock.unlock();
  execute(job);
  lock.lock();
  jobs_.erase(std::ranges::find(jobs_, &job, &std::shared_ptr<Job>::get));
  changed_.notify_all();
}

void HostGroup::run_thread() {
  std::unique_lock lock(mutex_);
  const auto is_next = [&](const auto& job) { return job->async && !job->begun && may_begin(*job); };
  while (true) {
    auto next = jobs_.end();
    changed_.wait(lock, [&] {
      next = std::ranges::find_if(jobs_, is_next);
      return next != jobs_.end() || (stopping_ && jobs_.empty());
    });
    if (next == jobs_.end()) return;
    const std::shared_ptr<Job> job = *next;
    carry_out(*job, lock);
  }
}

HostGroup::WorkPtr HostGroup::submit(const Collective& call, const Array& in, const Array& out,
                                     const CollectiveOptions& options) {
  std::shared_ptr<Event> ready;
  check_not_recording(DeviceType::cpu, "a collective of arrays on the cpu");
  if (call.descriptor.on_device) {
    const Device device = in.defined() ? in.device() : out.device();
    DeviceRuntime& runtime = gradus::runtime(device.type());
    GRADUS_CHECK(!runtime.capturing(), DeviceError, "a collective that goes through the host's memory, as those of '",
                 backend(), "' do, cannot be part of a captured graph: take a group of the backend 'nccl'");
    ready = runtime.new_event(false);
    ready->record(runtime.current_stream(device.index()));
  }
  std::unique_lock lock(mutex_);
  if (options.async && !async_orders_.contains(order_of(call))) {
    threads_.emplace_back([this] { run_thread(); });
    async_orders_.insert(order_of(call));
  }
  Job job{call, options.timeout.value_or(timeout()), in, out, std::move(ready), nullptr, options.async};
  take_number(&job.call);
  job.work = std::make_shared<HostWork>(job.call.descriptor.sequence);
  if (options.async) {
    const auto work = job.work;
    jobs_.push_back(std::make_shared<Job>(std::move(job)));
    changed_.notify_all();
    return work;
  }
  jobs_.push_back({std::shared_ptr<void>(), &job});
  changed_.wait(lock, [&] { return may_begin(job); });
  carry_out(job, lock);
  lock.unlock();
  job.work->wait();
  return job.work;
}

}  // namespace gradus::dist
