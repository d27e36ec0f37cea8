// An NCCL communicator in which every wait has a deadline.
#pragma once

#include <nccl.h>

#include <atomic>

#include <gradus/distributed/comm/descriptor.h>

namespace gradus::dist {

/// Throws a CommError that names the call and NCCL's error, unless the result is success (or "in progress", for
/// communicators that do not block).
void check_nccl(const char* call, ncclResult_t result);
#define GRADUS_NCCL_CHECK(call) ::gradus::dist::check_nccl(#call, call)

class Communicator {
 public:
  /// Version of the NCCL library that is loaded.
  static int version();
  /// The bytes by which ranks find each other. One rank makes them, and all ranks pass them to the constructor.
  static std::string unique_id();

  /// Connects with the other ranks, each on the current device of its thread. Throws a CommError after the deadline.
  Communicator(const std::string& unique_id, int rank, int size, const Deadline& deadline);
  /// Destroys the communicator, or aborts it if that takes longer than a few seconds.
  ~Communicator();

  ncclComm_t get() const { return communicator_; }
  /// The error that NCCL found asynchronously; "" if there is none.
  std::string error() const;
  /// Makes NCCL's kernels on the device return, on all streams. Returns within seconds even if NCCL does not. May be
  /// called from any thread; later calls do nothing.
  void abort() noexcept;

 private:
  const int device_;
  ncclComm_t communicator_ = nullptr;
  std::atomic<bool> ended_ = false;
};

}  // namespace gradus::dist
