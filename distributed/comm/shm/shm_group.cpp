#include <gradus/distributed/comm/shm/shm_group.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace gradus::dist {
namespace {

constexpr size_t kMailBytes = 64 << 10;
constexpr uint32_t kLayoutVersion = 3;
/// How often a sleeping rank checks whether the ranks it waits for are alive.
constexpr Milliseconds kPollInterval{20};
/// A rank that waits for others changes its heartbeat at least once in this time.
constexpr Milliseconds kAnswerTime{300};
/// A waiting rank spins (polls without sleeping) for this long before it sleeps.
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

/// Up to this size each rank sums all elements, which takes less time than another fence.
constexpr size_t kShortBytes = 32 << 10;

/// Calls body(begin, count) for pieces of at most `piece` of `count` elements.
template <class F>
void for_pieces(size_t count, size_t piece, F&& body) {
  for (size_t begin = 0; begin < count; begin += piece) body(begin, std::min(piece, count - begin));
}

/// The maximum length of the message of a failure, and the bytes for it and for the two numbers and the length that
/// encode() writes before it.
constexpr size_t kFailureMessage = 2048, kFailureBytes = kFailureMessage + 256;

/// The slots begin at a multiple of this in the shared memory, as do the ranks' parts of a bucket.
constexpr size_t kPageBytes = 4096;

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
  uint64_t digest[2];                // hashes of `call`, in the cache line that other ranks read anyway for `fences`
  alignas(64) CallRecord call[2];    // the last two calls
  std::array<std::byte, kFailureBytes> failure;  // what encode() has written, once Header::failed names the rank
};

/// A queue of at most two pieces of messages from one rank to another. `written` and `read` count the pieces so far.
struct alignas(64) ShmGroup::Mailbox {
  std::atomic<uint32_t> written;
  alignas(64) std::atomic<uint32_t> read;
  std::array<std::byte, MessageHeader::kBytes> call[2];
  alignas(64) std::byte data[2][kMailBytes];
};

struct alignas(64) ShmGroup::Header {
  uint32_t layout, size;
  std::atomic<uint32_t> sleepers;  // number of ranks that may be sleeping
  std::atomic<uint32_t> failed;    // 1 + the rank that announced the first failure; 0 if there is none
};

ShmGroup::Header& ShmGroup::header() const { return *reinterpret_cast<Header*>(memory_.data()); }
ShmGroup::RankLine& ShmGroup::line(int rank) const { return reinterpret_cast<RankLine*>(&header() + 1)[rank]; }
std::byte* ShmGroup::slots() const {
  return memory_.data() + round_up(sizeof(Header) + sizeof(RankLine) * static_cast<size_t>(size()), kPageBytes);
}
std::byte* ShmGroup::slot(int rank, uint32_t ago) const {
  return slots() + (kSlots * static_cast<size_t>(rank) + (pieces_ - ago) % kSlots) * kSlotBytes;
}
ShmGroup::Mailbox& ShmGroup::mailbox(int from, int to) const {
  std::byte* boxes = slots() + kSlots * kSlotBytes * static_cast<size_t>(size());
  return reinterpret_cast<Mailbox*>(boxes)[from * size() + to];
}

ShmGroup::ShmGroup(std::shared_ptr<Store> store, int rank, int size, const ShmOptions& options)
    : HostGroup(rank, size, options.epoch, options.timeout), store_key_("shm/" + std::to_string(options.epoch)),
      store_(std::move(store)) {
  GRADUS_CHECK(size <= kMaxRanksOfHost, ValueError, "at most ", kMaxRanksOfHost,
               " ranks share memory, and this group has ", size, ": take the backend 'tcp'");
  const auto ranks = static_cast<size_t>(size);
  const size_t bytes = round_up(sizeof(Header) + sizeof(RankLine) * ranks, kPageBytes) + kSlots * kSlotBytes * ranks +
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
  wait_for_ranks(*store_, store_key_, "", rank, size, options.timeout);
  for (int r = 0; r < size; ++r) processes_.emplace_back(line(r).pid);

  cpu_set_t cores;
  const int available = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  spins_ = size <= available;
}

ShmGroup::~ShmGroup() {
  stop();
  advance(line(rank()).left);
}

void ShmGroup::advance(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  // These two operations, and in await() the increment of `sleepers` and the load of the word, are sequentially
  // consistent. Therefore either this rank sees the sleeper, or the sleeper sees the new value.
  if (header().sleepers.load() > 0) futex_wake(word);
}

void ShmGroup::check_failure() {
  const uint32_t failed = header().failed.load();
  if (failed > 0) throw CollectiveError(decode_failure(line(static_cast<int>(failed) - 1).failure));
}

