// What all attempts of a job have in common.
#pragma once

#include <signal.h>

#include <memory>
#include <optional>
#include <string>

#include <gradus/distributed/comm/store/tcp_store.h>
#include <gradus/distributed/comm/token.h>
#include <gradus/distributed/launcher/guard_process.h>
#include <gradus/distributed/launcher/launcher.h>
#include <gradus/distributed/launcher/line_writer.h>
#include <gradus/distributed/launcher/orphans.h>

namespace gradus::dist {

/// This process as a launcher: its signals, its output, the job's store, and what cleans up after ranks.
struct Job {
  explicit Job(const LaunchOptions& options);

  /// The next signal that has come; none if there is no more. Readable when there is one: `signals`.
  std::optional<int> next_signal();
  /// In a process that is about to become a rank: signals as this process was given them.
  void restore_signals() const;

  void say(const std::string& text) { writers[1]->put("gradus-run: " + text + "\n"); }
  /// It may go on when a worker has died.
  bool is_elastic() const;
  /// "restart 1 of 3"
  std::string restart(int number) const;

  const LaunchOptions& options;
  FileDescriptor signals;
  int interrupted = 0, interruptions = 0;  // the signal by which somebody has asked to end, and how often
  std::optional<GuardProcess> guard;
  std::optional<Orphans> orphans;
  Token token;
  Address address;
  std::unique_ptr<TcpStoreServer> server;
  std::shared_ptr<LineWriter> writers[2];  // stdout and stderr

 private:
  void block_signals();
  void open_output();

  sigset_t signals_before_;
};

}  // namespace gradus::dist
