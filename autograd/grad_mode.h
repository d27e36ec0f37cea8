// Grad mode, a setting of each thread: whether operators are recorded for differentiation.
#pragma once

#include <gradus/core/scope.h>

namespace gradus {
namespace detail {
inline thread_local constinit bool grad_enabled = true;
inline thread_local constinit bool inference_enabled = false;
}  // namespace detail

/// Says whether this thread records operators on tensors that require gradients.
struct GradMode {
  static bool is_enabled() { return detail::grad_enabled; }
  static void set_enabled(bool enabled) { detail::grad_enabled = enabled; }
};

/// Sets grad mode until the end of the scope.
class AutoGradMode : ScopedValue<bool> {
 public:
  explicit AutoGradMode(bool enabled) : ScopedValue(detail::grad_enabled, enabled) {}
};

/// Disables recording until the end of the scope (torch::NoGradGuard).
class NoGradGuard : public AutoGradMode {
 public:
  NoGradGuard() : AutoGradMode(false) {}
};

/// Like NoGradGuard; in addition, views made inside are not tracked. Outside the scope, tensors made inside can be
/// neither changed in place nor saved for backward (c10::InferenceMode). InferenceMode(false) suspends an enclosing
/// InferenceMode.
class InferenceMode {
 public:
  explicit InferenceMode(bool enabled = true) : grad_(!enabled), inference_(detail::inference_enabled, enabled) {}
  static bool is_enabled() { return detail::inference_enabled; }

 private:
  const AutoGradMode grad_;
  const ScopedValue<bool> inference_;
};

}  // namespace gradus
