// The job of which MPI makes this process a part: one for all groups, from the first group to the end of the program.
#pragma once

#include <mpi.h>

#include <list>
#include <mutex>
#include <optional>

#include <gradus/core/io/file.h>
#include <gradus/distributed/comm/deadline.h>

namespace gradus::dist {

/// A CommError that names the call and MPI's error, unless the code is success.
void check_mpi(const char* call, int code);
#define GRADUS_MPI_CHECK(call) ::gradus::dist::check_mpi(#call, call)

class MpiJob {
 public:
  /// Initialises MPI, unless the program has, and waits until all processes of the job have called this. A CommError
  /// where MPI cannot be called by several threads, or after `timeout` (of the waiting for programs that initialise MPI
  /// by themselves: MPI_Init has no deadline).
  ///
  /// Who initialises MPI finalizes it. Here that is when the program exits: with code 0 it waits in MPI_Finalize for
  /// the other processes, which is without a deadline too; with another code MPI is not finalized, by which mpirun
  /// knows that the job has failed, and ends it.
  static MpiJob& get(Milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Ours alone: what the program sends by itself does not come here.
  MPI_Comm communicator() const { return communicator_; }
  /// The largest tag that a message may have.
  int largest_tag() const { return largest_tag_; }

  /// A short message. It is on its way when this returns; nobody waits for it. Nothing happens once MPI is finalized.
  void post(int rank, int tag, io::Bytes bytes);
  /// Waits until what was posted has left this process, but not longer than `timeout`.
  void flush(Milliseconds timeout);

  struct Posted {
    int rank = -1;
    io::Bytes bytes;
  };
  /// A posted message with this tag that has come, from whichever rank, if there is one.
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
