// Makes groups of the backends that only some builds have.
#pragma once

#include <memory>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/comm/store/store.h>

namespace gradus::dist {

struct NcclOptions {
  Milliseconds timeout = kDefaultTimeout;
  uint32_t epoch = 0;
  /// Index of this rank's GPU; no two ranks share one.
  int device = 0;
  /// Compare each call with those of the other ranks before it is launched. Slow; without, a mismatch is found when the
  /// deadline has passed.
  bool debug = false;
};

/// Of the NCCL of this build, 22807 for 2.28.7 say; 0 if there is none.
int nccl_version();
/// A group over NCCL. A CommError with the remedy where this build has none.
std::unique_ptr<ProcessGroup> make_nccl_group(std::shared_ptr<Store> store, int rank, int size,
                                              const NcclOptions& options);

/// Whether this build has MPI.
bool has_mpi();
/// A group of all processes of the MPI job, which know each other without a store. A CommError with the remedy where
/// this build has no MPI.
std::unique_ptr<ProcessGroup> make_mpi_group(Milliseconds timeout);

}  // namespace gradus::dist
