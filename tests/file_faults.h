// Makes one system call of a save go wrong, or reads slow.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gradus/core/platform/file.h>

namespace gradus::test {

/// While it lives, system call number `at` (counted from 0) of all files written fails with `error`; kDie ends the
/// process right before it, kShort makes it write one byte, kNone only lists the calls.
class FileFaults {
 public:
  static constexpr int kNone = 0, kDie = -1, kShort = -2;
  static constexpr int kExitCode = 77;  // of a process that has died

  explicit FileFaults(int at = -1, int error = kNone) {
    calls_.clear();
    at_ = at, error_ = error;
    io::file_fault = &step;
  }
  ~FileFaults() { io::file_fault = nullptr; }
  FileFaults(const FileFaults&) = delete;
  FileFaults& operator=(const FileFaults&) = delete;

  /// The names of the calls so far.
  static const std::vector<std::string>& calls() { return calls_; }

 private:
  static int step(const char* call, size_t* bytes) {
    const int number = static_cast<int>(calls_.size());
    calls_.emplace_back(call);
    if (number != at_ || error_ == kNone) return 0;
    if (error_ == kDie) _exit(kExitCode);
    if (error_ != kShort) return error_;
    if (bytes && *bytes > 0) *bytes = 1;
    return 0;
  }
  static inline std::vector<std::string> calls_;
  static inline int at_ = -1, error_ = kNone;
};

/// While it lives, files are read with at most so many bytes a second from each folder, as from a disk of its own.
class ReadLimit {
 public:
  explicit ReadLimit(double bytes_per_second) {
    rate_ = bytes_per_second;
    free_at_.clear();
    io::read_fault = &wait;
  }
  ~ReadLimit() { io::read_fault = nullptr; }
  ReadLimit(const ReadLimit&) = delete;
  ReadLimit& operator=(const ReadLimit&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  static void wait(const std::string& path, size_t bytes) {
    const std::chrono::duration<double> time(static_cast<double>(bytes) / rate_);
    Clock::time_point end;
    {
      std::lock_guard lock(mutex_);
      Clock::time_point& free_at = free_at_[path.substr(0, path.rfind('/'))];
      // A sleep that was too long is made up for, up to 10 ms.
      free_at = std::max(free_at, Clock::now() - std::chrono::milliseconds(10));
      end = free_at += std::chrono::duration_cast<Clock::duration>(time);
    }
    if (end > Clock::now() + std::chrono::milliseconds(1)) std::this_thread::sleep_until(end);
  }
  static inline double rate_ = 0;
  static inline std::mutex mutex_;
  static inline std::map<std::string, Clock::time_point> free_at_;  // by folder
};

}  // namespace gradus::test
