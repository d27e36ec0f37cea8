// Ranks that are threads of one process: real arithmetic without sockets. For tests and for lessons, because faults can
// be scripted and messages recorded.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include <gradus/distributed/comm/host_group.h>

namespace gradus::dist {

/// A scripted fault of `rank` in its collective number `sequence`.
struct LocalFault {
  enum class Kind : uint8_t {
    delay,     ///< the rank is late by `delay`
    drop,      ///< its messages are lost
    crash,     ///< its call throws, and for the other ranks the connection to it is lost
    mismatch,  ///< it calls the collective with one more element
  };
  int rank = 0;
  uint64_t sequence = 1;
  Kind kind = Kind::crash;
  Milliseconds delay{0};
};

/// The messages that ranks send each other, for lessons and for a page that steps through them (inspect/lab/lab.h).
///
///   const dist::MessageLog log = dist::record_messages(4, [](dist::ProcessGroup& group) {
///     const Tensor x = full({4}, group.rank() + 1.0);
///     group.all_reduce(x.array());
///   });
///   write_lab(log, "all_reduce.html");
struct MessageLog {
  static constexpr size_t kElements = 64;  ///< how many elements of a message are kept

  struct Event {
    enum class Kind : uint8_t { sends, receives, fails } kind = Kind::sends;
    int rank = 0;
    int peer = -1;            ///< the other rank; -1 for a failure
    size_t message = 0;       ///< number of the message, the same at both ends
    std::string text;         ///< the call, "all_reduce #1 (sum of 4 float32)", or the cause of the failure
    DType dtype = DType::u8;  ///< type of the elements
    size_t bytes = 0;         ///< length of the whole message
    std::vector<std::byte> body;
  };
  int ranks = 0;
  std::vector<Event> events;  ///< in the order in which they happened
};

/// The state that the ranks of a group share.
class LocalWorld {
 public:
  /// Records messages in `log` if it is not null. Throws a ValueError if the size is not 1 to
  /// kMaxRanks.
  explicit LocalWorld(int size, std::vector<LocalFault> script = {}, MessageLog* log = nullptr);
  int size() const { return static_cast<int>(ranks_.size()); }
  /// The state that the ranks of a sub-group share. Sub-groups have no scripted faults.
  std::shared_ptr<LocalWorld> group(uint32_t epoch, int size);

 private:
  friend class LocalTransport;
  struct Message {
    Descriptor descriptor;
    std::vector<std::byte> body;
    size_t number;
  };
  struct Rank {
    std::map<size_t, std::deque<Message>> inbox;  // by sender; ranks that have sent nothing have no entry
    bool lost = false, left = false;
    int exchanges = 0;  // number of calls of exchange() in progress
  };
  Rank& rank(int number) { return ranks_[static_cast<size_t>(number)]; }

  const std::vector<LocalFault> script_;
  MessageLog* const log_;
  size_t messages_ = 0;  // number of messages sent so far
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  CommStatus failure_;
  std::map<uint32_t, std::shared_ptr<LocalWorld>> groups_;  // by epoch
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalWorld> world, int rank)
      : Transport(rank, world->size()), world_(std::move(world)) {}
  ~LocalTransport() override;

  void exchange(std::span<const Transfer> transfers, const Descriptor& descriptor, const Deadline& deadline) override;
  void announce(const CommStatus& failure) noexcept override;

 private:
  /// Carries out the scripted faults of this call, which may change the descriptor. Returns false if this rank's
  /// messages are lost.
  bool follow_script(Descriptor* descriptor);
  void post(const Transfer& transfer, const Descriptor& descriptor);
  /// Records a message in the log, if there is one.
  void note(const Transfer& transfer, const LocalWorld::Message& message);
  void note_failure(const CollectiveError& error);
  /// Waits for a message. Throws if any rank has sent a message of a different call with this number.
  void receive(const Transfer& transfer, const Descriptor& descriptor, const Deadline& deadline,
               std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<LocalWorld> world_;
};

class LocalGroup final : public TransportGroup<LocalTransport> {
 public:
  LocalGroup(const std::shared_ptr<LocalWorld>& world, int rank, Milliseconds timeout = kDefaultTimeout,
             uint32_t epoch = 0)
      : TransportGroup(rank, world->size(), epoch, timeout, world, rank), world_(world) {}
  ~LocalGroup() override { stop(); }

  std::string_view backend() const override { return "local"; }

 protected:
  bool serves(Device device) const override { return device.is_cpu(); }
  std::string places() const override { return "the cpu"; }

 private:
  std::unique_ptr<ProcessGroup> make_group(const std::vector<int>& ranks, int rank, uint32_t epoch,
                                           Milliseconds timeout) override {
    return std::make_unique<LocalGroup>(world_->group(epoch, static_cast<int>(ranks.size())), rank, timeout, epoch);
  }

  const std::shared_ptr<LocalWorld> world_;
};

/// Runs `work` in `ranks` threads, one for each rank of a group, and returns the messages of the group. Messages of
/// sub-groups are not recorded. A CommError in a rank becomes an event of the log. If `work` throws another exception,
/// the first one is rethrown.
MessageLog record_messages(int ranks, const std::function<void(ProcessGroup&)>& work,
                           std::vector<LocalFault> script = {});

}  // namespace gradus::dist
