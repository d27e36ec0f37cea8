// The MPI job to which this process belongs. All groups share it, from the first group to the end of the program.
#pragma once

#include <mpi.h>

#include <list>
#include <mutex>
#include <optional>

#include <gradus/core/platform/file.h>
#include <gradus/distributed/comm/deadline.h>

namespace gradus::dist {

/// Throws a CommError that names the call and MPI's error, unless the code is success.
void check_mpi(const char* call, int code);
#define GRADUS_MPI_CHECK(call) ::gradus::dist::check_mpi(#call, call)

class MpiJob {
 public:
  /// Initialises MPI, unless the program has done so, and waits until all processes of the job have called this. Throws
  /// a CommError if several threads cannot call MPI, or if the other processes have not called this after `timeout`.
  /// MPI_Init itself has no deadline.
  ///
  /// MPI that was initialised here is finalized when the program exits. With exit code 0 the program waits in
  /// MPI_Finalize for the other processes, also without a deadline. With another code MPI is not finalized, which tells
  /// mpirun that the job has failed and must be ended.
  static MpiJob& get(Milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// A communicator that only this library uses, apart from the messages of the program.
  MPI_Comm communicator() const { return communicator_; }
  /// The largest tag of a message.
  int largest_tag() const { return largest_tag_; }

  /// Starts to send a short message and does not wait for it. Does nothing once MPI is finalized.
  void post(int rank, int tag, io::Bytes bytes);
  /// Waits until all posted messages have left this process, but at most `timeout`.
  void flush(Milliseconds timeout);

  struct Posted {
    int rank = -1;
    io::Bytes bytes;
  };
  /// The next posted message with this tag from any rank, if one has arrived.
  std::optional<Posted> next(int tag) const;

 private:
  explicit MpiJob(Milliseconds timeout);
  void forget_sent();

  int rank_ = 0, size_ = 1, largest_tag_ = 0;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  struct Sending {
    io::Bytes bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::mutex mutex_;
  std::list<Sending> sending_;
};

}  // namespace gradus::dist
