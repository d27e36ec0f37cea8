#include <gradus/core/runtime/cudnn.h>

#include <atomic>

#include <gradus/core/registry.h>

namespace gradus::cudnn {
namespace {

std::atomic<bool> tf32_allowed = true, deterministic_only = true, benchmark_mode = false, small_too = false;
std::atomic<size_t> most_workspace = size_t{256} << 20;

}  // namespace

bool is_available() { return has_backend("cudnn"); }

bool allow_tf32() { return tf32_allowed; }
void set_allow_tf32(bool allow) { tf32_allowed = allow; }

bool deterministic() { return deterministic_only; }
void set_deterministic(bool only) { deterministic_only = only; }

bool benchmark() { return benchmark_mode; }
void set_benchmark(bool time) { benchmark_mode = time; }

bool small_convolutions() { return small_too; }
void set_small_convolutions(bool all) { small_too = all; }

size_t workspace_limit() { return most_workspace; }
void set_workspace_limit(size_t bytes) { most_workspace = bytes; }

}  // namespace gradus::cudnn
