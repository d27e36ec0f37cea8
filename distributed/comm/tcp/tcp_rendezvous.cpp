#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include <gradus/core/io/byte_order.h>
#include <gradus/distributed/comm/tcp/tcp_group.h>

namespace gradus::dist {
namespace {

// The handshake of a connection. The accepting side sends a challenge s of 32 bytes. The connecting side answers
//   0  magic "GRDH"   4 bytes      8  its rank        4      32  c      32
//   4  version        1           12  size of group   4      64  proof  32
//   5  byte order     1           16  epoch           4
//   6  channel        1           20  zero           12
// and the accepting side ends with its byte order, 1 byte, and its proof, 32 bytes; or with kRefused and zeros.
constexpr uint32_t kMagic = 0x47524448;  // "GRDH"
constexpr uint8_t kVersion = 1;
constexpr std::byte kRefused{2};
constexpr size_t kHelloBytes = 96, kReplyBytes = 33;
enum class Channel : uint8_t { up = 0, control = 1, down = 2 };  // up: messages sent by the connecting side
constexpr Channel kChannels[] = {Channel::up, Channel::down, Channel::control};

uint8_t code_of(std::endian order) { return order == std::endian::big ? 1 : 0; }
std::endian order_of(std::byte code) { return code == std::byte{1} ? std::endian::big : std::endian::little; }

/// The `purpose` for which both sides of a connection prove that they know the token (Handshake in token.h).
std::string purpose(int from, int to, uint32_t epoch, Channel channel) {
  return "ranks " + std::to_string(from) + " " + std::to_string(to) + " epoch " + std::to_string(epoch) + " channel " +
         std::to_string(static_cast<int>(channel));
}

/// Selects cubic or reno for a loopback connection. The system's default may be bbr, which limits the rate to its
/// estimate of the bandwidth and is several times slower on loopback.
void choose_congestion_control(const Connection& connection) {
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  if (getpeername(connection.descriptor(), reinterpret_cast<sockaddr*>(&name), &size) != 0) return;
  const in6_addr& address = reinterpret_cast<sockaddr_in6&>(name).sin6_addr;
  const bool loopback =
      name.ss_family == AF_INET
          ? ntohl(reinterpret_cast<sockaddr_in&>(name).sin_addr.s_addr) >> 24 == 127
          : IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
  if (!loopback) return;
  for (const char* algorithm : {"cubic", "reno"})
    if (setsockopt(connection.descriptor(), IPPROTO_TCP, TCP_CONGESTION, algorithm,
                   static_cast<socklen_t>(std::strlen(algorithm))) == 0)
      return;
}

class Rendezvous {
 public:
  Rendezvous(Store& store, int rank, int size, const TcpOptions& options)
      : store_(store), rank_(rank), options_(options), deadline_(options.timeout), peers_(static_cast<size_t>(size)) {}

  std::vector<TcpPeer> run() {
    const size_t needed = std::size(kChannels) * (peers_.size() - 1);
    GRADUS_CHECK(may_have_descriptors(needed + 1), CommError, "a tcp group of ", peers_.size(), " ranks takes ", needed,
                 " descriptors for its connections, and this process may have ", descriptor_limit(), " (ulimit -n)");
    const Listener listener({options_.host, 0});  // throws if the name does not resolve
    GRADUS_CHECK(!options_.token.empty() || is_loopback(options_.host), CommError, options_.host,
                 " can be reached from other machines, so its ranks need a token");
    store_.set(key_of(rank_), listener.address().str());
    for (int peer = 0; peer < rank_; ++peer) {
      const Address address = Address::parse(store_.get(key_of(peer), options_.timeout));
      for (const Channel channel : kChannels) {
        connect_again(deadline_, [&] { connect(peer, address, channel); });
      }
    }
    accept_others(listener);
    for (const TcpPeer& peer : peers_)
      if (peer.out) choose_congestion_control(peer.out);
    return std::move(peers_);
  }

 private:
  /// A connection from which the first message, its hello, has not arrived completely.
  struct Stranger {
    Connection connection;
    Digest s = random_digest();
    std::byte hello[kHelloBytes];
    size_t got = 0;
    Deadline deadline{Milliseconds(5000)}, grace{kStrangerTime};
  };

  static std::string key_of(int rank) { return "address/" + std::to_string(rank); }
  Connection& place(int peer, Channel channel) {
    TcpPeer& entry = peers_[static_cast<size_t>(peer)];
    const bool sends = (channel == Channel::up) == (rank_ > peer);  // the higher rank connects
    return channel == Channel::control ? entry.control : sends ? entry.out : entry.in;
  }

