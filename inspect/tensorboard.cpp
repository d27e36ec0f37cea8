#include <gradus/inspect/tensorboard.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <gradus/autograd/grad_mode.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/crc32c.h>
#include <gradus/core/io/png.h>
#include <gradus/core/platform/process.h>

namespace gradus::training {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

// Field numbers from tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto and tensor.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum ValueField { kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9 };
constexpr int kSummaryValue = 1, kSessionStatus = 1, kSessionStart = 1;

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

io::ProtobufMessage event_now() { return io::ProtobufMessage().number(kWallTime, wall_time()); }

io::ProtobufMessage value_of(const std::string& tag) { return io::ProtobufMessage().text(kTag, tag); }

/// TFRecord's masked checksum. TFRecord masks CRCs because the CRC of data that contain unmasked CRCs is a weak
/// checksum.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = io::crc32c(std::as_bytes(std::span(bytes)));
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <class T>
void append_little_endian(std::string& out, T number) {
  std::byte bytes[sizeof(T)];
  io::write_little_endian(number, bytes);
  out.append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

/// The edges of TensorFlow's default buckets: 0, the numbers 1e-12, 1.1e-12, 1.21e-12, … below 1e20, and their
/// negatives.
const std::vector<double>& bucket_edges() {
  static const std::vector<double> edges = [] {
    std::vector<double> positive;
    for (double edge = 1e-12; edge < 1e20; edge *= 1.1) positive.push_back(edge);
    std::vector<double> all(positive.rbegin(), positive.rend());
    for (double& edge : all) edge = -edge;
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
  }();
  return edges;
}

io::ProtobufMessage histogram(const Tensor& values, const std::string& tag) {
  const NoGradGuard no_grad;
  const Tensor numbers = values.detach().to(Device(), DType::f64).contiguous();
  const double* const data = numbers.data_ptr<double>();
  const int64_t count = numbers.numel();
  GRADUS_CHECK(count > 0, ValueError, "histogram '", tag, "': there are no values");
  GRADUS_CHECK(std::all_of(data, data + count, [](double x) { return std::isfinite(x); }), ValueError, "histogram '",
               tag, "': values must be finite, and there is a NaN or inf");

  const std::vector<double>& edges = bucket_edges();
  std::vector<double> counts(edges.size() - 1);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += data[i];
    squares += data[i] * data[i];
    // A bucket includes its lower edge but not its upper edge. The last bucket also includes all larger values.
    const auto above = std::upper_bound(edges.begin(), edges.end(), data[i]) - edges.begin();
    ++counts[static_cast<size_t>(std::clamp<std::ptrdiff_t>(above - 1, 0, std::ssize(counts) - 1))];
  }
  // The message contains one empty bucket and then all buckets from the first to the last that is not empty.
  const auto used = [](double number) { return number > 0; };
  const auto first = std::ranges::find_if(counts, used) - counts.begin();
  const auto last = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), used);  // one past the last
  std::vector<double> limits(edges.begin() + first, edges.begin() + last + 1);
  std::vector<double> inside{0};
  inside.insert(inside.end(), counts.begin() + first, counts.begin() + last);
  const auto [least, greatest] = std::minmax_element(data, data + count);
  io::ProtobufMessage message;
  message.number(1, *least).number(2, *greatest).number(3, static_cast<double>(count));
  return message.number(4, sum).number(5, squares).numbers(6, limits).numbers(7, inside);
}

/// The pixels of an image (C, H, W) row by row, with a byte for each channel of a pixel.
io::Bytes pixels_of(const Tensor& image) {
  const NoGradGuard no_grad;
  Tensor pixels = image.detach().cpu();
  if (pixels.is_floating_point()) pixels = (pixels.to(kFloat).clamp(0, 1) * 255 + 0.5).to(kByte);
  pixels = pixels.permute({1, 2, 0}).contiguous();  // (H, W, C)
  const std::byte* const bytes = static_cast<const std::byte*>(pixels.data_ptr());
  return {bytes, bytes + pixels.numel()};
}

}  // namespace

