#include <gradus/distributed/comm/mpi/mpi_group.h>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>

namespace gradus::dist {
namespace {

/// Throws a CommError that names the call and MPI's error, unless the code is success.
void check_mpi(const char* call, int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  const std::string_view name(call);
  GRADUS_FAIL(CommError, name.substr(0, name.find('(')), " failed: ", std::string(text));
}
#define GRADUS_MPI_CHECK(call) check_mpi(#call, call)

bool is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

void finalize(int exit_code, void* = nullptr) {
  if (exit_code == 0 && !is_finalized()) MPI_Finalize();
}

void initialize() {
  GRADUS_CHECK(!is_finalized(), CommError, "this program has called MPI_Finalize, after which MPI cannot be used");
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) {
    GRADUS_MPI_CHECK(MPI_Query_thread(&level));
    GRADUS_CHECK(level >= MPI_THREAD_MULTIPLE, CommError,
                 "this program has initialised MPI without support for several threads: call MPI_Init_thread with "
                 "MPI_THREAD_MULTIPLE, or leave the initialisation to init_process_group");
    return;
  }
  GRADUS_MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
  on_exit(finalize, nullptr);
  GRADUS_CHECK(level >= MPI_THREAD_MULTIPLE, CommError,
               "this MPI library cannot be called by several threads "
               "(MPI_THREAD_MULTIPLE): install one that can, or take the backend 'tcp'");
}

}  // namespace

/// The MPI job to which this process belongs. All groups share it, from the first group to the end of the program.
class MpiJob {
 public:
  /// Initialises MPI, unless the program has done so, and waits until all processes of the job have called get().
  /// Throws a CommError if several threads cannot call MPI, or if another process does not call it within `timeout`.
  /// MPI_Init itself has no deadline.
  ///
  /// If MPI was initialised here, an exit handler finalizes it. With exit code 0 the program waits in MPI_Finalize for
  /// the other processes, also without a deadline. With another code it does not call MPI_Finalize, from which mpirun
  /// concludes that the job has failed and must be ended.
  static MpiJob& get(Milliseconds timeout) {
    static MpiJob* job = new MpiJob(timeout);  // never destroyed, because static objects may hold groups
    return *job;
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// A communicator that only this library uses, so that its messages do not mix with those of the program.
  MPI_Comm communicator() const { return communicator_; }
  /// The largest tag of a message.
  int largest_tag() const { return largest_tag_; }

  /// Starts to send a short message and does not wait for it. Does nothing once MPI is finalized.
  void post(int rank, int tag, io::Bytes bytes) {
    const std::lock_guard lock(mutex_);
    if (is_finalized()) return;
    forget_sent();
    Sending& sending = sending_.emplace_back(Sending{std::move(bytes)});
    GRADUS_MPI_CHECK(MPI_Isend(sending.bytes.data(), static_cast<int>(sending.bytes.size()), MPI_BYTE, rank, tag,
                               communicator_, &sending.request));
  }
  /// Waits until all posted messages have left this process, but at most `timeout`.
  void flush(Milliseconds timeout) {
    for (const Deadline deadline(timeout); !deadline.passed(); std::this_thread::yield()) {
      const std::lock_guard lock(mutex_);
      if (is_finalized()) return;
      forget_sent();
      if (sending_.empty()) return;
    }
  }

  struct Posted {
    int rank = -1;
    io::Bytes bytes;
  };
  /// The next posted message with this tag from any rank, if one has arrived.
  std::optional<Posted> next(int tag) const {
    int found = 0, bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    GRADUS_MPI_CHECK(MPI_Improbe(MPI_ANY_SOURCE, tag, communicator_, &found, &message, &status));
    if (!found) return std::nullopt;
    GRADUS_MPI_CHECK(MPI_Get_count(&status, MPI_BYTE, &bytes));
    Posted posted{status.MPI_SOURCE, io::Bytes(static_cast<size_t>(bytes))};
    GRADUS_MPI_CHECK(MPI_Mrecv(posted.bytes.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE));
    return posted;
  }

 private:
  explicit MpiJob(Milliseconds timeout) {
    initialize();
    static MPI_Comm communicator = MPI_COMM_NULL;  // static, so that a call after a timeout continues this one
    static MPI_Request request = MPI_REQUEST_NULL;
    if (communicator == MPI_COMM_NULL && request == MPI_REQUEST_NULL)
      GRADUS_MPI_CHECK(MPI_Comm_idup(MPI_COMM_WORLD, &communicator, &request));
    const Deadline deadline(timeout);
    for (int done = 0; true; std::this_thread::sleep_for(Milliseconds(1))) {
      GRADUS_MPI_CHECK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done) break;
      GRADUS_CHECK(!deadline.passed(), CommError, "waited ", timeout.count(),
                   " ms for all processes of the MPI job to call init_process_group");
    }
    communicator_ = communicator;
    GRADUS_MPI_CHECK(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
    GRADUS_MPI_CHECK(MPI_Comm_rank(communicator_, &rank_));
    GRADUS_MPI_CHECK(MPI_Comm_size(communicator_, &size_));
    void* largest = nullptr;
    int found = 0;
    GRADUS_MPI_CHECK(MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &largest, &found));
    largest_tag_ = found ? *static_cast<int*>(largest) : 32767;  // the minimum that MPI guarantees
  }
  void forget_sent() {
    for (auto sending = sending_.begin(); sending != sending_.end();) {
      int done = 0;
      GRADUS_MPI_CHECK(MPI_Test(&sending->request, &done, MPI_STATUS_IGNORE));
      sending = done ? sending_.erase(sending) : std::next(sending);
    }
  }

