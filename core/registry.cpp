#include <gradus/core/registry.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace gradus {
namespace {

// What the registry knows about a device type.
struct TypeEntry {
  std::unique_ptr<DeviceRuntime> runtime;
  std::string missing_reason;
  std::atomic<Backend*> default_backend = nullptr;
};

struct Registry {
  TypeEntry& operator[](DeviceType type) { return types[static_cast<int>(type)]; }

  std::mutex mutex;
  std::vector<std::unique_ptr<Backend>> backends;
  TypeEntry types[kDeviceTypeCount];
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
  const std::string& reason = registry()[type].missing_reason;
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
  all[backend->device_type()].default_backend = backend.get();
  all.backends.push_back(std::move(backend));
}

void register_runtime(std::unique_ptr<DeviceRuntime> runtime) {
  TypeEntry& entry = registry()[runtime->type()];
  if (!entry.runtime) entry.runtime = std::move(runtime);
}

bool is_registered(DeviceType type) { return registry()[type].runtime != nullptr; }

void explain_missing_runtime(DeviceType type, std::string reason) {
  registry()[type].missing_reason = std::move(reason);
}

DeviceRuntime* find_runtime(DeviceType type) { return filled_registry()[type].runtime.get(); }

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
  if (Backend* chosen = thread_backend[static_cast<int>(type)]) [[likely]]
    return *chosen;
  Backend* fallback = filled_registry()[type].default_backend;
  GRADUS_CHECK(fallback, DeviceError, missing_reason(type));
  return *fallback;
}

void set_backend(std::string_view name) {
  Backend& chosen = backend(name);
  const DeviceType type = chosen.device_type();
  thread_backend[static_cast<int>(type)] = &chosen;
  registry()[type].default_backend = &chosen;
}

BackendGuard::BackendGuard(Backend& chosen)
    : ScopedValue(thread_backend[static_cast<int>(chosen.device_type())], &chosen) {}

}  // namespace gradus
