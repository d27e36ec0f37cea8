// Makes one system call of a save go wrong.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include <gradus/core/io/file_faults.h>

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

}  // namespace gradus::test
