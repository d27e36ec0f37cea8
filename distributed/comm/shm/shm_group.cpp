#include <gradus/distributed/comm/shm/shm_group.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include <gradus/core/array/shape.h>
#include <gradus/core/error.h>

namespace gradus::dist {
namespace {

constexpr size_t kMailBytes = 64 << 10;
constexpr uint32_t kLayoutVersion = 1;
/// How often a sleeping rank checks whether the ranks it waits for are alive.
constexpr Milliseconds kPollInterval{20};
/// A rank that waits for others shows it within this time.
constexpr Milliseconds kAnswerTime{300};
constexpr std::chrono::microseconds kSpin{50};
/// After this time a spinning rank yields its core between polls, because the rank it waits for may need it.
constexpr std::chrono::microseconds kOwnSpin{5};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

size_t round_up(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

/// A call of a rank.
struct ShmGroup::CallRecord {
  Descriptor descriptor;
  Place place;

  /// A hash of this record. Two different records have equal hashes with a probability of 2^-64.
  uint64_t digest() const {
    uint64_t digest = 0;
    const auto add = [&](uint64_t value) {
      digest = (digest ^ value) * 0x9e3779b97f4a7c15;
      digest ^= digest >> 32;
    };
    const Descriptor& d = descriptor;
    add(d.sequence);
    add(d.count);
    add(uint64_t{d.epoch} << 32 | static_cast<uint32_t>(d.root));
    add(static_cast<uint64_t>(d.kind) << 32 | static_cast<uint64_t>(d.reduce) << 24 |
        static_cast<uint64_t>(d.dtype) << 16 | uint64_t{d.strict} << 8 | uint64_t{d.on_device});
    add(static_cast<uint32_t>(place.bucket));
    add(place.offset);
    return digest;
  }
};

struct alignas(64) ShmGroup::RankLine {
  std::atomic<uint32_t> fences;  // number of fences that the rank has reached
  std::atomic<uint32_t> left;
  int32_t pid;
  std::atomic<uint32_t> heartbeats;  // grows while the rank waits for others
  uint64_t digest[2];                // of its calls, in the cache line that the others wait for anyway
  alignas(64) CallRecord call[2];    // the last call and the one before
};

/// A queue of two pieces from one rank to another.
struct alignas(64) ShmGroup::Mailbox {
  std::atomic<uint32_t> written;
  alignas(64) std::atomic<uint32_t> read;
  std::array<std::byte, MessageHeader::kBytes> call[2];
  alignas(64) std::byte data[2][kMailBytes];
};

struct ShmGroup::Header {
  uint32_t layout, size;
  std::atomic<uint32_t> sleepers;  // number of ranks that may be sleeping on any word of the segment
  std::atomic<uint32_t> failed;    // 1 while the failure is being written, then 2
  CommFailure failure;
  int32_t failure_rank;
  char message[2048];
};

ShmGroup::Header& ShmGroup::header() const { return *reinterpret_cast<Header*>(memory_.data()); }
ShmGroup::RankLine& ShmGroup::line(int rank) const {
  return reinterpret_cast<RankLine*>(memory_.data() + round_up(sizeof(Header)))[rank];
}
std::byte* ShmGroup::slot(int rank, uint32_t ago) const {
  const size_t lines = round_up(sizeof(RankLine) * static_cast<size_t>(size()));
  return memory_.data() + round_up(sizeof(Header)) + lines +
         (kSlots * static_cast<size_t>(rank) + (pieces_ - ago) % kSlots) * kSlotBytes;
}
ShmGroup::Mailbox& ShmGroup::mailbox(int from, int to) const {
  const size_t lines = round_up(sizeof(RankLine) * static_cast<size_t>(size()));
  const size_t slots = kSlots * kSlotBytes * static_cast<size_t>(size());
  std::byte* boxes = memory_.data() + round_up(sizeof(Header)) + lines + slots;
  return reinterpret_cast<Mailbox*>(boxes)[from * size() + to];
}

ShmGroup::ShmGroup(std::shared_ptr<Store> store, int rank, int size, const ShmOptions& options)
    : HostGroup(rank, size, options.epoch, options.timeout), store_key_("shm/" + std::to_string(options.epoch)),
      store_(std::move(store)) {
  GRADUS_CHECK(size <= kMaxRanksOfHost, ValueError, "at most ", kMaxRanksOfHost,
               " ranks share memory, and this group has ", size, ": take the backend 'tcp'");
  const auto ranks = static_cast<size_t>(size);
  const size_t bytes = round_up(sizeof(Header)) + round_up(sizeof(RankLine) * ranks) + kSlots * kSlotBytes * ranks +
                       sizeof(Mailbox) * ranks * ranks;
  const std::string identity = host_identity();
  if (rank == 0) {
    memory_ = SharedMemory::create(bytes);
    header().layout = kLayoutVersion;
    header().size = static_cast<uint32_t>(size);
    store_->set(store_key_, identity + "\n" + memory_.path());
  } else {
    const std::string value = store_->get(store_key_, options.timeout);
    const size_t end = value.find('\n');
    GRADUS_CHECK(end != std::string::npos && value.substr(0, end) == identity, CommError, "rank ", rank,
                 " is not on the host of rank 0, or runs as another user or in another container: use a tcp group");
    memory_ = SharedMemory::open(value.substr(end + 1), bytes);
    GRADUS_CHECK(header().layout == kLayoutVersion && header().size == static_cast<uint32_t>(size), CommError,
                 "rank 0 made a group of ", header().size, " ranks, rank ", rank, " one of ", size,
                 ", or they run different versions of gradus");
  }
  line(rank).pid = getpid();
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(store_key_ + "/" + std::to_string(r));
  store_->set(keys[static_cast<size_t>(rank)], "");
  store_->wait(keys, options.timeout);
  for (int r = 0; r < size; ++r) processes_.emplace_back(line(r).pid);

  cpu_set_t cores;
  const int available = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  spins_ = size <= available;
}

std::unique_ptr<ProcessGroup> ShmGroup::make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                                   Milliseconds timeout) {
  const ShmOptions options{.timeout = timeout, .epoch = epoch};
  return std::unique_ptr<ShmGroup>(new ShmGroup(store_, rank, static_cast<int>(ranks.size()), options));
}

ShmGroup::~ShmGroup() {
  stop();
  advance(line(rank()).left);
}

void ShmGroup::advance(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  // This load and the sleeper's increment and load are sequentially consistent, so one of the two sees the other.
  if (header().sleepers.load() > 0) futex_wake(word);
}

void ShmGroup::check_failure() {
  if (header().failed.load() == 0) return;
  while (header().failed.load() == 1) pause();  // the failure is being written
  throw CollectiveError({header().failure, header().failure_rank, header().message});
}

void ShmGroup::announce(const CommStatus& failure) noexcept {
  uint32_t none = 0;
  if (!header().failed.compare_exchange_strong(none, 1)) return;
  header().failure = failure.failure;
  header().failure_rank = failure.rank;
  const size_t length = std::min(failure.message.size(), sizeof header().message - 1);
  std::memcpy(header().message, failure.message.data(), length);
  header().message[length] = '\0';
  header().failed.store(2);
  // Sleeping ranks poll the failure every kPollInterval, so they need not be woken.
}

void ShmGroup::check_peer(int peer, const Descriptor& descriptor) {
  check_failure();
  if (line(peer).left.load() != 0) throw CollectiveError(peer_left(descriptor, peer));
  if (line(peer).pid != getpid() && processes_[static_cast<size_t>(peer)].has_ended())
    throw CollectiveError(peer_lost(descriptor, peer, "its process ended"));
}

void ShmGroup::await(std::atomic<uint32_t>& word, uint32_t value, int peer, const Descriptor& descriptor,
                     const Deadline& deadline) {
  const auto arrived = [&] { return static_cast<int32_t>(word.load() - value) >= 0; };
  if (arrived()) return;
  if (spins_) {
    const auto begin = Deadline::Clock::now();
    for (auto now = begin; now < begin + kSpin; now = Deadline::Clock::now()) {
      for (int i = 0; i < 32; ++i) {
        if (arrived()) return;
        pause();
      }
      if (now > begin + kOwnSpin) sched_yield();
    }
  }
  header().sleepers.fetch_add(1);
  struct Awake {
    std::atomic<uint32_t>& sleepers;
    ~Awake() { sleepers.fetch_sub(1); }
  } awake{header().sleepers};
  const Deadline patience(kPatience);
  bool warned = false;
  while (true) {
    const uint32_t seen = word.load();
    if (static_cast<int32_t>(seen - value) >= 0) return;
    check_peer(peer, descriptor);
    if (deadline.passed())
      throw CollectiveError(timed_out(descriptor, rank(), awaited_ranks(peer, descriptor), deadline.timeout()));
    if (patience.passed() && !std::exchange(warned, true))
      warn_of_waiting(descriptor, rank(), awaited_ranks(peer, descriptor));
    line(rank()).heartbeats.fetch_add(1);
    futex_wait(word, seen, std::min(kPollInterval, std::max(deadline.left(), Milliseconds(1))));
  }
}

std::vector<int> ShmGroup::awaited_ranks(int peer, const Descriptor& descriptor) {
  std::vector<uint32_t> heartbeats;
  for (int r = 0; r < size(); ++r) heartbeats.push_back(line(r).heartbeats.load());
  const auto is_silent = [&](int r) {
    return r != rank() && line(r).left.load() == 0 && line(r).heartbeats.load() == heartbeats[static_cast<size_t>(r)];
  };
  std::vector<int> silent;
  const Deadline deadline(kAnswerTime);
  do {
    std::this_thread::sleep_for(kPollInterval);
    line(rank()).heartbeats.fetch_add(1);  // other ranks may be looking for silent ranks too
    check_peer(peer, descriptor);
    silent.clear();
    for (int r = 0; r < size(); ++r)
      if (is_silent(r)) silent.push_back(r);
  } while (!silent.empty() && !deadline.passed());
  return silent.empty() ? std::vector<int>{peer} : silent;
}

void ShmGroup::fence(const Descriptor& descriptor, const Deadline& deadline) {
  advance(line(rank()).fences);
  ++fences_;
  for (int r = 0; r < size(); ++r)
    if (r != rank()) await(line(r).fences, fences_, r, descriptor, deadline);
}

ShmGroup::Arrays ShmGroup::begin(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const uint32_t turn = calls_++ % 2;
  CallRecord& own = line(rank()).call[turn];
  place_ = d.kind == CollectiveKind::all_reduce ? locate(call.out, d.count * size_of(d.dtype)) : Place{};
  own = {call.message_descriptor(), place_};
  line(rank()).digest[turn] = own.digest();
  const bool reduces = d.kind == CollectiveKind::all_reduce || d.kind == CollectiveKind::reduce;
  if (reduces && place_.bucket < 0) show(call, 0);
  fence(call.message_descriptor(), deadline);
  Arrays arrays = place_.bucket >= 0 ? Arrays::shared : Arrays::own;
  for (int r = 0; r < size(); ++r) {
    if (line(r).digest[turn] == line(rank()).digest[turn]) continue;
    const CallRecord& theirs = line(r).call[turn];
    if (theirs.descriptor != own.descriptor)
      throw CollectiveError(mismatch(r, theirs.descriptor, rank(), own.descriptor));
    arrays = Arrays::mixed;  // the calls agree, but the arrays are in different places
  }
  return arrays;
}

void ShmGroup::run(const Collective& call, const Deadline& deadline) {
  check_failure();
  if (call.descriptor.kind == CollectiveKind::send) return call.sends ? send(call, deadline) : receive(call, deadline);
  const Arrays arrays = begin(call, deadline);
  switch (call.descriptor.kind) {
    case CollectiveKind::barrier: return;
    case CollectiveKind::all_reduce:
      if (arrays == Arrays::shared) return all_reduce_in_place(call, deadline);
      [[fallthrough]];
    case CollectiveKind::reduce: return all_reduce(call, arrays, deadline);
    case CollectiveKind::reduce_scatter: return reduce_scatter(call, deadline);
    case CollectiveKind::all_gather:
    case CollectiveKind::gather: return all_gather(call, deadline);
    case CollectiveKind::broadcast: return broadcast(call, deadline);
    case CollectiveKind::scatter: return scatter(call, deadline);
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_to_all_v:
    case CollectiveKind::all_gather_v: return all_to_all(call, deadline);
    case CollectiveKind::send: return;
  }
}

void ShmGroup::send(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), piece = kMailBytes / element;
  Mailbox& box = mailbox(rank(), call.peer);
  size_t begin = 0;
  do {  // once even for an empty message
    const size_t count = std::min(piece, d.count - begin);
    const uint32_t number = box.written.load();
    await(box.read, number - 1, call.peer, d, deadline);  // until one of the two pieces is free
    box.call[number % 2] = MessageHeader{call.message_descriptor()}.encode();
    if (count > 0) std::memcpy(box.data[number % 2], at(call.in, begin, d.dtype), count * element);
    advance(box.written);
    begin += count;
  } while (begin < d.count);
}

void ShmGroup::receive(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), piece = kMailBytes / element;
  Mailbox& box = mailbox(call.peer, rank());
  size_t begin = 0;
  do {
    const size_t count = std::min(piece, d.count - begin);
    const uint32_t number = box.read.load();
    await(box.written, number + 1, call.peer, d, deadline);
    const Descriptor theirs = MessageHeader::decode(box.call[number % 2]).descriptor;
    if (theirs != call.message_descriptor())
      throw CollectiveError(mismatch(call.peer, theirs, rank(), call.message_descriptor()));
    if (count > 0) std::memcpy(at(call.out, begin, d.dtype), box.data[number % 2], count * element);
    advance(box.read);
    begin += count;
  } while (begin < d.count);
}

