// Messages over MPI: a header, posted, and a body in pieces of at most 64 MiB. MPI carries the bytes; what is sent in
// which order, what is summed, and how long a rank waits are decided here as on the other transports. A group is a tag
// (of posted messages; the next one is that of bodies) in the one communicator of the job, so that making one needs no
// collective of MPI's, which would wait without a deadline.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include <gradus/core/io/file.h>
#include <gradus/distributed/comm/control.h>
#include <gradus/distributed/comm/transport.h>

namespace gradus::dist {

class MpiJob;

class MpiTransport final : public Transport {
 public:
  /// Between these ranks of the job, in ascending order. No other group that two of them share has this number.
  MpiTransport(MpiJob& job, std::vector<int> ranks, int64_t group);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  /// As numbers of the job.
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
  const int rank_, tag_;
  std::mutex mutex_;                                // of what follows: an exchange holds it, except while it waits
  std::vector<std::deque<MessageHeader>> headers_;  // that have come, by sender
  std::vector<bool> answered_;                      // the last question whether it is there
  std::mutex failure_mutex_;
  CommStatus failure_;  // the first that this rank has announced or heard of
  std::atomic<bool> failed_ = false;
};

}  // namespace gradus::dist
