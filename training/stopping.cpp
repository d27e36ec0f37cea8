#include <gradus/training/stopping.h>

#include <atomic>
#include <cmath>
#include <csignal>

#include <gradus/autograd/ops/creation.h>
#include <gradus/core/platform/process.h>
#include <gradus/layers/module/serialize.h>
#include <gradus/optim/optimizer_options.h>

namespace gradus::training {

// ---- EarlyStopping ----

static const std::string kModel = "model.";

double detail::worst_figure(Mode mode) { return mode == Mode::min ? INFINITY : -INFINITY; }

bool detail::is_better(Mode mode, double figure, double best, double min_delta) {
  return mode == Mode::min ? figure < best - min_delta : figure > best + min_delta;
}

EarlyStopping::EarlyStopping(nn::Module& model, const EarlyStoppingOptions& options)
    : model_(model), options_(options), best_(detail::worst_figure(options.mode())) {
  GRADUS_CHECK(options.patience() >= 1, ValueError, "patience must be at least 1, got ", options.patience());
  GRADUS_CHECK(options.min_delta() >= 0, ValueError, "min_delta must not be negative, got ", options.min_delta());
}

bool EarlyStopping::step(double figure) {
  if (detail::is_better(options_.mode(), figure, best_, options_.min_delta())) {
    best_ = figure;
    best_epoch_ = epochs_;
    best_weights_ = nn::detail::copy_of(model_.state_dict());
  }
  ++epochs_;
  return epochs_ - 1 - best_epoch_ >= options_.patience();
}

void EarlyStopping::restore_best() const {
  if (best_epoch_ >= 0) model_.load_state_dict(best_weights_);
}

nn::StateDict EarlyStopping::state_dict() const {
  nn::StateDict state("Key");
  state.append("best", full({}, best_, dtype(kDouble)));
  state.append("epochs", full({}, epochs_, dtype(kLong)));
  state.append("best_epoch", full({}, best_epoch_, dtype(kLong)));
  for (const auto& item : best_weights_) state.append(kModel + item.key(), item.value());
  return state;
}

void EarlyStopping::load_state_dict(const nn::StateDict& state) {
  const OpContext context("early stopping load_state_dict");
  optim::StateReader reader(state);
  const double best = reader.number("best"), epochs = reader.number("epochs"), best_epoch = reader.number("best_epoch");
  for (const double count : {epochs, best_epoch})  // -1: none yet
    GRADUS_CHECK(count >= -1 && count <= 0x1p53 && count == std::floor(count), ValueError,
                 "the state of EarlyStopping has the count ", count);
  nn::StateDict weights("Key");
  const nn::StateDict own = best_epoch < 0 ? nn::StateDict() : model_.state_dict();
  for (const auto& item : own) {
    const Tensor& source = reader.get(kModel + item.key());
    GRADUS_CHECK(source.sizes() == item->sizes(), ShapeError, "the weights '", item.key(), "' have shape ",
                 source.sizes(), " in the state and ", item->sizes(), " in the model");
    weights.append(item.key(), source);
  }
  reader.check_all_used("EarlyStopping");
  best_ = best;
  epochs_ = static_cast<int64_t>(epochs);
  best_epoch_ = static_cast<int64_t>(best_epoch);
  best_weights_ = nn::detail::copy_of(weights);
}

// ---- Interrupt ----

namespace {

struct CaughtSignal {
  int number;
  struct sigaction before;  // what the signal did before; the handler and the destructor restore it
} caught_signals[] = {{SIGINT, {}}, {SIGTERM, {}}};
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);  // a signal handler must not wait for a lock
bool alive = false;

// Uses only functions that are allowed in a signal handler: sigaction, lock-free atomics and write_to_stderr.
void on_signal(int number) {
  for (const CaughtSignal& caught : caught_signals)
    sigaction(caught.number, &caught.before, nullptr);  // the next signal has its usual effect
  received.store(number);
  platform::write_to_stderr("\nfinishing this step; interrupt again to quit immediately\n");
}

}  // namespace

Interrupt::Interrupt() {
  GRADUS_CHECK(!alive, ValueError, "there already is an Interrupt: only one can catch the process's signals");
  alive = true;
  received.store(0);
  for (CaughtSignal& caught : caught_signals) sigaction(caught.number, nullptr, &caught.before);
  for (const CaughtSignal& caught : caught_signals) {
    if (caught.before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_RESTART;  // system calls that the signal interrupts continue
    sigemptyset(&action.sa_mask);
    for (const CaughtSignal& other : caught_signals) sigaddset(&action.sa_mask, other.number);
    sigaction(caught.number, &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (const CaughtSignal& caught : caught_signals) sigaction(caught.number, &caught.before, nullptr);
  alive = false;
}

int Interrupt::signal() const { return received.load(); }

}  // namespace gradus::training
