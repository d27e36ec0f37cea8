// Whether operators record how to differentiate them. Per thread.
#pragma once

namespace gradus {

namespace detail {
inline thread_local constinit bool grad_enabled = true;
inline thread_local constinit bool inference_enabled = false;
}  // namespace detail

/// True where operators on tensors that require gradients are recorded.
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

/// Records nothing until the end of the scope (torch::NoGradGuard).
class NoGradGuard : public AutoGradMode {
 public:
  NoGradGuard() : AutoGradMode(false) {}
};

/// Like NoGradGuard, and tensors made inside keep no trace of views; outside they can neither be written in place nor
/// be kept for backward (c10::InferenceMode). InferenceMode(false) takes back both for its scope.
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
