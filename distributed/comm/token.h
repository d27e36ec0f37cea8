// The secret of a job: who knows it may speak to its store and its ranks. It is handed down by an inherited descriptor
// or a file that its owner alone can read, never on a command line, which everybody on the machine can see.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>

#include <gradus/core/io/file.h>
#include <gradus/distributed/comm/socket.h>

namespace gradus::dist {

/// 256 bits.
using Digest = std::array<std::byte, 32>;

/// HMAC-SHA256 (RFC 2104, FIPS 180-4) of the parts, one behind the other.
Digest hmac_sha256(const Digest& key, std::initializer_list<io::ByteSpan> parts);
/// Compares in a time that does not depend on the contents.
bool same_digest(const Digest& a, io::ByteSpan b);
/// From the kernel's generator.
Digest random_digest();

class Token {
 public:
  /// No secret: for jobs on the loopback interface of one's own machine.
  Token() = default;
  static Token random();
  /// A file of 64 hexadecimal digits, owned by this user and readable by no other; anything else is an IoError.
  static Token from_file(const std::string& path);
  /// The same from a descriptor of a file or memfd_create(2), which stays open: children of this process read it too.
  static Token from_descriptor(int descriptor);
  /// What GRADUS_TOKEN_FD or GRADUS_TOKEN_FILE names; no secret where neither is set. The launcher sets the first.
  static Token from_environment();

  /// A memfd_create(2) that from_descriptor() reads, for a child; it ends with exec unless it is duplicated.
  FileDescriptor to_descriptor() const;

  bool empty() const { return empty_; }
  /// 64 hexadecimal digits.
  std::string hex() const;
  const Digest& key() const { return key_; }

 private:
  static Token parse(const std::string& hex, const std::string& source);

  bool empty_ = true;
  Digest key_ = {};
};

/// Both sides of a connection prove that they know the token without sending it, each over a number that the other has
/// just drawn, so that what somebody recorded proves nothing later:
///
///   server -> client   challenge: s
///   client -> server   c, HMAC(token, "client" purpose s c)
///   server -> client   HMAC(token, "server" purpose s c)
///
/// `purpose` keeps a proof given to the store from opening a data connection.
struct Handshake {
  static Digest client_proof(const Token& token, std::string_view purpose, const Digest& s, const Digest& c);
  static Digest server_proof(const Token& token, std::string_view purpose, const Digest& s, const Digest& c);
};

}  // namespace gradus::dist
