#include <gradus/data/datasets/mnist.h>

#include <algorithm>
#include <optional>

#include <gradus/core/io/array_bytes.h>
#include <gradus/core/io/byte_order.h>
#include <gradus/core/io/file_kind.h>
#include <gradus/core/io/gzip.h>

namespace gradus::data {
namespace {

DType dtype_of_code(int code, const std::string& name) {
  switch (code) {
    case 0x08: return DType::u8;
    case 0x0C: return DType::i32;
    case 0x0D: return DType::f32;
    case 0x0E: return DType::f64;
  }
  GRADUS_FAIL(IoError, "'", name, "' has IDX element type ", code,
              "; known are 8 (unsigned byte), 12 (int32), 13 (float32) and 14 (float64)");
}

struct IdxHeader {
  DType dtype;
  Shape shape;
  size_t size;          // of the header itself
  uint64_t data_bytes;  // that the elements need
};

// Parses the header at the beginning of a file, of which `start` may have only the first bytes.
IdxHeader parse_header(io::ByteSpan start, const std::string& name) {
  const bool has_type = start.size() >= 4 && start[0] == std::byte{0} && start[1] == std::byte{0};
  GRADUS_CHECK(has_type, IoError, "'", name, "' is not an IDX file: it does not begin with two zero bytes and a type",
               io::described(start));
  const DType dtype = dtype_of_code(static_cast<int>(start[2]), name);
  const size_t ndim = static_cast<size_t>(start[3]), size = 4 + 4 * ndim;
  GRADUS_CHECK(ndim <= kMaxDims, IoError, "'", name, "' has ", ndim, " dimensions, at most ", kMaxDims,
               " are supported");
  GRADUS_CHECK(size <= start.size(), IoError, "'", name, "' is truncated in its header");
  Shape shape;
  for (size_t i = 4; i < size; i += 4) shape.push_back(io::read_big_endian<uint32_t>(&start[i]));
  const std::optional<uint64_t> data_bytes = io::byte_count(shape, dtype);
  GRADUS_CHECK(data_bytes, IoError, "'", name, "': shape ", shape, " is too large for this machine");
  return {dtype, shape, size, *data_bytes};
}

// Decompresses a gzipped file, but no more than one byte beyond the size that its header implies.
io::Bytes unpacked(io::ByteSpan bytes, const std::string& name) {
  io::GzipReader reader(bytes, name);
  io::Bytes data(4 + 4 * kMaxDims);
  data.resize(reader.read(data.data(), data.size()));
  const IdxHeader header = parse_header(data, name);
  const uint64_t wanted = header.size + header.data_bytes;
  const uint64_t most = std::min(io::kReadLimit, uint64_t{io::kMostDeflateRatio} * bytes.size());
  GRADUS_CHECK(header.data_bytes <= most, IoError, "'", name, "': shape ", header.shape, " of ", header.dtype,
               " needs ", header.data_bytes, " bytes of data, the file has at most ", most);
  constexpr uint64_t kSmall = uint64_t{1} << 24;  // up to this size, the trailer is not checked in advance
  const std::optional<uint32_t> size = wanted > kSmall ? reader.size_in_trailer() : std::nullopt;
  GRADUS_CHECK(!size || *size == static_cast<uint32_t>(wanted), IoError, "'", name, "' announces ", wanted,
               " bytes, but its gzip trailer says ", *size, " (modulo 2^32): it is damaged or truncated");
  // The memory grows as data arrive, because the header of a damaged file may announce far too many.
  for (size_t had = 0; had != data.size() && data.size() <= wanted;) {
    had = data.size();
    data.resize(std::min<uint64_t>(wanted + 1, 2 * had + (size_t{1} << 20)));
    data.resize(had + reader.read(&data[had], data.size() - had));
  }
  return data;
}

}  // namespace

Array parse_idx(io::ByteSpan bytes, const std::string& name) {
  const IdxHeader header = parse_header(bytes, name);
  const io::ByteSpan data = bytes.subspan(header.size);
  const std::string size = data.size() > header.data_bytes ? "more" : std::to_string(data.size());
  GRADUS_CHECK(data.size() == header.data_bytes, IoError, "'", name, "': shape ", header.shape, " of ", header.dtype,
               " needs ", header.data_bytes, " bytes of data, the file has ", size);
  const Array array = Array::empty(header.shape, header.dtype);
  std::ranges::copy(data, static_cast<std::byte*>(array.data()));
  io::convert_byte_order(array.data(), static_cast<size_t>(array.numel()), size_of(header.dtype), std::endian::big);
  return array;
}

Array read_idx(const std::string& path) {
  io::Bytes bytes = io::read_file(path);
  if (io::is_gzip(bytes)) bytes = unpacked(bytes, path);
  return parse_idx(bytes, path);
}

namespace datasets {
namespace {

struct Files {
  const char *images, *labels;
};
constexpr Files kTrainFiles = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
constexpr Files kTestFiles = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// The subfolders in which torchvision or users usually put the files.
const std::vector<std::string> kSubfolders = {"mnist", "MNIST/raw", "raw", "mnist/raw", "MNIST"};

// Returns the path of the file `name` in `folder`. The file may end in .gz and may have a dot instead of the dash
// before "idx". Returns "" if there is none.
std::string find_file(const std::string& folder, const std::string& name) {
  std::string dotted = name;
  dotted[name.find("-idx")] = '.';
  for (const std::string& stem : {name, dotted})
    for (const char* ending : {"", ".gz"}) {
      const std::string path = folder + "/" + stem + ending;
      if (detail::is_file(path)) return path;
    }
  return "";
}

bool holds(const std::string& folder, const Files& files) {
  return !find_file(folder, files.images).empty() && !find_file(folder, files.labels).empty();
}

ImageDataset load(const std::string& root, ImageDataset::Mode mode) {
  const Files& files = mode == ImageDataset::kTrain ? kTrainFiles : kTestFiles;
  const std::string folder =
      detail::find_below(root, kSubfolders, [&](const std::string& place) { return holds(place, files); });
  GRADUS_CHECK(!folder.empty(), IoError, "no MNIST files '", root, "/", files.images, "' and '", files.labels,
               "', plain or with .gz, nor in the subfolders mnist, raw and MNIST/raw");
  const std::string name = find_file(folder, files.images);
  const Array images = read_idx(name);
  GRADUS_CHECK(images.dtype() == DType::u8 && images.ndim() == 3 && images.size(1) == 28 && images.size(2) == 28,
               IoError, "'", name, "': MNIST images are bytes of shape (N, 28, 28), got ", images.dtype(), " of shape ",
               images.shape());
  return ImageDataset(images.unsqueeze(1), read_idx(find_file(folder, files.labels)), 10, mode, name);
}

}  // namespace

MNIST::MNIST(const std::string& root, Mode mode) : ImageDataset(load(root, mode)) {}

std::string find_mnist(const std::string& directory) {
  return detail::find_folder(directory, kSubfolders, [](const std::string& folder) {
    return holds(folder, kTrainFiles) && holds(folder, kTestFiles);
  });
}

}  // namespace datasets
}  // namespace gradus::data
