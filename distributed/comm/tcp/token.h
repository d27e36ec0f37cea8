// The secret of a job. A process that knows it may connect to the job's store and ranks. Processes get it through an
// inherited descriptor or from a file that only its owner can read, never on a command line, which every user of the
// machine can see.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include <gradus/distributed/comm/tcp/socket.h>

namespace gradus::dist {

/// 256 bits.
using Digest = std::array<std::byte, 32>;

/// HMAC-SHA256 (RFC 2104, FIPS 180-4) of the concatenated parts.
Digest hmac_sha256(const Digest& key, std::initializer_list<io::ByteSpan> parts);
/// Compares in a time that does not depend on the contents.
bool same_digest(const Digest& a, io::ByteSpan b);
/// Random bytes from the kernel's generator.
Digest random_digest();

class Token {
 public:
  /// An empty token, which everybody knows. For jobs on the loopback interface of a machine without other users.
  Token() = default;
  static Token random();
  /// Reads 64 hexadecimal digits from a file that this user owns and no other user can read. Throws an IoError
  /// otherwise.
  static Token from_file(const std::string& path);
  /// Reads 64 hexadecimal digits from a descriptor of a file or of memfd_create(2). The descriptor stays open, because
  /// children of this process read it too.
  static Token from_descriptor(int descriptor);
  /// Reads the token from the descriptor GRADUS_TOKEN_FD, which the launcher sets, or else from the file
  /// GRADUS_TOKEN_FILE. Returns an empty token if neither variable is set.
  static Token from_environment();

  /// Returns a memfd_create(2) descriptor that a child reads with from_descriptor(). It is closed on exec, so the child
  /// that calls exec duplicates it first.
  FileDescriptor to_descriptor() const;

  bool empty() const { return !key_; }
  /// The token as 64 hexadecimal digits.
  std::string hex() const;
  Digest key() const { return key_.value_or(Digest()); }

 private:
  static Token parse(const std::string& hex, const std::string& source);

  std::optional<Digest> key_;
};

/// Both sides of a connection prove that they know the token, without sending it. Each proof is computed from random
/// numbers of both sides, so a recorded proof is useless later:
///
///   server -> client   challenge: s
///   client -> server   c, HMAC(token, "client" purpose s c)
///   server -> client   HMAC(token, "server" purpose s c)
///
/// `purpose` says what the connection is for. A proof for the store therefore cannot open a data connection.
struct Handshake {
  static Digest client_proof(const Token& token, std::string_view purpose, const Digest& s, const Digest& c);
  static Digest server_proof(const Token& token, std::string_view purpose, const Digest& s, const Digest& c);
};

}  // namespace gradus::dist
