// Interrupt: Ctrl-C asks a training run to save and stop, and does not kill it.
//
//   training::Interrupt interrupt;
//   for (auto& batch : *loader) {
//     step(batch);
//     if (interrupt.requested()) return checkpoint.save(path);
//   }
#pragma once

namespace gradus::training {

/// While an Interrupt exists, the first SIGINT or SIGTERM of the process only sets requested(), so that the run can
/// finish its step, save a checkpoint and end. The next signal has its usual effect. A signal that the process ignored
/// before, for example under nohup, remains ignored. Only one Interrupt may exist at a time (otherwise a ValueError);
/// create and destroy it on the same thread.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// True after a signal has arrived.
  bool requested() const { return signal() != 0; }
  /// SIGINT or SIGTERM, or 0 if none has arrived.
  int signal() const;
  /// The exit code of a program that stops because of the signal: 128 + signal, as in shells.
  int exit_code() const { return 128 + signal(); }
};

}  // namespace gradus::training
