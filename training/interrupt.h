// Interrupt: Ctrl-C asks a run to stop instead of killing it.
//
//   training::Interrupt interrupt;
//   for (auto& batch : *loader) {
//     step(batch);
//     if (interrupt.requested()) return checkpoint.save(path);
//   }
#pragma once

namespace gradus::training {

/// While an Interrupt exists, the first SIGINT or SIGTERM of the process is only noted, and the run is expected to
/// finish its step, save and end. The next signal has its usual effect. A signal that was ignored before (a run under
/// nohup) remains ignored. Only one may exist at a time, created and destroyed on one thread; a second one is a
/// ValueError.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// True once a signal has arrived.
  bool requested() const { return signal() != 0; }
  /// SIGINT or SIGTERM, or 0 if none has arrived.
  int signal() const;
  /// The exit code for a program that stops because of the signal: 128 + signal, as in shells.
  int exit_code() const { return 128 + signal(); }
};

}  // namespace gradus::training
