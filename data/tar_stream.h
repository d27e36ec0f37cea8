// The samples of tar shards in the order of an epoch, read ahead by a thread for each folder. Internal to TarShards.
//
// The shards that a folder is home of are its lane. Samples come from the lanes in turn, so all folders are read at the
// same time, and their order does not depend on which is faster. Which thread reads a lane may change: when its folder
// does not answer or fails, one that has the same shard goes on at the same byte.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>

#include <gradus/data/tar_shards.h>

namespace gradus::data::detail {

/// The samples of a shard from byte `offset` on, where one begins.
class TarSampleReader {
 public:
  TarSampleReader(const std::string& path, uint64_t offset);
  TarSampleReader(const TarSampleReader&) = delete;
  TarSampleReader& operator=(const TarSampleReader&) = delete;

  std::optional<TarSample> next();
  /// Where the next sample begins.
  uint64_t offset() const { return ahead_ ? ahead_->offset : tar_.offset(); }

 private:
  io::InputFile file_;
  io::TarReader tar_;
  std::optional<io::TarFile> ahead_;  // the first file of the next sample
};

/// Shared with its threads: one that is stuck may come back when the stream is no longer used.
class TarStream : public std::enable_shared_from_this<TarStream> {
 public:
  /// The end of what this returns ends the threads. It waits for their reads, but not for those that have stalled.
  static std::shared_ptr<TarStream> open(std::vector<std::string> folders, const datasets::TarShardsOptions& options);

  void reset(uint64_t seed, uint64_t epoch);
  /// The next sample's number, by which give() finds it; none at the epoch's end. With `drop` give() will not.
  std::optional<size_t> draw(bool drop);
  TarSample give(size_t number);
  std::string describe() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Numbered {
    size_t number;  // 2^32 times the shard's, plus the place in it: the same for all ranks and epochs
    TarSample sample;
  };
  struct Shard {
    std::string name;
    std::vector<size_t> folders;  // that have it, its home first
  };
  struct Lane {
    std::deque<size_t> shards;                // still to read, the open one first
    size_t folder = 0, place = 0;             // whose thread reads that, and the number of the next sample in it
    uint64_t offset = 0;                      // where that sample begins
    std::set<size_t> failed;                  // folders from which it cannot be read
    std::unique_ptr<TarSampleReader> reader;  // of the open shard, if it is open
    std::deque<Numbered> ready;
    size_t ready_bytes = 0;
    std::exception_ptr error;
  };

  TarStream(std::vector<std::string> folders, const datasets::TarShardsOptions& options);
  void stop();
  std::vector<size_t> order_of(uint64_t seed, uint64_t epoch) const;
  std::optional<Numbered> take();
  bool is_stuck(size_t folder) const;
  std::optional<size_t> folder_for(const Lane& lane) const;
  std::shared_ptr<Lane> lane_of(size_t folder) const;
  void overtake(std::shared_ptr<Lane>& lane);
  void to_next_shard(Lane& lane);
  void read(size_t folder);

  const datasets::TarShardsOptions options_;
  const std::vector<std::string> folders_;
  std::vector<Shard> shards_;
  std::vector<std::thread> threads_;

  // Of the consumer.
  uint64_t seed_ = 0, epoch_ = 0, drawn_ = 0;
  size_t turn_ = 0;  // of the lanes
  std::vector<Numbered> shuffle_buffer_;

  std::mutex mutex_;  // for all below
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::vector<std::optional<Clock::time_point>> reading_since_;  // of each folder
  std::unordered_map<size_t, TarSample> drawn_samples_;          // by loader workers too
};

}  // namespace gradus::data::detail
