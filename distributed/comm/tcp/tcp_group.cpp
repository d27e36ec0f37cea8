#include <gradus/distributed/comm/tcp/tcp_group.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>

namespace gradus::dist {
namespace {

/// A rank that does not answer a question within this time counts as silent.
constexpr Milliseconds kAnswerTime{300};
/// How long to wait for the last control messages of a rank after its data connections have been closed.
constexpr Milliseconds kLastWordsTime{100};

Frame control_frame(Control type, io::Bytes payload = {}) {
  return {static_cast<uint8_t>(type), 0, std::move(payload)};
}

}  // namespace

/// One call of exchange().
class TcpTransport::Exchange {
 public:
  Exchange(TcpTransport& transport, std::span<const Transfer> transfers, const Descriptor& descriptor)
      : transport_(transport), lock_(transport.mutex_, std::defer_lock), peers_(transport.peers_),
        descriptor_(descriptor) {
    messages_.resize(transfers.size());
    inspected_.assign(peers_.size(), descriptor.kind == CollectiveKind::send);  // a message contradicts no call
    for (size_t i = 0; i < transfers.size(); ++i) {
      messages_[i].transfer = transfers[i];
      if (!transfers[i].sends) continue;
      const uint32_t checksum = transport.checksum_ ? io::crc32c({transfers[i].data, transfers[i].bytes}) : 0;
      messages_[i].header = MessageHeader{descriptor, transfers[i].bytes, checksum}.encode();
    }
  }

  void run(const Deadline& deadline) {
    lock_.lock();
    Deadline patience(warn_after);
    while (!advance_all()) {
      if (moved_) continue;
      if (deadline.passed()) fail(timed_out(descriptor_, transport_.rank_, awaited_ranks(), deadline.timeout()));
      if (patience.passed()) {
        warn_of_waiting(descriptor_, transport_.rank_, awaited_ranks());
        patience = Deadline(kLongestWait);
      }
      wait(std::min(deadline.left(), patience.left()));
    }
  }

 private:
  struct Message {
    Transfer transfer;
    std::array<std::byte, MessageHeader::kBytes> header;
    size_t done = 0;  // bytes of the header and the body that have moved
    MessageHeader arrived;

    bool finished() const { return done == MessageHeader::kBytes + transfer.bytes; }
  };

  /// Moves messages as far as possible. Returns true when all are finished. Of the messages with the same peer and
  /// direction only the first unfinished one moves.
  bool advance_all() {
    moved_ = false;
    bool finished = true;
    held_.assign(2 * peers_.size(), false);
    for (Message& message : messages_) {
      if (message.finished()) continue;
      const size_t key = 2 * static_cast<size_t>(message.transfer.peer) + message.transfer.sends;
      if (!held_[key]) moved_ |= move(message);
      if (message.finished()) continue;
      held_[key] = true;
      finished = false;
    }
    return finished;
  }

  /// Sends or receives what is left of the header and of the body in one call. Returns true if a part of it moved. If a
  /// header that arrives is wrong, the collective fails, so it does not matter that part of the body has already been
  /// written to the array.
  bool move(Message& message) {
    const Transfer& transfer = message.transfer;
    const size_t in_header = std::min(message.done, MessageHeader::kBytes), in_body = message.done - in_header;
    iovec parts[] = {{message.header.data() + in_header, MessageHeader::kBytes - in_header},
                     {transfer.data + in_body, transfer.bytes - in_body}};
    msghdr packet = {};
    packet.msg_iov = parts;
    packet.msg_iovlen = std::size(parts);
    const TcpPeer& peer = peer_of(transfer.peer);
    const ssize_t moved = transfer.sends ? sendmsg(peer.out.descriptor(), &packet, MSG_NOSIGNAL)
                                         : recvmsg(peer.in.descriptor(), &packet, 0);
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    const bool closed = moved == 0 || errno == EPIPE || errno == ECONNRESET;
    if (moved <= 0) fail_lost(transfer.peer, closed ? "its connection was closed" : strerror(errno));
    message.done += static_cast<size_t>(moved);
    if (transfer.sends) return true;
    if (in_header < MessageHeader::kBytes && message.done >= MessageHeader::kBytes) check_header(message);
    if (message.finished()) check_body(message);
    return true;
  }

  void check_header(Message& message) {
    const int peer = message.transfer.peer;
    try {
      message.arrived = MessageHeader::decode(message.header);
    } catch (const CommError& error) { fail(peer_lost(descriptor_, peer, error.what())); }
    const Descriptor& theirs = message.arrived.descriptor;
    if (theirs != descriptor_) fail(mismatch(peer, theirs, transport_.rank_, descriptor_));
    if (message.arrived.body_bytes != message.transfer.bytes)
      fail(wrong_length(descriptor_, peer, message.arrived.body_bytes, message.transfer.bytes));
  }

