// The only way to use several CPU threads. Work is split by shape, not by thread count, so results do not depend on the
// number of threads. The threads are either our own (parallel.cpp), started on first use and shared by all callers, or
// OpenMP's (parallel_openmp.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include <gradus/core/scope.h>

namespace gradus {

/// Number of cores that this process may run on (taskset restricts them), as of the first call.
int num_cores();

/// Maximum number of threads of one parallel_for call, including the caller. Starts as OMP_NUM_THREADS or num_cores().
int num_threads();
/// Throws a ValueError unless `threads` is positive.
void set_num_threads(int threads);

/// Which threads run parallel_for. Chunks, results and errors are the same for both.
enum class ThreadRuntime {
  pool,    ///< our own threads, not bound to cores
  openmp,  ///< OpenMP's, one team per calling thread; OMP_PROC_BIND, OMP_WAIT_POLICY etc. apply
};
/// "pool" or "openmp".
inline const char* name(ThreadRuntime runtime) { return runtime == ThreadRuntime::pool ? "pool" : "openmp"; }

/// Returns the pool, unless the environment variable GRADUS_THREAD_RUNTIME (pool, openmp) or set_thread_runtime selects
/// OpenMP. Even then the pool serves the calls that OpenMP cannot (docs/threads.md): calls concurrent with another
/// thread's call, calls in a child forked after OpenMP's threads had started, and, for a while, all calls after
/// OpenMP's threads have started late.
ThreadRuntime thread_runtime();
/// Throws a ValueError if this build has no OpenMP. init_process_group() selects the pool if the ranks of a machine
/// have more threads than cores; a later call overrides that.
void set_thread_runtime(ThreadRuntime runtime);
/// Whether this build has OpenMP (GRADUS_OPENMP).
bool has_openmp();

/// A non-owning reference to a callable void(int64_t begin, int64_t end) or void(int64_t begin, int64_t end, int slot).
class RangeFunction {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RangeFunction>)
      RangeFunction(F&& f)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, int64_t begin, int64_t end, [[maybe_unused]] int slot) {
          auto& function = *static_cast<std::remove_reference_t<F>*>(object);
          if constexpr (std::is_invocable_v<decltype(function), int64_t, int64_t, int>) function(begin, end, slot);
          else function(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end, int slot) const { call_(object_, begin, end, slot); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t, int);
};

/// Calls body(begin, end) for the chunks [0, grain), [grain, 2 grain), … of [0, count), several at a time. The chunks
/// depend on count and grain alone. The first exception of a chunk is rethrown here after all chunks have ended. Nested
/// calls run serially on the calling thread. Any number of threads may call concurrently; they share the helper
/// threads. The caller waits only for chunks that a helper has begun, so a helper that gets no core does not delay it;
/// with ThreadRuntime::openmp such a delay is possible, but rare. A forked child may call parallel_for too, unless it
/// was forked from within a chunk.
void parallel_for(int64_t count, int64_t grain, RangeFunction body);

/// The most threads that a parallel_for call would use now; 1 inside another call and on a thread with a SerialGuard.
int parallel_slots(int64_t count, int64_t grain);
/// parallel_for on at most `slots` threads. The body gets the number of its thread, slot < slots. Chunks of a call with
/// the same slot run one after the other, so kernels that need a buffer for each chunk in progress need `slots`
/// buffers.
void parallel_for(int64_t count, int64_t grain, int slots, RangeFunction body);

namespace detail {
inline thread_local constinit bool inside_chunk = false;
inline thread_local constinit bool serial_thread = false;
inline thread_local constinit bool skips_chunks = false;
/// True inside a chunk of parallel_for.
inline bool in_parallel_region() { return inside_chunk; }
}  // namespace detail

/// Makes parallel_for and the loops of the naive backend do nothing on this thread until the end of the scope. Kernels
/// then still allocate their scratch memory, which happens outside of loops, but compute nothing (graph/recorder.h).
class SkipChunksGuard : ScopedValue<bool> {
 public:
  SkipChunksGuard() : ScopedValue(detail::skips_chunks, true) {}
};

/// Makes parallel_for run serially on this thread until the end of the scope, with the same results. Workers of a data
/// loader use it to leave the other cores to the kernels.
class SerialGuard : ScopedValue<bool> {
 public:
  SerialGuard() : ScopedValue(detail::serial_thread, true) {}
};

}  // namespace gradus
