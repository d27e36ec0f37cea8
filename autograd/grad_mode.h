// Grad mode, a setting of each thread: whether operators are recorded for differentiation.
#pragma once

namespace gradus {

namespace detail {
inline thread_local constinit bool grad_enabled = true;
inline thread_local constinit bool inference_enabled = false;
}  // namespace detail

/// Returns true if operators on tensors that require gradients are recorded.
struct GradMode {
  static bool is_enabled() { return detail::grad_enabled; }
  static void set_enabled(bool enabled) { detail::grad_enabled = enabled; }
};

/// Sets grad mode until the end of the scope.
class AutoGradMode {
 public:
  explicit AutoGradMode(bool enabled) : previous_(detail::grad_enabled) { detail::grad_enabled = enabled; }
  ~AutoGradMode() { detail::grad_enabled = previous_; }
  AutoGradMode(const AutoGradMode&) = delete;
  AutoGradMode& operator=(const AutoGradMode&) = delete;

 private:
  bool previous_;
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
  explicit InferenceMode(bool enabled = true) : grad_(!enabled), previous_(detail::inference_enabled) {
    detail::inference_enabled = enabled;
  }
  ~InferenceMode() { detail::inference_enabled = previous_; }
  static bool is_enabled() { return detail::inference_enabled; }

 private:
  AutoGradMode grad_;
  bool previous_;
};

}  // namespace gradus