  void check_body(Message& message) {
    const Transfer& transfer = message.transfer;
    if (transport_.checksum_ && message.arrived.body_checksum != io::crc32c({transfer.data, transfer.bytes}))
      fail(peer_lost(descriptor_, transfer.peer, "what it sent arrived damaged: its checksum differs"));
    const size_t size = size_of(descriptor_.dtype);
    io::convert_byte_order(transfer.data, transfer.bytes / size, size, peer_of(transfer.peer).byte_order);
  }

  /// Waits at most `timeout` until a socket can send or receive, a control message arrives, or another thread announces
  /// a failure.
  void wait(Milliseconds timeout) {
    entries_.clear();
    entries_.push_back({transport_.wake_.number(), POLLIN, 0});
    for (size_t r = 0; r < peers_.size(); ++r) {
      const TcpPeer& peer = peers_[r];
      const auto add = [&](bool wanted, const Connection& connection, short events) {
        entries_.push_back({wanted && connection ? connection.descriptor() : -1, events, 0});
      };
      add(true, peer.control, POLLIN);
      add(held_[2 * r] || !inspected_[r], peer.in, POLLIN);
      add(held_[2 * r + 1], peer.out, POLLOUT);
    }
    constexpr int64_t kLongest = 3'600'000;
    lock_.unlock();
    const int ready = poll(entries_.data(), entries_.size(), static_cast<int>(std::min(timeout.count(), kLongest)));
    lock_.lock();
    if (ready <= 0) return;
    if (entries_[0].revents != 0) {
      const std::lock_guard lock(transport_.announce_mutex_);
      throw CollectiveError(transport_.announced_);
    }
    for (size_t r = 0; r < peers_.size(); ++r)
      if (entries_[1 + 3 * r].revents != 0) read_control(static_cast<int>(r));
    for (size_t r = 0; r < peers_.size(); ++r)
      if (!held_[2 * r] && entries_[2 + 3 * r].revents != 0) inspect(static_cast<int>(r));
  }

  /// Looks at a message that this rank does not wait for, without removing it from the socket. Throws if the message
  /// belongs to a different call with this call's number. Otherwise ranks could wait for each other in a circle and
  /// time out, and the error would not name the cause.
  void inspect(int rank) {
    std::array<std::byte, MessageHeader::kBytes> header = {};
    const ssize_t got = recv(peer_of(rank).in.descriptor(), header.data(), header.size(), MSG_PEEK);
    if (got != 0 && got < static_cast<ssize_t>(header.size())) return;  // it has not arrived, or not all of it
    inspected_[static_cast<size_t>(rank)] = true;
    Descriptor theirs;
    try {
      theirs = MessageHeader::decode(header).descriptor;
    } catch (const CommError&) {
      return;  // the collective that receives the message reports the error
    }
    if (contradicts(theirs, descriptor_)) fail(mismatch(rank, theirs, transport_.rank_, descriptor_));
  }

  /// Reads the control messages of a rank, and closes the control connection if the rank has closed it.
  void read_control(int rank) {
    TcpPeer& peer = peer_of(rank);
    std::byte chunk[1 << 12];
    while (peer.control) {
      const std::optional<size_t> got = peer.control.receive_some(chunk);
      if (got == 0) break;
      if (got) {
        peer.control_reader.append({chunk, *got});
      } else {
        const std::lock_guard lock(transport_.announce_mutex_);  // another thread may be writing an announcement to it
        peer.control.close();
      }
      try {
        while (std::optional<Frame> frame = peer.control_reader.next()) obey(rank, *frame);
      } catch (const CollectiveError&) { throw; } catch (const CommError& error) {
        fail(peer_lost(descriptor_, rank, error.what()));
      }
    }
    // Only a rank that waits for the lost rank reports it. The other ranks receive the announcement.
    const bool waited_for = held_[2 * static_cast<size_t>(rank)] || held_[2 * static_cast<size_t>(rank) + 1];
    if (!peer.control && waited_for && !peer.left) fail_lost(rank, "its connection was closed");
  }

  void obey(int rank, const Frame& frame) {
    TcpPeer& peer = peer_of(rank);
    switch (static_cast<Control>(frame.type)) {
      case Control::failure:
        transport_.heard_ = decode_failure(frame.payload);
        throw CollectiveError(transport_.heard_);
      case Control::question: say(rank, control_frame(Control::answer)); break;
      case Control::answer: peer.answered = true; break;
      case Control::leave: peer.left = true; break;
      default: break;  // ignores messages that only later versions know
    }
  }

