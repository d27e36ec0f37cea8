#include <gradus/training/interrupt.h>

#include <atomic>
#include <csignal>

#include <gradus/core/error.h>
#include <gradus/core/platform/process.h>

namespace gradus::training {
namespace {

constexpr int kSignals[2] = {SIGINT, SIGTERM};
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);  // a signal handler must not wait for a lock
bool alive = false;
struct sigaction before[2];  // what the signals did before; the handler and the destructor restore it

// Uses only functions that are allowed in a signal handler: sigaction, lock-free atomics and write_to_stderr.
void on_signal(int number) {
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before[i], nullptr);  // the next signal has its usual effect
  received.store(number);
  platform::write_to_stderr("\nfinishing this step; interrupt again to quit immediately\n");
}

}  // namespace

Interrupt::Interrupt() {
  GRADUS_CHECK(!alive, ValueError, "there already is an Interrupt: only one can catch the process's signals");
  alive = true;
  received.store(0);
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], nullptr, &before[i]);
  for (int i = 0; i < 2; ++i) {
    if (before[i].sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_RESTART;  // system calls that the signal interrupts continue
    sigemptyset(&action.sa_mask);
    for (int other : kSignals) sigaddset(&action.sa_mask, other);
    sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before[i], nullptr);
  alive = false;
}

int Interrupt::signal() const { return received.load(); }

}  // namespace gradus::training
