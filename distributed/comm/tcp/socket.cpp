#include <gradus/distributed/comm/tcp/socket.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <gradus/core/io/parse_number.h>

namespace gradus::dist {
namespace {

std::string cause(int error) { return std::strerror(error); }

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const Address& address, bool passive) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  GRADUS_CHECK(error == 0, CommError, "the name '", address.host,
               "' does not resolve to an address: ", error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  return {found, &freeaddrinfo};
}

FileDescriptor open_socket(int family) {
  while (true) {
    FileDescriptor descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (descriptor || errno != EMFILE || !raise_descriptor_limit()) return descriptor;
  }
}

/// Makes one attempt to connect. If it fails, returns no descriptor and sets errno.
FileDescriptor try_to_connect(const addrinfo& to, const Deadline& deadline) {
  FileDescriptor descriptor = open_socket(to.ai_family);
  if (!descriptor) return {};
  if (connect(descriptor.number(), to.ai_addr, to.ai_addrlen) == 0) return descriptor;
  if (errno != EINPROGRESS) return {};
  if (!wait_for(descriptor.number(), POLLOUT, deadline)) {
    errno = ETIMEDOUT;
    return {};
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(descriptor.number(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return descriptor;
  errno = error;
  return {};
}

uint16_t bound_port(int descriptor) {
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(name).sin_port);
}

}  // namespace

void FileDescriptor::reset() {
  if (number_ >= 0) close(std::exchange(number_, -1));
}

size_t descriptor_limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

bool raise_descriptor_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

bool may_have_descriptors(size_t count) {
  return count <= descriptor_limit() || (raise_descriptor_limit() && count <= descriptor_limit());
}

size_t most_strangers() { return std::clamp<size_t>(descriptor_limit() / 8, 1, 1024); }

std::string Address::str() const {
  const std::string bracketed = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return bracketed + ":" + std::to_string(port);
}

Address Address::parse(const std::string& text) {
  const size_t colon = text.rfind(':');
  Address address;
  const bool complete = colon != std::string::npos && colon > 0;
  if (complete) {
    address.host = text.substr(0, colon);
    if (address.host.front() == '[' && address.host.back() == ']')
      address.host = address.host.substr(1, address.host.size() - 2);
    else if (address.host.find(':') != std::string::npos)
      address.host.clear();  // in an IPv6 literal without brackets the beginning of the port is ambiguous
    const std::optional<uint16_t> port = io::parse_number<uint16_t>(text.substr(colon + 1));
    if (!port) address.host.clear();
    address.port = port.value_or(0);
  }
  GRADUS_CHECK(!address.host.empty(), ValueError, "'", text, "' is not an address: host:port or [IPv6 literal]:port");
  return address;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool wait_for(int descriptor, short events, const Deadline& deadline) {
  pollfd entry = {descriptor, events, 0};
  while (true) {
    const int ready = poll(&entry, 1, deadline.poll_timeout());
    if (ready > 0) return true;
    if (ready == 0 && deadline.passed()) return false;
    if (ready < 0 && errno != EINTR) GRADUS_FAIL(CommError, "cannot wait for a socket: ", cause(errno));
  }
}

Connection::Connection(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {
  const int on = 1;
  setsockopt(descriptor_.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Connection Connection::open(const Address& to, const Deadline& deadline) {
  constexpr Milliseconds kPause{20};
  const AddressList list = resolve(to, false);
  while (true) {
    for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next)
      if (FileDescriptor descriptor = try_to_connect(*address, deadline)) return Connection(std::move(descriptor));
    const int error = errno;
    GRADUS_CHECK(error != EMFILE && error != ENFILE, CommError, "no descriptor is left for a connection to ", to.str(),
                 ": ", cause(error), " (this process may have ", descriptor_limit(), ": ulimit -n)");
    GRADUS_CHECK(deadline.left() > kPause, CommError, "cannot connect to ", to.str(), ": ", cause(error),
                 " (tried for ", deadline.timeout().count(), " ms)");
    std::this_thread::sleep_for(kPause);
  }
}

std::optional<size_t> Connection::send_some(io::ByteSpan bytes) const {
  while (true) {
    const ssize_t sent = ::send(descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return std::nullopt;
  }
}

std::optional<size_t> Connection::receive_some(std::span<std::byte> bytes) const {
  while (true) {
    const ssize_t got = recv(descriptor(), bytes.data(), bytes.size(), 0);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) return bytes.empty() ? std::optional<size_t>(0) : std::nullopt;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return std::nullopt;
  }
}

void Connection::send(io::ByteSpan bytes, const Deadline& deadline, const std::string& peer) const {
  while (!bytes.empty()) {
    const std::optional<size_t> sent = send_some(bytes);
    GRADUS_CHECK(sent, dist::ConnectionClosed, peer, " closed the connection");
    bytes = bytes.subspan(*sent);
    GRADUS_CHECK(bytes.empty() || wait_for(descriptor(), POLLOUT, deadline), CommError, peer, " took nothing for ",
                 deadline.timeout().count(), " ms");
  }
}

void Connection::receive(std::span<std::byte> bytes, const Deadline& deadline, const std::string& peer) const {
  while (!bytes.empty()) {
    const std::optional<size_t> got = receive_some(bytes);
    GRADUS_CHECK(got, dist::ConnectionClosed, peer, " closed the connection");
    bytes = bytes.subspan(*got);
    GRADUS_CHECK(bytes.empty() || *got > 0 || wait_for(descriptor(), POLLIN, deadline), CommError, peer,
                 " sent nothing for ", deadline.timeout().count(), " ms");
  }
}

Listener::Listener(const Address& at) : address_(at) {
  const AddressList list = resolve(at, true);
  int error = 0;
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    FileDescriptor descriptor = open_socket(address->ai_family);
    const int on = 1;
    // Otherwise a port would stay in use for a while after its process has ended.
    setsockopt(descriptor.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (descriptor && bind(descriptor.number(), address->ai_addr, address->ai_addrlen) == 0 &&
        listen(descriptor.number(), SOMAXCONN) == 0) {
      descriptor_ = std::move(descriptor);
      address_.port = bound_port(descriptor_.number());
      return;
    }
    error = errno;
  }
  GRADUS_CHECK(error != EADDRINUSE, CommError, "port ", at.port, " of ", at.host,
               " is taken: choose another, or 0 for one that is free");
  GRADUS_CHECK(error != EADDRNOTAVAIL, CommError, "cannot listen at ", at.str(),
               ": this machine does not have that address");
  GRADUS_CHECK(error != EACCES, CommError, "cannot listen at ", at.str(), ": ", cause(error),
               " (ports below 1024 are the system's)");
  GRADUS_FAIL(CommError, "cannot listen at ", at.str(), ": ", cause(error));
}

std::optional<Connection> Listener::accept(const Deadline& deadline) const {
  while (true) {
    FileDescriptor descriptor(accept4(this->descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (descriptor) return Connection(std::move(descriptor));
    const int error = errno;
    // Errors that are neither `none` nor `lasting` concern a single connection, which is skipped (accept(2)).
    const bool none = error == EAGAIN || error == EWOULDBLOCK;
    if (error == EMFILE && raise_descriptor_limit()) continue;
    const bool lasting = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || error == EBADF;
    GRADUS_CHECK(!lasting, CommError, "cannot accept connections at ", address_.str(), ": ", cause(error),
                 " (this process may have ", descriptor_limit(), " descriptors: ulimit -n)");
    if (none && !wait_for(this->descriptor(), POLLIN, deadline)) return std::nullopt;
  }
}

uint16_t find_free_port(const std::string& host) { return Listener({host, 0}).port(); }

}  // namespace gradus::dist
