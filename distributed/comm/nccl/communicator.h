// An NCCL communicator whose every wait is bounded.
#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <string>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/deadline.h>

namespace gradus::dist {

/// A CommError that names the call and NCCL's error, unless the result is success (or, where nothing waits, in
/// progress).
void check_nccl(const char* call, ncclResult_t result);
#define GRADUS_NCCL_CHECK(call) ::gradus::dist::check_nccl(#call, call)

class Communicator {
 public:
  /// Of the library that is loaded.
  static int version();
  /// The bytes by which ranks find each other: one rank makes them, all give them to the constructor.
  static std::string unique_id();

  /// Connects with the other ranks, each on the device that is current on its thread. A CommError after the deadline.
  Communicator(const std::string& unique_id, int rank, int size, const Deadline& deadline);
  /// Ends orderly if that takes no longer than a few seconds, else by force.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ncclComm_t get() const { return communicator_; }
  /// What went wrong behind the calls' backs; "" if nothing did.
  std::string error() const;
  /// Makes what runs on the device return, on all streams. Returns within seconds, even if NCCL does not. From any
  /// thread; later calls do nothing.
  void abort() noexcept;

 private:
  const int device_;
  ncclComm_t communicator_ = nullptr;
  std::atomic<bool> ended_ = false;
};

}  // namespace gradus::dist
