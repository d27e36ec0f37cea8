#include <mpi.h>

#include <cstdlib>

#include <gradus/benchmarks/all_reduce/peer.h>

namespace gradus::benchmarks {

bool OpenMpi::has_started_this_process() { return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr; }

std::string OpenMpi::transport() {
  const char* transports = std::getenv("OMPI_MCA_btl");  // "self,tcp"
  std::string name = transports ? transports : "its choice";
  if (const size_t self = name.find("self,"); self != std::string::npos) name.erase(self, 5);
  return name;
}

OpenMpi::OpenMpi() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  name = "Open MPI, " + transport();
  all_reduce = [](float* x, int64_t count) {
    MPI_Allreduce(MPI_IN_PLACE, x, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
}

OpenMpi::~OpenMpi() { MPI_Finalize(); }

int64_t OpenMpi::broadcast(int64_t value) const {
  MPI_Bcast(&value, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  return value;
}

}  // namespace gradus::benchmarks
