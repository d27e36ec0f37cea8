// Interrupt: Ctrl-C asks a run to stop instead of killing it.
//
//   training::Interrupt interrupt;
//   for (auto& batch : *loader) {
//     step(batch);
//     if (interrupt.requested()) return checkpoint.save(path);
//   }
#pragma once

#include <csignal>

namespace gradus::training {

/// While one lives, the first SIGINT or SIGTERM of the process is noted, and the run is expected to finish its step,
/// save and end; the next one does at once what it would have done without. A signal that was ignored before (a run
/// under nohup) stays ignored. One lives at a time, made and destroyed on one thread; a second is a ValueError.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// True once a signal has come.
  bool requested() const { return signal() != 0; }
  /// SIGINT or SIGTERM, 0 before.
  int signal() const;
  /// What a program that stops because of it returns: 128 + signal, as shells say it.
  int exit_code() const { return 128 + signal(); }

 private:
  struct sigaction previous_[2];
};

}  // namespace gradus::training
