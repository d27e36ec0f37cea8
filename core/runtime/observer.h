// Observers are notified of every operator and every kernel that runs. The profiler, traces, FLOP counts and the record
// of which backend ran an operator are observers. Without an observer the cost is one predictable branch.
#pragma once

#include <atomic>
#include <initializer_list>

#include <gradus/core/backend.h>

namespace gradus {

/// One operator (opened by OpScope) or one kernel (opened by the backend that runs it). Events nest. An event that
/// contains no other event is a leaf; totals count leaves only, so that no work is counted twice.
struct ObservedEvent {
  enum class Kind : uint8_t { op, kernel } kind = Kind::op;
  const char* name = "";            ///< "matmul"
  const char* backend = "";         ///< kernels: "openmp"
  const char* implementation = "";  ///< kernels: "blocked_avx512"
  const char* reason = "";          ///< kernels: why this implementation was chosen; "" if there is only one
  int shape_count = 0;
  Shape shapes[4] = {};           ///< shapes of the first `shape_count` operands
  int64_t bytes = 0;              ///< kernels: lower bound on the bytes read and written
  int64_t flops = 0;              ///< kernels: floating-point operations
  double start = 0, seconds = 0;  ///< host time in s since the first event; on cuda that of the launch
  int depth = 0;
  bool leaf = true;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_begin(const ObservedEvent&) {}
  virtual void on_end(const ObservedEvent&) {}
};

/// Attaches an observer to the whole process. The caller keeps it alive until it is removed. Its methods are called
/// from any thread.
void add_observer(Observer* observer);
void remove_observer(Observer* observer);

/// The innermost open event of this thread, or null if no event is open or no observer is attached.
const ObservedEvent* innermost_event();

/// The current time on the clock of ObservedEvent::start.
double observer_time();

namespace detail {
/// Replaces the clock of observer_time(); tests set it.
inline double (*observer_clock)() = nullptr;
inline std::atomic<int> observer_count{0};
}  // namespace detail
inline bool observing() { return detail::observer_count.load(std::memory_order_relaxed) != 0; }

/// Opens an event for the lifetime of the scope if an observer is attached. A backend opens one around each kernel and
/// names the operands that the kernel reads and writes:
///   EventScope kernel("matmul", "openmp", "blocked_avx512", {&a, &b, &y}, 2 * M * N * K);
class EventScope : NoCopy {
 public:
  /// An operand of the kernel: a pointer to its View or MutableView. The view is examined only if an observer is
  /// attached; an absent view is skipped.
  struct Operand {
    const StridedLayout* layout;
    const void* const* data;
    template <class AnyView>
    Operand(const AnyView* view) : layout(view), data(&view->data) {}  // NOLINT(google-explicit-constructor)
  };
  using Operands = std::initializer_list<Operand>;
  /// Opens the event of a kernel. `reason` names the condition by which the select() function of the kernel's family
  /// chose the implementation.
  EventScope(const char* name, const char* backend, const char* implementation, Operands operands, int64_t flops = 0,
             const char* reason = "") {
    if (observing()) [[unlikely]]
      begin(ObservedEvent::Kind::kernel, name, backend, implementation, operands, flops, reason);
  }
  /// Opens the event of an operator.
  explicit EventScope(const char* name) {
    if (observing()) [[unlikely]]
      begin(ObservedEvent::Kind::op, name, "", "", {}, 0, "");
  }
  ~EventScope() {
    if (event_) [[unlikely]]
      end();
  }

 private:
  void begin(ObservedEvent::Kind kind, const char* name, const char* backend, const char* implementation,
             Operands operands, int64_t flops, const char* reason);
  void end() noexcept;
  ObservedEvent* event_ = nullptr;
  ObservedEvent* parent_ = nullptr;
};

}  // namespace gradus
