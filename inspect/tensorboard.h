// SummaryWriter: writes curves, histograms, images and text for TensorBoard, like
// torch.utils.tensorboard.SummaryWriter.
//
//   training::SummaryWriter writer("runs/mnist");
//   writer.add_scalar("loss/train", loss, step);
//   writer.add_histogram("weights/fc1", net->fc1->weight, step);
//
// Then: tensorboard --logdir runs
//
// An event file is a sequence of TFRecords, each an Event message (tensorflow/core/util/event.proto):
//   length of the message (8 bytes), masked CRC-32C of the length (4 bytes), the message, masked CRC-32C of the message
//   (4 bytes). Numbers are little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <gradus/autograd/tensor.h>
#include <gradus/core/io/protobuf.h>
#include <gradus/core/platform/file.h>

namespace gradus::training {

struct SummaryWriterOptions {
  /// The step at which a resumed run continues. In older files of the folder, TensorBoard ignores the entries of this
  /// step and of later steps.
  std::optional<int64_t> purge_step;
  std::string filename_suffix;
};

/// Writes a new file, <log_dir>/events.out.tfevents.<seconds>.<host>.<process>.<number>. Throws an IoError if the file
/// cannot be written. All calls must come from one thread.
class SummaryWriter {
 public:
  explicit SummaryWriter(const std::string& log_dir, const SummaryWriterOptions& options = {});
  ~SummaryWriter();

  void add_scalar(const std::string& tag, double value, int64_t step);
  /// Adds the distribution of all elements over exponential buckets, as PyTorch does with bins='tensorflow'. Throws a
  /// ValueError if the tensor is empty or contains NaN or inf.
  void add_histogram(const std::string& tag, const Tensor& values, int64_t step);
  /// Adds an image (H, W), or (C, H, W) with 1, 3 or 4 channels. Its elements are bytes, or floating-point numbers from
  /// 0 (black) to 1 (white), which are clamped. Throws a ShapeError for other shapes.
  void add_image(const std::string& tag, const Tensor& image, int64_t step);
  /// Adds text in Markdown.
  void add_text(const std::string& tag, const std::string& text, int64_t step);

  /// Writes buffered entries to the file, so that TensorBoard sees them. The destructor calls flush() as well.
  void flush();
  const std::string& path() const { return path_; }

 private:
  void add_value(const io::ProtobufMessage& value, int64_t step);
  void write_event(const io::ProtobufMessage& event);

  std::string path_;
  io::AppendFile file_;
  std::string buffer_;
};

}  // namespace gradus::training