void ShmGroup::announce(const CommStatus& failure) noexcept {
  if (announced_.exchange(true)) return;
  // A rank that is killed before the last line has announced nothing, and the others notice that its process ended.
  std::ranges::copy(encode(failure, kFailureMessage), line(rank()).failure.begin());
  uint32_t none = 0;
  header().failed.compare_exchange_strong(none, static_cast<uint32_t>(rank()) + 1);
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
  Deadline patience(warn_after);
  while (true) {
    const uint32_t seen = word.load();
    if (static_cast<int32_t>(seen - value) >= 0) return;
    check_peer(peer, descriptor);
    if (deadline.passed())
      throw CollectiveError(timed_out(descriptor, rank(), awaited_ranks(peer, descriptor), deadline.timeout()));
    if (patience.passed()) {
      warn_of_waiting(descriptor, rank(), awaited_ranks(peer, descriptor));
      patience = Deadline(kLongestWait);
    }
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
  if (call.descriptor.kind == CollectiveKind::send) return send_or_receive(call, deadline);
  const Arrays arrays = begin(call, deadline);
  switch (call.descriptor.kind) {
    case CollectiveKind::barrier: break;
    case CollectiveKind::all_reduce:
      if (arrays == Arrays::shared) return all_reduce_in_place(call, deadline);
      [[fallthrough]];
    case CollectiveKind::reduce: return all_reduce(call, arrays, deadline);
    case CollectiveKind::broadcast:
    case CollectiveKind::gather:
    case CollectiveKind::all_gather: return exchange_whole(call, deadline);
    default: exchange_parts(call, deadline);
  }
}

void ShmGroup::send_or_receive(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), piece = kMailBytes / element;
  Mailbox& box = call.sends ? mailbox(rank(), call.peer) : mailbox(call.peer, rank());
  std::atomic<uint32_t>& own = call.sends ? box.written : box.read;
  size_t begin = 0;
  do {  // once even for an empty message
    const size_t count = std::min(piece, d.count - begin);
    const uint32_t number = own.load();
    std::byte* data = box.data[number % 2];
    if (call.sends) {
      await(box.read, number - 1, call.peer, d, deadline);  // until one of the two pieces is free
      box.call[number % 2] = MessageHeader{call.message_descriptor()}.encode();
      if (count > 0) std::memcpy(data, at(call.in, begin, d.dtype), count * element);
    } else {
      await(box.written, number + 1, call.peer, d, deadline);
      const Descriptor theirs = MessageHeader::decode(box.call[number % 2]).descriptor;
      if (theirs != call.message_descriptor())
        throw CollectiveError(mismatch(call.peer, theirs, rank(), call.message_descriptor()));
      if (count > 0) std::memcpy(at(call.out, begin, d.dtype), data, count * element);
    }
    advance(own);
    begin += count;
  } while (begin < d.count);
}

Array ShmGroup::empty(const Shape& shape, DType dtype, Device device) {
  const OpContext context("shm_group.empty");
  if (!device.is_cpu()) return ProcessGroup::empty(shape, dtype, device);
  const size_t bytes = round_up(std::max<size_t>(1, checked_bytes(shape, dtype)), kPageBytes);
  checked_product(static_cast<int64_t>(bytes), size());  // the bytes of all ranks together
  const std::string key = store_key_ + "/bucket/" + std::to_string(buckets_.size());
  const size_t all_bytes = bytes * static_cast<size_t>(size());
  const auto bucket = std::make_shared<Bucket>();
  bucket->bytes_each = bytes;
  bucket->memory =
      rank() == 0 ? SharedMemory::create(all_bytes) : SharedMemory::open(store_->get(key, timeout()), all_bytes);
  if (rank() == 0) store_->set(key, bucket->memory.path());
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

// ---- Collectives, which move data piece by piece ----

void ShmGroup::all_reduce_in_place(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const std::shared_ptr<Bucket> bucket = buckets_[static_cast<size_t>(place_.bucket)].lock();
  const Range mine = part_of(d.count, size(), rank());
  std::vector<void*> parts;  // for each rank, the part of its array that this rank sums, and overwrites with the sum
  for (size_t r = 0; r < static_cast<size_t>(size()); ++r)
    parts.push_back(at(bucket->memory.data() + r * bucket->bytes_each + place_.offset, mine.begin, d.dtype));
  reduce_in_order(d.dtype, d.reduce, std::vector<const void*>(parts.begin(), parts.end()), parts, mine.size());
  fence(d, deadline);
}

void ShmGroup::show(const Collective& call, size_t piece) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), begin = piece * (kSlotBytes / element);
  if (begin >= d.count) return;
  std::memcpy(slot(rank()), at(call.in, begin, d.dtype), std::min(kSlotBytes, (d.count - begin) * element));
}

