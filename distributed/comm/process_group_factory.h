// Makes groups of the backends that a build may lack: NCCL and MPI.
#pragma once

#include <memory>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

struct NcclOptions {
  Milliseconds timeout = kDefaultTimeout;
  uint32_t epoch = 0;
  /// Index of this rank's GPU. No two ranks may share one.
  int device = 0;
  /// Compare each call with those of the other ranks before it is launched. This is slow; without it, a mismatch is
  /// found only after the deadline has passed.
  bool debug = false;
};

/// Version of NCCL in this build, for example 22807 for 2.28.7; 0 if there is none.
int nccl_version();
/// Makes a group over NCCL. Throws a CommError with the remedy if this build has no NCCL.
std::unique_ptr<ProcessGroup> make_nccl_group(std::shared_ptr<Store> store, int rank, int size,
                                              const NcclOptions& options);

/// Whether this build has MPI.
bool has_mpi();
/// Makes a group of all processes of the MPI job, which find each other without a store. Throws a CommError with the
/// remedy if this build has no MPI.
std::unique_ptr<ProcessGroup> make_mpi_group(Milliseconds timeout);

}  // namespace gradus::dist
