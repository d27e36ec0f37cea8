// TCP sockets with deadlines. Errors are CommErrors that name the address and the cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <gradus/core/error.h>
#include <gradus/core/io/file.h>
#include <gradus/distributed/comm/deadline.h>

namespace gradus::dist {

/// A file descriptor that is closed at the end of its owner's life.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void reset();

 private:
  int number_ = -1;
};

/// How many descriptors this process may have (RLIMIT_NOFILE): the soft limit.
size_t descriptor_limit();
/// Raises it to the hard one. False if it is that already.
bool raise_descriptor_limit();

// Strangers, connections that have not proved yet that they belong to the job, must not use up the descriptors of a
// process.

/// So many are kept at a time; then nobody is accepted until those are dropped that have had kStrangerTime.
size_t most_strangers();
inline constexpr Milliseconds kStrangerTime{200};

/// The other side ended the connection.
class ConnectionClosed : public CommError {
 public:
  using CommError::CommError;
};

/// Calls connect(), which also shakes hands, again when the other side ends the connection meanwhile, until the
/// deadline: that it had too many strangers is no refusal.
template <class F>
auto connect_again(const Deadline& deadline, F&& connect) {
  constexpr Milliseconds kPause{20};
  while (true) {
    try {
      return connect();
    } catch (const ConnectionClosed&) {
      if (deadline.left() <= kPause) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
}

/// Where a socket listens: a name, an IPv4 or an IPv6 literal, and a port. Literals are taken as given.
struct Address {
  std::string host;
  uint16_t port = 0;

  /// host:port, with brackets around an IPv6 literal.
  std::string str() const;
  /// The inverse of str(); anything else is a ValueError.
  static Address parse(const std::string& text);
};

/// True for 127.0.0.0/8, ::1 and "localhost".
bool is_loopback(const std::string& host);

/// A non-blocking TCP connection.
class Connection {
 public:
  Connection() = default;
  explicit Connection(FileDescriptor descriptor);

  /// Tries until somebody accepts or the deadline passes: the other side may not be up yet.
  static Connection open(const Address& to, const Deadline& deadline);

  int descriptor() const { return descriptor_.number(); }
  explicit operator bool() const { return static_cast<bool>(descriptor_); }
  void close() { descriptor_.reset(); }

  /// Sends all bytes, or throws: a ConnectionClosed, or a CommError that says who was late. `peer` names the other side
  /// in it.
  void send(io::ByteSpan bytes, const Deadline& deadline, const std::string& peer) const;
  /// Fills `bytes`, or throws likewise.
  void receive(std::span<std::byte> bytes, const Deadline& deadline, const std::string& peer) const;

  /// What the kernel takes or gives at once: a number of bytes, 0 if none now, nothing if the connection is gone.
  std::optional<size_t> send_some(io::ByteSpan bytes) const;
  std::optional<size_t> receive_some(std::span<std::byte> bytes) const;

 private:
  FileDescriptor descriptor_;
};

/// A socket that accepts connections.
class Listener {
 public:
  Listener() = default;
  /// Port 0: one that is free. A port that is taken is a CommError that says so.
  explicit Listener(const Address& at);

  int descriptor() const { return descriptor_.number(); }
  uint16_t port() const { return address_.port; }
  const Address& address() const { return address_; }
  /// The next connection; nothing when none came before the deadline. A CommError when no descriptor is left.
  std::optional<Connection> accept(const Deadline& deadline) const;

 private:
  FileDescriptor descriptor_;
  Address address_;
};

/// A port of `host` that was free a moment ago.
uint16_t find_free_port(const std::string& host = "127.0.0.1");

/// Waits until `descriptor` is ready for `events` (poll(2)); false once the deadline has passed.
bool wait_for(int descriptor, short events, const Deadline& deadline);

}  // namespace gradus::dist