  int rank_ = 0, size_ = 1, largest_tag_ = 0;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  struct Sending {
    io::Bytes bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::mutex mutex_;
  std::list<Sending> sending_;
};

namespace {

/// A rank that does not answer a question within this time counts as silent.
constexpr Milliseconds kAnswerTime{300};
/// How long a rank that has failed waits for its announcement to be sent, and for bodies that are in transit.
constexpr Milliseconds kLastWordsTime{300};
/// Bodies are sent in pieces of this size, because MPI counts bytes in an int.
constexpr size_t kLargestPiece = 64 << 20;

int position(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
}

int tag_of(int64_t group, const MpiJob& job) {
  GRADUS_CHECK(2 * group < job.largest_tag(), CommError, "the MPI library has tags up to ", job.largest_tag(),
               ", too few for this many groups: make fewer, or take the backend 'tcp'");
  return static_cast<int>(2 * group);
}

/// Waits between two polls: at first not at all, so that messages are fast, then by yielding and at last by sleeping,
/// to free the processor.
class Pause {
 public:
  void operator()() {
    if (++looks_ < 100) return;
    const auto waited = std::chrono::steady_clock::now() - begin_;
    if (waited < std::chrono::milliseconds(1)) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  int looks_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

/// One call of exchange().
class MpiTransport::Exchange {
 public:
  Exchange(MpiTransport& transport, std::span<const Transfer> transfers, const Descriptor& descriptor)
      : transport_(transport), lock_(transport.mutex_), descriptor_(descriptor) {
    for (const Transfer& transfer : transfers) messages_.push_back({transfer});
  }
  /// Cancels the receives that are still in progress. MPI cannot cancel a message that has begun to arrive, so the
  /// destructor waits a moment for it, before the caller gets the memory back.
  ~Exchange() {
    for (Message& message : messages_)
      if (message.request != MPI_REQUEST_NULL && !message.transfer.sends) MPI_Cancel(&message.request);
    const Deadline deadline(kLastWordsTime);
    for (Message& message : messages_)
      for (int done = 0; message.request != MPI_REQUEST_NULL && !deadline.passed(); std::this_thread::yield())
        MPI_Test(&message.request, &done, MPI_STATUS_IGNORE);
  }

  void run(const Deadline& deadline) {
    Deadline patience(warn_after);
    for (size_t r = 0; r < transport_.headers_.size(); ++r)
      if (!transport_.headers_[r].empty()) find_contradiction(r, transport_.headers_[r].front());
    for (Pause pause; !advance_all(); wait(pause)) {
      if (std::exchange(moved_, false)) pause = {};
      if (deadline.passed()) fail(timed_out(descriptor_, transport_.rank_, awaited_ranks(), deadline.timeout()));
      if (patience.passed()) {
        warn_of_waiting(descriptor_, transport_.rank_, awaited_ranks());
        patience = Deadline(kLongestWait);
      }
    }
  }

 private:
  struct Message {
    Transfer transfer;
    bool has_header = false;
    size_t done = 0, moving = 0;  // bytes of the body that have moved, and that MPI is moving
    MPI_Request request = MPI_REQUEST_NULL;

    bool finished() const { return has_header && done == transfer.bytes; }
  };

  /// Moves messages as far as possible. Returns true when all are finished. Of the messages with the same peer and
  /// direction only the first unfinished one moves.
  bool advance_all() {
    read_posted();
    bool finished = true;
    held_.assign(2 * transport_.ranks_.size(), false);
    for (Message& message : messages_) {
      const size_t key = 2 * static_cast<size_t>(message.transfer.peer) + message.transfer.sends;
      while (!held_[key] && !message.finished())
        if (advance(message)) moved_ = true;
        else held_[key] = true;
      finished &= message.finished();
    }
    return finished;
  }

  /// Handles the header of a message, starts the transfer of a piece of its body, or finishes that piece. Returns false
  /// if the message has to wait for MPI or for its peer.
  bool advance(Message& message) {
    const Transfer& transfer = message.transfer;
    auto& headers = transport_.headers_[static_cast<size_t>(transfer.peer)];
    if (message.request != MPI_REQUEST_NULL) {
      int done = 0;
      GRADUS_MPI_CHECK(MPI_Test(&message.request, &done, MPI_STATUS_IGNORE));
      if (done) message.done += std::exchange(message.moving, 0);
      return done;
    }
    if (!message.has_header) {
      if (transfer.sends)
        transport_.post(transfer.peer, Control::header, MessageHeader{descriptor_, transfer.bytes}.encode());
      else if (headers.empty()) return false;
      else {
        const MessageHeader header = headers.front();
        headers.pop_front();
        if (header.descriptor != descriptor_) fail(mismatch(transfer.peer, header.descriptor, rank(), descriptor_));
        if (header.body_bytes != transfer.bytes)
          fail(wrong_length(descriptor_, transfer.peer, header.body_bytes, transfer.bytes));
      }
      message.has_header = true;
      return true;
    }
    MpiJob& job = transport_.job_;
    const int peer = transport_.ranks_[static_cast<size_t>(transfer.peer)], tag = transport_.tag_ + 1;
    message.moving = std::min(transfer.bytes - message.done, kLargestPiece);
    std::byte* data = transfer.data + message.done;
    const int bytes = static_cast<int>(message.moving);
    if (transfer.sends)
      GRADUS_MPI_CHECK(MPI_Isend(data, bytes, MPI_BYTE, peer, tag, job.communicator(), &message.request));
    else GRADUS_MPI_CHECK(MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, job.communicator(), &message.request));
    return true;
  }

  /// Throws if the header belongs to a different call with this call's number, even if this rank does not wait for the
  /// sender. Otherwise ranks could wait for each other in a circle and time out, and the error would not name the
  /// cause.
  void find_contradiction(size_t sender, const MessageHeader& header) {
    if (contradicts(header.descriptor, descriptor_))
      fail(mismatch(static_cast<int>(sender), header.descriptor, rank(), descriptor_));
  }

  /// Reads the messages that were posted to this rank.
  void read_posted() {
    while (const std::optional<MpiJob::Posted> posted = transport_.job_.next(transport_.tag_)) {
      const auto sender = static_cast<size_t>(position(transport_.ranks_, posted->rank));
      const io::ByteSpan payload = io::ByteSpan(posted->bytes).subspan(1);
      switch (static_cast<Control>(posted->bytes[0])) {
        case Control::header:
          transport_.headers_[sender].push_back(MessageHeader::decode(payload));
          find_contradiction(sender, transport_.headers_[sender].back());
          break;
        case Control::failure: fail(decode_failure(payload));
        case Control::question: transport_.post(static_cast<int>(sender), Control::answer); break;
        case Control::answer: transport_.answered_[sender] = true; break;
        case Control::leave: break;
      }
    }
    if (transport_.failed_) throw CollectiveError(transport_.failure());
  }

  void wait(Pause& pause) {
    lock_.unlock();
    pause();
    lock_.lock();
  }

  /// The ranks that this rank waits for. These are the ranks that do not answer a question, because they are not in the
  /// collective, or, if all ranks answer, the ranks whose messages are missing.
  std::vector<int> awaited_ranks() {
    std::vector<bool>& answered = transport_.answered_;
    answered.assign(answered.size(), false);
    answered[static_cast<size_t>(rank())] = true;
    for (int r = 0; r < transport_.size(); ++r)
      if (r != rank()) transport_.post(r, Control::question);
    const Deadline deadline(kAnswerTime);
    for (Pause pause; std::ranges::count(answered, false) > 0 && !deadline.passed(); wait(pause)) read_posted();
    std::vector<int> awaited;
    for (int r = 0; r < transport_.size(); ++r)
      if (!answered[static_cast<size_t>(r)]) awaited.push_back(r);
    for (size_t r = 0; awaited.empty() && r < answered.size(); ++r)
      if (held_[2 * r] || held_[2 * r + 1]) awaited.push_back(static_cast<int>(r));
    return awaited;
  }

  /// Announces the failure to the other ranks, then throws it. The announcement comes first, because the caller may
  /// overwrite messages that other ranks have not received yet once it has caught the exception.
  [[noreturn]] void fail(const CommStatus& status) {
    transport_.announce(status);
    throw CollectiveError(transport_.failure());
  }

  int rank() const { return transport_.rank_; }

  MpiTransport& transport_;
  std::unique_lock<std::mutex> lock_;
  const Descriptor& descriptor_;
  std::vector<Message> messages_;
  std::vector<bool> held_;  // for each peer and direction, whether an unfinished message delays later ones
  bool moved_ = false;
};

MpiTransport::MpiTransport(MpiJob& job, std::vector<int> ranks, int64_t group)
    : Transport(position(ranks, job.rank()), static_cast<int>(ranks.size())), job_(job), ranks_(std::move(ranks)),
      tag_(tag_of(group, job)), headers_(ranks_.size()), answered_(ranks_.size()) {}

void MpiTransport::exchange(std::span<const Transfer> transfers, const Descriptor& descriptor,
                            const Deadline& deadline) {
  Exchange(*this, transfers, descriptor).run(deadline);
}

void MpiTransport::post(int rank, Control type, io::ByteSpan payload) {
  io::Bytes bytes = {static_cast<std::byte>(type)};
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  job_.post(ranks_[static_cast<size_t>(rank)], tag_, std::move(bytes));
}

CommStatus MpiTransport::failure() {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void MpiTransport::announce(const CommStatus& failure) noexcept {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_.ok()) return;
    failure_ = failure;
  }
  failed_ = true;
  try {
    for (int r = 0; r < size(); ++r)
      if (r != rank_) post(r, Control::failure, encode(failure));
    job_.flush(kLastWordsTime);
  } catch (const CommError&) {}  // MPI no longer works, so the other ranks end by their deadlines
}

// ---- The group ----

// Groups of all ranks are numbered 0, 2, 4, …. A sub-group has the odd number 2 * epoch + 1. Its epoch is new to all of
// its ranks.

std::unique_ptr<MpiGroup> MpiGroup::of_all(Milliseconds timeout) {
  static std::atomic<int64_t> made = 0;
  MpiJob& job = MpiJob::get(timeout);
  std::vector<int> ranks(static_cast<size_t>(job.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::unique_ptr<MpiGroup>(new MpiGroup(job, ranks, job.rank(), 2 * made++, 0, timeout));
}

std::unique_ptr<ProcessGroup> MpiGroup::make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                                   Milliseconds timeout) {
  std::vector<int> of_job;
  for (const int r : ranks) of_job.push_back(transport().ranks()[static_cast<size_t>(r)]);
  return std::unique_ptr<MpiGroup>(
      new MpiGroup(transport().job(), of_job, rank, 2 * int64_t{epoch} + 1, epoch, timeout));
}

#undef GRADUS_MPI_CHECK
}  // namespace gradus::dist
