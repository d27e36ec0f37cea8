#include <gradus/distributed/comm/mpi/mpi_group.h>

#include <atomic>
#include <numeric>

#include <gradus/distributed/comm/mpi/mpi_job.h>

namespace gradus::dist {

// Groups of all ranks have even numbers. Sub-groups have odd numbers, from epochs that are new to all their ranks.

std::unique_ptr<MpiGroup> MpiGroup::of_all(Milliseconds timeout) {
  static std::atomic<int64_t> made = 0;
  MpiJob& job = MpiJob::get(timeout);
  std::vector<int> ranks(static_cast<size_t>(job.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::unique_ptr<MpiGroup>(new MpiGroup(job, ranks, job.rank(), 2 * made++, 0, timeout));
}

std::unique_ptr<ProcessGroup> MpiGroup::make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                                   Milliseconds timeout) {
  std::vector<int> of_job;
  for (const int r : ranks) of_job.push_back(transport().ranks()[static_cast<size_t>(r)]);
  return std::unique_ptr<MpiGroup>(
      new MpiGroup(transport().job(), of_job, rank, 2 * int64_t{epoch} + 1, epoch, timeout));
}

}  // namespace gradus::dist
