// Copies of parameters in the half type to which autocast casts them. The optimizer writes a copy together with its
// parameter, so that the next step needs no conversion.
//
// A copy is current until something other than the optimizer writes the parameter. Eager operators increase the
// parameter's version; a replayed step (training/replayed_step.h) writes without doing so and increases replay_count()
// instead. If the copy is out of date, autocast converts the parameter, and the optimizer's next step renews the copy.
// Recorded steps read copies only under a RecordedHalfCopies, which renews outdated copies before each replay.
#pragma once

#include <memory>
#include <vector>

#include <gradus/autograd/node.h>

namespace gradus::amp::detail {

struct HalfCopy {
  DType dtype = DType::bf16;
  bool wanted = false;    // autocast has asked for it since the optimizer's last step
  bool recorded = false;  // the current recording may read and write it
  bool read = false;      // the current recording has read it
  Array numbers;          // undefined before the first step
  uint32_t version = 0;   // the parameter's version when the copy was current
  uint64_t replays = 0;   // replay_count() when the copy was current
};

/// Returns the copy if it is current, else an undefined array. In grad mode, also requests that the optimizer's next
/// step write the copy.
Array half_copy_for_cast(const Tensor& parameter, DType dtype);
/// Called by the optimizer's step. If autocast has asked for the copy since the last step, returns the copy, brought up
/// to date, and the step must write it together with the parameter. Returns an undefined array otherwise, or if
/// something still refers to the copy, such as a graph retained for another backward pass.
Array half_copy_for_step(const Tensor& parameter);
/// Marks the copy as current after the optimizer's step.
void half_copy_written(const Tensor& parameter);

/// Makes `copy`, which may be null, the parameter's copy and returns the previous one.
std::shared_ptr<HalfCopy> exchange_half_copy(const Tensor& parameter, std::shared_ptr<HalfCopy> copy);

/// The leaf's gradient in the type that backward produced: a half type if autocast read a half copy (grad() would
/// convert it to float32), else grad() itself.
Array gradient_for_step(const Tensor& leaf);
/// Stores a gradient of a half type for the leaf.
void keep_half_gradient(AutogradMeta& meta, const Array& gradient);
bool has_half_gradient(const AutogradMeta& meta);
/// Converts the half gradient to float32 and stores it as the gradient. While a step is recorded, a half gradient that
/// was stored before the recording is a ValueError, because each replay would add to that same gradient.
void convert_stored_half_gradient(AutogradMeta& meta);
/// convert_stored_half_gradient() if there is a half gradient.
inline void convert_half_gradient(AutogradMeta& meta) {
  if (meta.features.any() && has_half_gradient(meta)) [[unlikely]]
    convert_stored_half_gradient(meta);
}
void drop_half_gradient(AutogradMeta& meta);

/// Owns the half copies that a recorded step reads, and keeps them up to date before and after each replay.
class RecordedHalfCopies {
 public:
  RecordedHalfCopies() = default;
  /// Begins the recording of a step that changes only `parameters`.
  explicit RecordedHalfCopies(TensorList parameters);
  /// Begins the recording of a step for a memory plan, as if the optimizer kept copies of all float32 parameters in
  /// `dtype`. Afterwards the caller must restore the old copies of the parameters with exchange_half_copy().
  RecordedHalfCopies(TensorList parameters, DType dtype);
  RecordedHalfCopies(RecordedHalfCopies&&) = default;
  RecordedHalfCopies& operator=(RecordedHalfCopies&&) = default;
  ~RecordedHalfCopies() { close(); }
  /// Ends the recording. Drops the copies that the step did not read, and renews those of parameters that the step
  /// changed other than through the optimizer, for example by clamp_.
  void end_recording();
  /// Total size of the copies that were read.
  int64_t bytes() const;
  template <class F>
  void replay(const F& run) const {
    refresh();
    const UncountedReplays these_are_known;
    run();
    replayed();
  }

 private:
  void refresh() const;
  void replayed() const;
  void close() const;

  struct Copy {
    Tensor parameter;
    std::shared_ptr<HalfCopy> half;  // the recorded kernels read and write its memory
  };
  TensorList parameters_;
  std::vector<Copy> copies_;
};

}  // namespace gradus::amp::detail
