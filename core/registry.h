// Which backends exist, and which of them is current on this thread for each device type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gradus/core/backend.h>

namespace gradus {

/// Adds a backend under its name(). The backends of gradus are added when the registry is first used; users may add
/// backends, too.
void register_backend(std::unique_ptr<Backend> backend);
/// Adds the runtime of a device type. A later runtime of the same type is ignored.
void register_runtime(std::unique_ptr<DeviceRuntime> runtime);
/// True if a runtime of this type was added. Unlike find_runtime, this does not first add the backends of gradus.
bool is_registered(DeviceType type);
/// Sets the text of the DeviceError that runtime(type) throws: the reason why devices of this type cannot be used on
/// this machine.
void explain_missing_runtime(DeviceType type, std::string reason);

/// The backend of that name. Throws a DeviceError that lists the existing backends.
Backend& backend(std::string_view name);
bool has_backend(std::string_view name);
/// Names in the order of registration.
std::vector<std::string> backend_names();

/// The backend that runs operators on `type` on this thread. Default: the last one registered for the type.
Backend& current_backend(DeviceType type);
/// Makes `name` current for its device type on this thread and the default of threads that never chose a backend.
void set_backend(std::string_view name);

/// Makes `name` current for its device type on this thread until the end of the scope.
class BackendGuard : ScopedValue<Backend*> {
 public:
  explicit BackendGuard(std::string_view name) : BackendGuard(backend(name)) {}
  /// Makes `chosen` current, which need not be a registered backend.
  explicit BackendGuard(Backend& chosen);
};

/// The backends of gradus, in the order in which they are added: the last one of a device type is its default.
enum class BuiltinBackend { naive, openmp, cuda, cudnn };

namespace detail {
/// Registers a function that is called when the registry is first used. The register.cpp of each backend calls this in
/// the initialiser of a global variable, so a program has the backends that it links. Always returns true.
bool add_builtin_backend(BuiltinBackend which, void (*add)());
}  // namespace detail

}  // namespace gradus