  void say(int rank, const Frame& frame) {
    const std::lock_guard lock(transport_.announce_mutex_);
    const io::Bytes bytes = frame.encode();
    const Connection& control = peer_of(rank).control;
    if (control) control.send_some(bytes);
  }

  /// The ranks that this rank waits for. These are the ranks that do not answer a question, because they are stopped,
  /// not yet in the collective, or cut off, or, if all ranks answer, the ranks whose messages are missing.
  std::vector<int> awaited_ranks() {
    const auto other = [&](size_t r) { return static_cast<int>(r) != transport_.rank_ && !peers_[r].left; };
    for (size_t r = 0; r < peers_.size(); ++r)
      if (other(r)) peers_[r].answered = false, say(static_cast<int>(r), control_frame(Control::question));
    const Deadline deadline(kAnswerTime);
    std::vector<int> awaited;
    do {
      wait(deadline.left());
      awaited.clear();
      for (size_t r = 0; r < peers_.size(); ++r)
        if (other(r) && !peers_[r].answered) awaited.push_back(static_cast<int>(r));
    } while (!awaited.empty() && !deadline.passed());
    for (size_t r = 0; awaited.empty() && r < peers_.size(); ++r)
      if (held_[2 * r] || held_[2 * r + 1]) awaited.push_back(static_cast<int>(r));
    return awaited;
  }

  [[noreturn]] void fail_lost(int rank, const std::string& cause) {
    // The rank may have announced the cause before it ended. The announcement comes over the control connection and may
    // still be on its way. Another rank may also have announced a cause, which then takes precedence.
    held_.assign(held_.size(), false);
    for (size_t r = 0; r < peers_.size(); ++r)
      if (static_cast<int>(r) != transport_.rank_) read_control(static_cast<int>(r));
    TcpPeer& peer = peer_of(rank);
    const Deadline last_words(kLastWordsTime);
    while (peer.control && !peer.left && wait_for(peer.control.descriptor(), POLLIN, last_words)) read_control(rank);
    fail(peer.left ? peer_left(descriptor_, rank) : peer_lost(descriptor_, rank, cause));
  }

  /// A failure that another exchange has just received takes precedence.
  [[noreturn]] void fail(CommStatus status) {
    throw CollectiveError(transport_.heard_.ok() ? std::move(status) : transport_.heard_);
  }

  TcpPeer& peer_of(int rank) { return peers_[static_cast<size_t>(rank)]; }

  TcpTransport& transport_;
  std::unique_lock<std::mutex> lock_;
  std::vector<TcpPeer>& peers_;
  const Descriptor& descriptor_;
  std::vector<Message> messages_;
  std::vector<bool> held_;       // for each peer and direction, whether an unfinished message delays later ones
  std::vector<bool> inspected_;  // for each peer, whether its next message needs no inspect() any more
  std::vector<pollfd> entries_;
  bool moved_ = false;
};

TcpTransport::TcpTransport(Store& store, int rank, int size, const TcpOptions& options)
    : Transport(rank, size), checksum_(options.checksum), wake_(eventfd(0, EFD_CLOEXEC)) {
  GRADUS_CHECK(wake_, CommError, "no descriptor is left for a group");
  peers_ = meet_over_tcp(store, rank, size, options);
}

TcpTransport::~TcpTransport() {
  const io::Bytes leave = control_frame(Control::leave).encode();
  for (const TcpPeer& peer : peers_)
    if (peer.control) peer.control.send_some(leave);
}

void TcpTransport::exchange(std::span<const Transfer> transfers, const Descriptor& descriptor,
                            const Deadline& deadline) {
  Exchange(*this, transfers, descriptor).run(deadline);
}

void TcpTransport::announce(const CommStatus& failure) noexcept {
  const std::lock_guard lock(announce_mutex_);
  announced_ = failure;
  const io::Bytes bytes = control_frame(Control::failure, encode(failure)).encode();
  for (const TcpPeer& peer : peers_)
    if (peer.control) peer.control.send_some(bytes);
  eventfd_write(wake_.number(), 1);
}

std::string TcpTransport::congestion_control() const {
  for (const TcpPeer& peer : peers_) {
    char name[16] = {};
    socklen_t size = sizeof name;
    if (peer.out && getsockopt(peer.out.descriptor(), IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0) return name;
  }
  return "";
}

}  // namespace gradus::dist
