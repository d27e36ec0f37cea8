// What all attempts of a job share.
#pragma once

#include <signal.h>

#include <memory>
#include <optional>
#include <string>

#include <gradus/distributed/comm/store/tcp_store.h>
#include <gradus/distributed/comm/tcp/token.h>
#include <gradus/distributed/launcher/guard_process.h>
#include <gradus/distributed/launcher/launcher.h>
#include <gradus/distributed/launcher/line_writer.h>
#include <gradus/distributed/launcher/orphans.h>

namespace gradus::dist {

/// The launcher's process: its signals, its output, the job's store, and the cleanup after ranks.
struct Job {
  explicit Job(const LaunchOptions& options);

  /// The next pending signal, or none. The descriptor `signals` is readable while there is one.
  std::optional<int> next_signal();
  /// Called in a process that is about to become a rank: restores the signal settings that the launcher was given.
  void restore_signals() const;

  void say(const std::string& text) { writers[1]->put("gradus-run: " + text + "\n"); }
  /// Whether the job survives the loss of a worker.
  bool is_elastic() const;
  /// "restart 1 of 3"
  std::string restart(int number) const;

  const LaunchOptions& options;
  FileDescriptor signals;
  int interrupted = 0, interruptions = 0;  // the last signal that asked the job to end, and the number of such signals
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