SummaryWriter::SummaryWriter(const std::string& log_dir, const SummaryWriterOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(log_dir, error);
  GRADUS_CHECK(!error, IoError, "cannot make the folder '", log_dir, "': ", error.message());
  const std::string prefix = log_dir + "/events.out.tfevents." + std::to_string(static_cast<int64_t>(wall_time())) +
                             "." + platform::host_name() + "." + std::to_string(platform::process_id()) + ".";
  int number = 0;
  do path_ = prefix + std::to_string(number++) + options.filename_suffix;
  while (!file_.create(path_));
  write_event(event_now().text(kFileVersion, "brain.Event:2"));
  const auto start = io::ProtobufMessage().integer(kSessionStatus, kSessionStart);
  if (options.purge_step) write_event(event_now().integer(kStep, *options.purge_step).message(kSessionLog, start));
  flush();
}

SummaryWriter::~SummaryWriter() {
  try {
    flush();
  } catch (const std::exception&) {  // destructors must not throw; a program that needs to see errors calls flush()
  }
}

void SummaryWriter::add_scalar(const std::string& tag, double value, int64_t step) {
  add_value(value_of(tag).number(kSimpleValue, static_cast<float>(value)), step);
}

void SummaryWriter::add_histogram(const std::string& tag, const Tensor& values, int64_t step) {
  add_value(value_of(tag).message(kHistogram, histogram(values, tag)), step);
}

void SummaryWriter::add_image(const std::string& tag, const Tensor& image, int64_t step) {
  const Tensor planes = image.dim() == 2 ? image.unsqueeze(0) : image;
  GRADUS_CHECK(planes.dim() == 3 && (planes.size(0) == 1 || planes.size(0) == 3 || planes.size(0) == 4), ShapeError,
               "image '", tag, "' must have shape (C, H, W) with 1, 3 or 4 channels, or (H, W), has ", image.sizes());
  GRADUS_CHECK(planes.is_floating_point() || planes.dtype() == kByte, DTypeError, "image '", tag,
               "' must be floating or of bytes, is ", image.dtype());
  const int64_t channels = planes.size(0), height = planes.size(1), width = planes.size(2);
  const io::Bytes png = io::encode_png(pixels_of(planes), height, width, channels);
  io::ProtobufMessage picture;
  picture.integer(1, height).integer(2, width).integer(3, channels);  // 3: colour space, equal to the channel count
  picture.text(4, {reinterpret_cast<const char*>(png.data()), png.size()});
  add_value(value_of(tag).message(kImage, picture), step);
}

void SummaryWriter::add_text(const std::string& tag, const std::string& text, int64_t step) {
  constexpr int kString = 7;                                                                 // DT_STRING
  const auto shape = io::ProtobufMessage().message(2, io::ProtobufMessage().integer(1, 1));  // (1,)
  const auto strings = io::ProtobufMessage().integer(1, kString).message(2, shape).text(8, text);
  const auto metadata = io::ProtobufMessage().message(1, io::ProtobufMessage().text(1, "text"));  // plugin name
  add_value(value_of(tag + "/text_summary").message(kTensor, strings).message(kMetadata, metadata), step);
}

void SummaryWriter::add_value(const io::ProtobufMessage& value, int64_t step) {
  const auto summary = io::ProtobufMessage().message(kSummaryValue, value);
  write_event(event_now().integer(kStep, step).message(kSummary, summary));
}

void SummaryWriter::write_event(const io::ProtobufMessage& event) {
  std::string length;
  append_little_endian(length, static_cast<uint64_t>(event.bytes().size()));
  buffer_ += length;
  append_little_endian(buffer_, masked_crc(length));
  buffer_ += event.bytes();
  append_little_endian(buffer_, masked_crc(event.bytes()));
  if (buffer_.size() >= kBufferBytes) flush();
}

void SummaryWriter::flush() { file_.append(buffer_); }

}  // namespace gradus::training