void ShmGroup::all_reduce(const Collective& call, Arrays arrays, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  if (d.count == 0) return;
  if (arrays == Arrays::mixed) {  // begin() did not copy piece 0 on ranks whose array is in a bucket
    show(call, 0);
    fence(d, deadline);
  }
  const size_t element = size_of(d.dtype), length = kSlotBytes / element, pieces = ceil_div(d.count, length);
  // Of two ranks, each sums every piece completely, one step after the piece was written. This reads no more of the
  // other rank's memory than summing by parts. More than two ranks do so only if the array is short. Otherwise each of
  // them sums a part of the piece, and all ranks copy the sums in the next step.
  const bool by_parts = size() > 2 && d.count * element > kShortBytes;
  const size_t taken_after = by_parts ? 2 : 1, steps = pieces + taken_after;
  const auto count_of = [&](size_t piece) { return std::min(length, d.count - piece * length); };
  std::vector<const void*> operands(static_cast<size_t>(size()));

  for (size_t step = 1; step < steps; ++step) {  // step 0, copying piece 0 into the slot, is done
    ++pieces_;
    show(call, step);
    if (by_parts && step <= pieces) {
      const Range mine = part_of(count_of(step - 1), size(), rank());
      for (int r = 0; r < size(); ++r) operands[static_cast<size_t>(r)] = at(slot(r, 1), mine.begin, d.dtype);
      reduce_in_order(d.dtype, d.reduce, operands, at(slot(rank(), 1), mine.begin, d.dtype), mine.size());
    }
    if (call.out != nullptr && step >= taken_after) {
      const size_t piece = step - taken_after, begin = piece * length, count = count_of(piece);
      for (int r = 0; r < size(); ++r) {
        operands[static_cast<size_t>(r)] = r == rank() ? at(call.in, begin, d.dtype) : slot(r, 1);
        if (!by_parts) continue;
        const Range part = part_of(count, size(), r);
        std::memcpy(at(call.out, begin + part.begin, d.dtype), at(slot(r, 2), part.begin, d.dtype),
                    part.size() * element);
      }
      if (!by_parts) reduce_in_order(d.dtype, d.reduce, operands, at(call.out, begin, d.dtype), count);
    }
    if (step + 1 < steps) fence(d, deadline);
  }
  ++pieces_;
}

void ShmGroup::exchange_whole(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype);
  const bool from_all = d.kind != CollectiveKind::broadcast;
  for_pieces(d.count, kSlotBytes / element, [&](size_t begin, size_t count) {
    if (call.in != nullptr) std::memcpy(slot(rank()), at(call.in, begin, d.dtype), count * element);
    fence(d, deadline);
    for (int r = 0; call.out != nullptr && r < size(); ++r) {
      const size_t place = from_all ? static_cast<size_t>(r) * d.count : 0;
      if (from_all || r == d.root) std::memcpy(at(call.out, place + begin, d.dtype), slot(r), count * element);
    }
    ++pieces_;
  });
}

size_t ShmGroup::longest_part(const Collective& call, const Deadline& deadline) {
  if (call.in_parts.empty()) return call.descriptor.count;
  const auto ranks = static_cast<size_t>(size());
  std::vector<uint64_t> counts(ranks * ranks);  // [r][s]: elements that rank r sends to rank s
  for (int r = 0; r < size(); ++r) counts[static_cast<size_t>(r)] = call.in_part(r).size();
  std::memcpy(slot(rank()), counts.data(), ranks * sizeof(uint64_t));
  fence(call.descriptor, deadline);
  for (int r = 0; r < size(); ++r)
    std::memcpy(&counts[static_cast<size_t>(r) * ranks], slot(r), ranks * sizeof(uint64_t));
  ++pieces_;
  const size_t element = size_of(call.descriptor.dtype);
  for (int r = 0; r < size(); ++r) {
    const uint64_t sent = counts[static_cast<size_t>(r) * ranks + static_cast<size_t>(rank())];
    if (const size_t due = call.out_part(r).size(); sent != due)
      throw CollectiveError(wrong_length(call.descriptor, r, sent * element, due * element));
  }
  return *std::max_element(counts.begin(), counts.end());
}

void ShmGroup::exchange_parts(const Collective& call, const Deadline& deadline) {
  const Descriptor& d = call.descriptor;
  const size_t element = size_of(d.dtype), piece = kSlotBytes / element / static_cast<size_t>(size());
  const auto received_from = [&](int r) {
    return d.kind == CollectiveKind::scatter ? Range{0, r == d.root ? d.count : 0} : call.out_part(r);
  };
  std::vector<const void*> operands(static_cast<size_t>(size()));
  for_pieces(longest_part(call, deadline), piece, [&](size_t begin, size_t count) {
    const auto place = [&](int from, int to) { return slot(from) + static_cast<size_t>(to) * piece * element; };
    const auto piece_of = [&](const Range& part) {
      const size_t first = std::min(part.begin + begin, part.end);
      return Range{first, std::min(first + count, part.end)};
    };
    for (int r = 0; call.in != nullptr && r < size(); ++r)
      if (const Range part = piece_of(call.in_part(r)); part.size() > 0)
        std::memcpy(place(rank(), r), at(call.in, part.begin, d.dtype), part.size() * element);
    fence(d, deadline);
    for (int r = 0; r < size(); ++r) {
      operands[static_cast<size_t>(r)] = place(r, rank());
      if (d.kind == CollectiveKind::reduce_scatter) continue;
      if (const Range part = piece_of(received_from(r)); part.size() > 0)
        std::memcpy(at(call.out, part.begin, d.dtype), place(r, rank()), part.size() * element);
    }
    if (d.kind == CollectiveKind::reduce_scatter)
      reduce_in_order(d.dtype, d.reduce, operands, at(call.out, begin, d.dtype), count);
    ++pieces_;
  });
}

}  // namespace gradus::dist