  void connect(int peer, const Address& address, Channel channel) {
    const std::string name = "rank " + std::to_string(peer) + " at " + address.str();
    Connection connection = Connection::open(address, deadline_);
    Digest s, c = random_digest();
    connection.receive(s, deadline_, name);
    std::byte hello[kHelloBytes] = {};
    io::write_big_endian(kMagic, hello);
    hello[4] = std::byte{kVersion};
    hello[5] = std::byte{code_of(std::endian::native)};
    hello[6] = static_cast<std::byte>(channel);
    io::write_big_endian(static_cast<uint32_t>(rank_), hello + 8);
    io::write_big_endian(static_cast<uint32_t>(peers_.size()), hello + 12);
    io::write_big_endian(options_.epoch, hello + 16);
    const std::string about = purpose(rank_, peer, options_.epoch, channel);
    std::copy(c.begin(), c.end(), hello + 32);
    const Digest proof = Handshake::client_proof(options_.token, about, s, c);
    std::copy(proof.begin(), proof.end(), hello + 64);
    connection.send(hello, deadline_, name);

    std::byte reply[kReplyBytes];
    connection.receive(reply, deadline_, name);
    GRADUS_CHECK(reply[0] != kRefused, CommError, name, " refused rank ", rank_,
                 ": do both have the same token and number of ranks?");
    GRADUS_CHECK(same_digest(Handshake::server_proof(options_.token, about, s, c), io::ByteSpan(reply).subspan(1)),
                 CommError, name, " does not know the token of this job");
    peers_[static_cast<size_t>(peer)].byte_order = order_of(reply[0]);
    place(peer, channel) = std::move(connection);
  }

  /// Accepts connections until all higher ranks have connected. Connections of strangers do not delay a rank.
  void accept_others(const Listener& listener) {
    std::vector<Stranger> strangers;
    bool out_of_descriptors = false;
    while (true) {
      std::vector<int> missing;
      for (int peer = rank_ + 1; peer < static_cast<int>(peers_.size()); ++peer)
        if (!std::ranges::all_of(kChannels, [&](Channel channel) { return bool(place(peer, channel)); }))
          missing.push_back(peer);
      if (missing.empty()) return;
      GRADUS_CHECK(!deadline_.passed(), CommError, "rank ", rank_, " waited ", deadline_.timeout().count(),
                   " ms for these ranks, which did not connect: ", joined(missing));

      const bool full = out_of_descriptors || strangers.size() >= most_strangers();
      std::vector<pollfd> entries = {{full ? -1 : listener.descriptor(), POLLIN, 0}};
      for (const Stranger& stranger : strangers) entries.push_back({stranger.connection.descriptor(), POLLIN, 0});
      poll(entries.data(), entries.size(), std::min(deadline_.poll_timeout(), full ? 50 : 1000));
      std::erase_if(strangers, [&](Stranger& stranger) {
        return !read_hello(stranger) || (full ? stranger.grace : stranger.deadline).passed();
      });
      out_of_descriptors = false;
      try {
        while (strangers.size() < most_strangers()) {
          std::optional<Connection> connection = listener.accept(Deadline(Milliseconds(0)));
          if (!connection) break;
          Stranger& stranger = strangers.emplace_back();
          stranger.connection = std::move(*connection);
          if (!stranger.connection.send_some(stranger.s)) strangers.pop_back();
        }
      } catch (const CommError&) {
        if (strangers.empty()) throw;  // there is no stranger whose descriptor could be freed
        out_of_descriptors = true;
      }
    }
  }

  /// Reads what has arrived. Returns false when the stranger has become a peer or must be disconnected.
  bool read_hello(Stranger& stranger) {
    const std::optional<size_t> got = stranger.connection.receive_some(std::span(stranger.hello).subspan(stranger.got));
    if (!got) return false;
    stranger.got += *got;
    if (stranger.got < kHelloBytes) return true;

    const std::byte* hello = stranger.hello;
    const auto peer = static_cast<int>(io::read_big_endian<uint32_t>(hello + 8));
    const auto channel = static_cast<Channel>(hello[6]);
    if (io::read_big_endian<uint32_t>(hello) != kMagic || hello[4] != std::byte{kVersion}) return false;
    const bool fits = channel <= Channel::down && rank_ < peer && peer < static_cast<int>(peers_.size()) &&
                      io::read_big_endian<uint32_t>(hello + 12) == peers_.size() &&
                      io::read_big_endian<uint32_t>(hello + 16) == options_.epoch && !place(peer, channel);
    Digest c;
    std::copy_n(hello + 32, c.size(), c.begin());
    const std::string about = purpose(peer, rank_, options_.epoch, channel);
    std::byte reply[kReplyBytes] = {kRefused};
    if (!fits || !same_digest(Handshake::client_proof(options_.token, about, stranger.s, c), {hello + 64, 32})) {
      stranger.connection.send_some(reply);  // a rank that is disconnected without an answer would try again
      return false;
    }
    reply[0] = std::byte{code_of(std::endian::native)};
    const Digest proof = Handshake::server_proof(options_.token, about, stranger.s, c);
    std::copy(proof.begin(), proof.end(), reply + 1);
    const std::optional<size_t> sent = stranger.connection.send_some(reply);
    if (sent != kReplyBytes) return false;
    peers_[static_cast<size_t>(peer)].byte_order = order_of(hello[5]);
    place(peer, channel) = std::move(stranger.connection);
    return false;
  }

  Store& store_;
  const int rank_;
  const TcpOptions& options_;
  const Deadline deadline_;
  std::vector<TcpPeer> peers_;
};

}  // namespace

std::vector<TcpPeer> meet_over_tcp(Store& store, int rank, int size, const TcpOptions& options) {
  return Rendezvous(store, rank, size, options).run();
}

}  // namespace gradus::dist
