// Groups whose ranks are processes of the test, which can be killed and stopped.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradus/distributed/comm/store/store.h>
#include <gradus/tests/distributed/ranks.h>

namespace gradus::test {

/// Calls fork() when all other threads of this process sleep. If a thread held a lock, such as the lock of
/// AddressSanitizer's allocator, no thread of the copy could ever release it.
inline pid_t fork_at_rest() {
  const auto others_sleep = [] {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string line;
      std::ifstream stat(task.path() / "stat");
      std::getline(stat, line);  // tid (name) state …
      const bool is_other = task.path().filename() != std::to_string(syscall(SYS_gettid));
      if (is_other && !line.empty() && line[line.rfind(')') + 2] != 'S') return false;
    }
    return true;
  };
  for (int i = 0; i < 1000 && !others_sleep(); ++i) std::this_thread::sleep_for(dist::Milliseconds(1));
  return fork();
}

/// A process of the test with limits on its descriptors. It runs body() and ends with the scope.
class FewDescriptors {
 public:
  FewDescriptors(rlim_t soft, rlim_t hard, const std::function<void()>& body) : pid_(fork_at_rest()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 1;
    try {
      const rlimit limit = {soft, hard};
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("the limit of descriptors cannot be set");
      body();
      code = 0;
    } catch (const std::exception& error) { std::fprintf(stderr, "%s\n", error.what()); } catch (...) {
    }
    _exit(code);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  /// Waits for the end of the process. Returns true if body() returned.
  [[nodiscard]] bool succeeds() {
    int status = 1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status == 0;
  }

 private:
  pid_t pid_;
};

/// Ranks that are processes of this test. They meet through a store that the test serves.
class Processes {
 public:
  Processes(const std::string& kind, int size, dist::Milliseconds timeout,
            const std::function<void(dist::ProcessGroup&, dist::Store&)>& body) {
    const dist::Token token = dist::Token::random();
    server_ = std::make_unique<dist::TcpStoreServer>(dist::Address{"127.0.0.1", 0}, token);
    store_ = std::make_unique<dist::TcpStore>(server_->address(), token);
    int gate[2];  // ranks begin when it is closed: until then the server's thread sleeps, which fork_at_rest() needs
    if (pipe(gate) != 0) throw std::runtime_error("no pipe");
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork_at_rest();
      if (pid == 0) {
        close(gate[1]);
        char end;
        if (read(gate[0], &end, 1) == 0) run(kind, rank, size, timeout, token, body);
        _exit(1);
      }
      pids_.push_back(pid);
    }
    close(gate[0]), close(gate[1]);
  }
  ~Processes() {
    for (pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  dist::Store& store() { return *store_; }
  /// Waits until each rank has added 1 to "running" in the store. Throws if a rank ends before.
  void wait_until_running() {
    const auto all_run = [&] { return store_->add("running", 0) == static_cast<int64_t>(pids_.size()); };
    while (!all_run()) {
      for (size_t rank = 0; rank < pids_.size(); ++rank) {
        siginfo_t ended = {};
        waitid(P_PID, static_cast<id_t>(pids_[rank]), &ended, WEXITED | WNOHANG | WNOWAIT);
        if (ended.si_pid != 0 && !all_run())
          throw std::runtime_error("a rank ended before all ranks ran: " + result(static_cast<int>(rank)).error);
      }
      std::this_thread::sleep_for(dist::Milliseconds(1));
    }
  }
  void signal(int rank, int number) const { kill(pids_[static_cast<size_t>(rank)], number); }
  /// How the body of a rank ended.
  [[nodiscard]] RankResult result(int rank) {
    // This is longer than any body takes on two busy cores under a sanitizer. A body that waits for a peer ends at its
    // deadline.
    const std::string text = store_->get("result/" + std::to_string(rank), dist::Milliseconds(180'000));
    RankResult result;
    int failure = 0, begin = 0;
    std::sscanf(text.c_str(), "%d %d %n", &failure, &result.status.rank, &begin);
    result.status.failure = static_cast<dist::CommFailure>(failure);
    result.error = result.status.message = text.substr(static_cast<size_t>(begin));
    return result;
  }

 private:
  [[noreturn]] void run(const std::string& kind, int rank, int size, dist::Milliseconds timeout,
                        const dist::Token& token, const std::function<void(dist::ProcessGroup&, dist::Store&)>& body) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      dist::TcpStore store(server_->address(), token);
      dist::CommStatus status;
      try {
        std::unique_ptr<dist::ProcessGroup> group;
        const dist::TcpOptions options{.token = token, .timeout = timeout};
        if (kind == "shm") group = std::make_unique<dist::ShmGroup>(store, rank, size, dist::ShmOptions{timeout});
        else group = std::make_unique<dist::TcpGroup>(store, rank, size, options);
        body(*group, store);
      } catch (const dist::CollectiveError& error) { status = error.status(); } catch (const std::exception& error) {
        status = {dist::CommFailure::aborted, rank, error.what()};
      }
      store.set("result/" + std::to_string(rank), std::to_string(static_cast<int>(status.failure)) + " " +
                                                      std::to_string(status.rank) + " " + status.message);
    } catch (...) {}  // the result cannot be sent, and result() reports that
    _exit(0);
  }

  std::unique_ptr<dist::TcpStoreServer> server_;
  std::unique_ptr<dist::TcpStore> store_;
  std::vector<pid_t> pids_;
};

}  // namespace gradus::test
