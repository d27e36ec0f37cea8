#include <gradus/core/registry.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace gradus {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Backend>> backends;
  std::unique_ptr<DeviceRuntime> runtimes[kDeviceTypeCount];
  std::string missing_reason[kDeviceTypeCount];
  std::atomic<Backend*> default_backend[kDeviceTypeCount] = {};
};

// Never destroyed, because storages in static variables use it to free themselves at exit.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

/// The functions that add the backends of gradus, indexed by BuiltinBackend. Null if the program does not link the
/// backend, and after the backend was added.
using AddBackend = void (*)();
constinit AddBackend builtin_backends[4] = {};

void add_builtin_backends() {
  register_runtime(make_cpu_runtime());
  for (AddBackend& add : builtin_backends)
    if (add != nullptr) {
      add();  // if this throws, the next use of the registry calls it again
      add = nullptr;
    }
}

Registry& filled_registry() {
  [[maybe_unused]] static const bool once = (add_builtin_backends(), true);
  return registry();
}

thread_local Backend* thread_backend[kDeviceTypeCount] = {};

constexpr const char* kNoCuda =
    "this build has no CUDA support: configure with -DGRADUS_CUDA=ON on a machine with the CUDA toolkit, or use "
    "--device cpu";

std::string missing_reason(DeviceType type) {
  const std::string& reason = registry().missing_reason[static_cast<int>(type)];
  return reason.empty() ? kNoCuda : reason;
}

}  // namespace

bool detail::add_builtin_backend(BuiltinBackend which, void (*add)()) {
  builtin_backends[static_cast<int>(which)] = add;
  return true;
}

void register_backend(std::unique_ptr<Backend> backend) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  all.default_backend[static_cast<int>(backend->device_type())] = backend.get();
  all.backends.push_back(std::move(backend));
}

void register_runtime(std::unique_ptr<DeviceRuntime> runtime) {
  auto& slot = registry().runtimes[static_cast<int>(runtime->type())];
  if (!slot) slot = std::move(runtime);
}

bool is_registered(DeviceType type) { return registry().runtimes[static_cast<int>(type)] != nullptr; }

void explain_missing_runtime(DeviceType type, std::string reason) {
  registry().missing_reason[static_cast<int>(type)] = std::move(reason);
}

DeviceRuntime* find_runtime(DeviceType type) { return filled_registry().runtimes[static_cast<int>(type)].get(); }

DeviceRuntime& runtime(DeviceType type) {
  DeviceRuntime* found = find_runtime(type);
  GRADUS_CHECK(found, DeviceError, missing_reason(type));
  return *found;
}

Backend& backend(std::string_view name) {
  Registry& all = filled_registry();
  std::lock_guard lock(all.mutex);
  std::string known;
  for (const auto& candidate : all.backends) {
    if (candidate->name() == name) return *candidate;
    known += (known.empty() ? "" : ", ") + std::string(candidate->name());
  }
  GRADUS_FAIL(DeviceError, "no backend '", name, "' in this build; there are: ", known);
}

bool has_backend(std::string_view name) {
  const std::vector<std::string> names = backend_names();
  return std::ranges::find(names, name) != names.end();
}

std::vector<std::string> backend_names() {
  Registry& all = filled_registry();
  std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& candidate : all.backends) names.emplace_back(candidate->name());
  return names;
}

Backend& current_backend(DeviceType type) {
  const int slot = static_cast<int>(type);
  if (Backend* chosen = thread_backend[slot]) [[likely]]
    return *chosen;
  Backend* fallback = filled_registry().default_backend[slot];
  GRADUS_CHECK(fallback, DeviceError, missing_reason(type));
  return *fallback;
}

void set_backend(std::string_view name) {
  Backend& chosen = backend(name);
  const int slot = static_cast<int>(chosen.device_type());
  thread_backend[slot] = &chosen;
  registry().default_backend[slot] = &chosen;
}

BackendGuard::BackendGuard(Backend& chosen)
    : ScopedValue(thread_backend[static_cast<int>(chosen.device_type())], &chosen) {}

}  // namespace gradus
