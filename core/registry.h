// Which backends exist, and which one is current on this thread for each device type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gradus/core/backend.h>

namespace gradus {

/// Adds a backend under its name(). Called by backends/register.cpp; users may add their own.
void register_backend(std::unique_ptr<Backend> backend);
/// Adds the runtime of a device type. The first one stays.
void register_runtime(std::unique_ptr<DeviceRuntime> runtime);
/// Says why this build's runtime of `type` cannot run here: the text of the DeviceError that asking for it throws.
void explain_missing_runtime(DeviceType type, std::string reason);

/// The backend of that name; DeviceError lists those that exist.
Backend& backend(std::string_view name);
bool has_backend(std::string_view name);
/// Names in order of registration.
std::vector<std::string> backend_names();

/// The backend that runs operators on `type` in this thread. Default: the one registered last for the type.
Backend& current_backend(DeviceType type);
/// Makes `name` current for its device type on this thread and the default of threads that never chose.
void set_backend(std::string_view name);

/// Makes `name` current for its device type on this thread until the end of the scope.
class BackendGuard {
 public:
  explicit BackendGuard(std::string_view name) : BackendGuard(backend(name)) {}
  /// The same for one that may be none of the registered ones.
  explicit BackendGuard(Backend& chosen);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  DeviceType type_;
  Backend* previous_;
};

namespace detail {
/// Defined in backends/register.cpp: registers what this build has. Called once, on first use of the registry.
void register_builtin_backends();
}  // namespace detail

}  // namespace gradus
