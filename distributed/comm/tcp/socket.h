// TCP sockets with deadlines. Errors are CommErrors that name the address and the cause.
#pragma once

#include <optional>
#include <span>
#include <thread>

#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

/// An owning file descriptor, closed by its destructor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void reset();

 private:
  int number_ = -1;
};

/// The soft limit on the number of file descriptors of this process (RLIMIT_NOFILE).
size_t descriptor_limit();
/// Raises the soft limit to the hard limit. Returns false if the limit cannot be raised.
bool raise_descriptor_limit();
/// Returns true if this process may have `count` file descriptors. Raises the soft limit if necessary.
bool may_have_descriptors(size_t count);

// A stranger is a connection whose other side has not proved yet that it belongs to the job. Their number is limited,
// so that they cannot use up the file descriptors of a process.

/// The largest number of strangers at a time. When it is reached, strangers older than kStrangerTime are disconnected,
/// and no connection is accepted until there are fewer strangers.
size_t most_strangers();
inline constexpr Milliseconds kStrangerTime{200};

/// Thrown when the other side has closed the connection.
class ConnectionClosed : public CommError {
 public:
  using CommError::CommError;
};

/// Calls connect(), which connects and shakes hands, until it succeeds or the deadline passes. If the other side closes
/// the connection, connect() is called again, because the other side may only have had too many strangers.
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

/// Where a socket listens: a host (a name, or an IPv4 or IPv6 address in digits) and a port.
struct Address {
  std::string host;
  uint16_t port = 0;

  /// host:port, with brackets around an IPv6 address.
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

  /// Connects. Retries until the deadline, because the other side may not have started yet.
  static Connection open(const Address& to, const Deadline& deadline);

  int descriptor() const { return descriptor_.number(); }
  explicit operator bool() const { return static_cast<bool>(descriptor_); }
  void close() { descriptor_.reset(); }

  /// Sends all bytes. Throws a ConnectionClosed if the other side has closed the connection, or a CommError if the
  /// deadline passes. `peer` is the name of the other side in error messages.
  void send(io::ByteSpan bytes, const Deadline& deadline, const std::string& peer) const;
  /// Fills `bytes`. Throws as send() does.
  void receive(std::span<std::byte> bytes, const Deadline& deadline, const std::string& peer) const;

  /// Transfer as many bytes as possible without waiting. Return the number of bytes, which may be 0, or nothing if the
  /// connection is lost.
  std::optional<size_t> send_some(io::ByteSpan bytes) const;
  std::optional<size_t> receive_some(std::span<std::byte> bytes) const;

 private:
  FileDescriptor descriptor_;
};

/// A socket that accepts connections.
class Listener {
 public:
  Listener() = default;
  /// Port 0 selects a free port. Throws a CommError if the port is taken.
  explicit Listener(const Address& at);

  int descriptor() const { return descriptor_.number(); }
  uint16_t port() const { return address_.port; }
  const Address& address() const { return address_; }
  /// The next connection; nothing if none arrives in time. Throws a CommError if no file descriptor is left.
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
