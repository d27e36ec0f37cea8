// The process group over MPI, for processes that mpirun or srun has started together.
#pragma once

#include <memory>
#include <vector>

#include <gradus/distributed/comm/mpi/mpi_transport.h>
#include <gradus/distributed/comm/transport_group.h>

namespace gradus::dist {

class MpiGroup final : public TransportGroup<MpiTransport> {
 public:
  /// Makes a group of all processes of the job. All processes must make the same groups in the same order.
  static std::unique_ptr<MpiGroup> of_all(Milliseconds timeout);
  ~MpiGroup() override { stop(); }

  std::string_view backend() const override { return "mpi"; }

 private:
  MpiGroup(MpiJob& job, const std::vector<int>& ranks, int rank, int64_t number, uint32_t epoch, Milliseconds timeout)
      : TransportGroup(rank, static_cast<int>(ranks.size()), epoch, timeout, job, ranks, number) {}

  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                           Milliseconds timeout) override;
};

}  // namespace gradus::dist
