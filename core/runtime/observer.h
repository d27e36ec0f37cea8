// Observers see every operator and every kernel: profiler, trace, FLOP counts, "which backend really ran this".
// With no observer attached the cost is one predictable branch.
#pragma once

#include <atomic>
#include <initializer_list>

#include <gradus/core/backend.h>

namespace gradus {

/// One operator (opened by OpScope) or one kernel (opened by the backend that runs it). Events nest; a leaf holds no
/// other event, and totals count leaves only.
struct ObservedEvent {
  enum class Kind : uint8_t { op, kernel } kind = Kind::op;
  const char* name = "";            ///< "matmul"
  const char* backend = "";         ///< kernels: "openmp"
  const char* implementation = "";  ///< kernels: "blocked_avx512"
  const char* reason = "";          ///< kernels: why that implementation; "" where there is no other
  int shape_count = 0;
  Shape shapes[4];                ///< the first operands
  int64_t bytes = 0;              ///< kernels: read and written at least
  int64_t flops = 0;              ///< kernels: floating-point operations
  double start = 0, seconds = 0;  ///< host time since the first look at this clock; cuda work is asynchronous
  int depth = 0;
  bool leaf = true;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_begin(const ObservedEvent&) {}
  virtual void on_end(const ObservedEvent&) {}
};

/// Attaches an observer to the whole process; the caller keeps it alive until it is removed. Calls come from any
/// thread.
void add_observer(Observer* observer);
void remove_observer(Observer* observer);

/// The innermost event that is open on this thread; null where none is, or nobody observes.
const ObservedEvent* innermost_event();

/// Now, on the clock of ObservedEvent::start.
double observer_time();

namespace detail {
inline std::atomic<int> observer_count{0};
}
inline bool observing() { return detail::observer_count.load(std::memory_order_relaxed) != 0; }

/// Opens an event for its lifetime when somebody observes. Backends open one around each kernel, naming what it reads
/// and writes:
///   EventScope kernel("matmul", "openmp", "blocked_avx512", {&a, &b, &y}, 2 * M * N * K);
class EventScope {
 public:
  /// A view of either kind, looked at when somebody observes; an absent one has no shape.
  struct Operand {
    const StridedLayout* layout;
    const void* const* data;
    template <class AnyView>
    Operand(const AnyView* view) : layout(view), data(&view->data) {}  // NOLINT(google-explicit-constructor)
  };
  using Operands = std::initializer_list<Operand>;
  /// A kernel. `reason` says which clause of the family's select() chose the implementation.
  EventScope(const char* name, const char* backend, const char* implementation, Operands operands, int64_t flops = 0,
             const char* reason = "") {
    if (observing()) [[unlikely]]
      begin(ObservedEvent::Kind::kernel, name, backend, implementation, operands, flops, reason);
  }
  /// An operator.
  explicit EventScope(const char* name) {
    if (observing()) [[unlikely]]
      begin(ObservedEvent::Kind::op, name, "", "", {}, 0, "");
  }
  ~EventScope() {
    if (event_) [[unlikely]]
      end();
  }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;

 private:
  void begin(ObservedEvent::Kind kind, const char* name, const char* backend, const char* implementation,
             Operands operands, int64_t flops, const char* reason);
  void end() noexcept;
  ObservedEvent* event_ = nullptr;
  ObservedEvent* parent_ = nullptr;
};

}  // namespace gradus
