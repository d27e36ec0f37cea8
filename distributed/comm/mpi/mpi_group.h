// The process group over MPI, for processes that mpirun or srun has started together.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>

#include <gradus/distributed/comm/host_group.h>

namespace gradus::dist {

class MpiJob;

/// Messages over MPI. The header of a message is posted (sent without waiting, as control messages are), and its body
/// follows in pieces of at most 64 MiB. MPI only transfers bytes. Collectives and deadlines are the same as on the
/// other transports. Each group uses two tags of the job's one communicator, one for posted messages and the next one
/// for bodies. Making a group therefore needs no collective of MPI, which would wait without a deadline.
class MpiTransport final : public Transport {
 public:
  /// `ranks` are numbers in the job, in ascending order. Groups that share two or more ranks must have different
  /// numbers `group`.
  MpiTransport(MpiJob& job, std::vector<int> ranks, int64_t group);

  /// The ranks of the group as numbers in the job.
  const std::vector<int>& ranks() const { return ranks_; }
  MpiJob& job() const { return job_; }
  void exchange(std::span<const Transfer> transfers, const Descriptor& descriptor, const Deadline& deadline) override;
  void announce(const CommStatus& failure) noexcept override;

 private:
  class Exchange;

  void post(int rank, Control type, io::ByteSpan payload = {});
  CommStatus failure();

  MpiJob& job_;
  const std::vector<int> ranks_;
  const int tag_;
  std::mutex mutex_;                                // guards the members below; an exchange holds it unless it waits
  std::vector<std::deque<MessageHeader>> headers_;  // by sender: headers that have arrived but are not used yet
  std::vector<bool> answered_;                      // by rank: whether it has answered the last question
  std::mutex failure_mutex_;
  CommStatus failure_;  // the first failure that this rank has announced or received
  std::atomic<bool> failed_ = false;
};

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
