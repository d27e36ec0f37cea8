#include <gradus/distributed/comm/init.h>
#if GRADUS_WITH_NCCL
#include <gradus/distributed/comm/nccl/nccl_group.h>
#endif
#if GRADUS_WITH_MPI
#include <gradus/distributed/comm/mpi/mpi_group.h>
#endif

namespace gradus::dist {

#if GRADUS_WITH_NCCL
int nccl_version() { return Communicator::version(); }
std::unique_ptr<ProcessGroup> make_nccl_group(std::shared_ptr<Store> store, int rank, int size,
                                              const NcclOptions& options) {
  return std::make_unique<NcclGroup>(std::move(store), rank, size, options);
}
#else
int nccl_version() { return 0; }
std::unique_ptr<ProcessGroup> make_nccl_group(std::shared_ptr<Store>, int, int, const NcclOptions&) {
  GRADUS_FAIL(CommError,
              "this build has no NCCL: install it with the CUDA toolkit and configure with -DGRADUS_NCCL=ON, ",
              "or take the backend 'tcp' or 'shm', which carry arrays of a GPU too");
}
#endif

#if GRADUS_WITH_MPI
bool has_mpi() { return true; }
std::unique_ptr<ProcessGroup> make_mpi_group(Milliseconds timeout) { return MpiGroup::of_all(timeout); }
#else
bool has_mpi() { return false; }
std::unique_ptr<ProcessGroup> make_mpi_group(Milliseconds) {
  GRADUS_FAIL(
      CommError,
      "this build has no MPI: install it (Debian: libopenmpi-dev) and configure with -DGRADUS_MPI=ON, or take the "
      "backend 'tcp' or 'shm', which mpirun can start too");
}
#endif

}  // namespace gradus::dist