Array ShmGroup::empty(const Shape& shape, DType dtype, Device device) {
  const OpContext context("shm_group.empty");
  if (!device.is_cpu()) return ProcessGroup::empty(shape, dtype, device);
  const size_t bytes = round_up(std::max<size_t>(1, checked_bytes(shape, dtype)));
  checked_product(static_cast<int64_t>(bytes), size());  // the bytes of all ranks together
  const std::string key = store_key_ + "/bucket/" + std::to_string(buckets_.size());
  const auto bucket = std::make_shared<Bucket>();
  bucket->bytes_each = bytes;
  if (rank() == 0) {
    bucket->memory = SharedMemory::create(bytes * static_cast<size_t>(size()));
    store_->set(key, bucket->memory.path());
  } else {
    bucket->memory = SharedMemory::open(store_->get(key, timeout()), bytes * static_cast<size_t>(size()));
  }
  buckets_.push_back(bucket);
  barrier();
  std::byte* own = bucket->memory.data() + bytes * static_cast<size_t>(rank());
  const Storage storage = Storage::adopt(own, bytes, Device(), [bucket](void*) {});
  return Array(storage, 0, shape, contiguous_strides(shape), dtype);
}

ShmGroup::Place ShmGroup::locate(const void* data, size_t bytes) const {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const std::shared_ptr<Bucket> bucket = buckets_[i].lock();
    if (!bucket) continue;
    const auto own =
        reinterpret_cast<uintptr_t>(bucket->memory.data() + bucket->bytes_each * static_cast<size_t>(rank()));
    const auto begin = reinterpret_cast<uintptr_t>(data);
    if (begin >= own && begin + bytes <= own + bucket->bytes_each) return {static_cast<int32_t>(i), begin - own};
  }
  return {};
}

}  // namespace gradus::dist
