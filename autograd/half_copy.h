// Copies of parameters in the half type that autocast takes them in. An optimizer writes them with the parameters, so
// that the next step converts nothing.
//
// A copy is up to date until something else writes the parameter: eager operators count in its version, and recorded
// graphs, which write without counting, in replay_count(). Autocast converts then, and the optimizer's next step makes
// the copy anew. Recorded steps read copies only where RecordedHalfCopies brings them up to date before each replay.
#pragma once

#include <memory>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus {
struct AutogradMeta;
}

namespace gradus::amp::detail {

struct HalfCopy {
  DType dtype = DType::bf16;
  bool wanted = false;    // autocast has asked for it since the optimizer's last step
  bool recorded = false;  // the recording under way may read and write it
  bool read = false;      // it did
  Array numbers;          // undefined before the first step
  uint32_t version = 0;   // of the parameter, when both were the same
  uint64_t replays = 0;   // replay_count() then
};

/// The copy where it is up to date, else undefined. Where gradients are recorded, the optimizer's next step writes it.
Array half_copy_for_cast(const Tensor& parameter, DType dtype);
/// What the optimizer's step is to write: the copy, up to date, where autocast has asked for it since the last step.
/// Undefined where the copy is still read: by a graph that is kept for another backward pass.
Array half_copy_for_step(const Tensor& parameter);
/// After that.
void half_copy_written(const Tensor& parameter);

/// The leaf's gradient in the type that backward has made it in: the half type of a copy, which is float32 for whoever
/// looks at grad(), or grad() itself.
Array gradient_for_step(const Tensor& leaf);
/// Keeps a gradient of a half type as the leaf's.
void keep_half_gradient(AutogradMeta& meta, const Array& gradient);
/// Makes that float32. In a recording, one from before it is a ValueError: each replay would add to its first state.
void convert_half_gradient(AutogradMeta& meta);
void drop_half_gradient(AutogradMeta& meta);

/// The copies that a recorded step reads, which are up to date before and after each replay.
class RecordedHalfCopies {
 public:
  RecordedHalfCopies() = default;
  /// For the recording that follows, of a step that changes `parameters` and no others.
  explicit RecordedHalfCopies(std::vector<Tensor> parameters);
  /// For a step that is planned: as if the optimizer kept copies in this type of all of them. The caller puts back
  /// AutogradMeta::half_copy.
  RecordedHalfCopies(std::vector<Tensor> parameters, DType dtype);
  RecordedHalfCopies(RecordedHalfCopies&&) = default;
  RecordedHalfCopies& operator=(RecordedHalfCopies&&) = default;
  ~RecordedHalfCopies() { close(); }
  /// The recording's last work: converts what the step has changed behind the optimizer's back, as clamp_ does.
  void end_recording();
  /// Of the copies that were read.
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

  std::vector<Tensor> parameters_;
  std::vector<std::shared_ptr<HalfCopy>> copies_;  // of the parameters, or null; the recording knows their addresses
};

}  // namespace gradus::amp::detail
