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

// Reads the next `bytes` bytes, or fewer at the end of the data. Allocates memory little by little as data arrive,
// because `bytes` comes from the header of a file that may be damaged, and may be far too large.
template <class Read>
io::Bytes read_growing(Read& read, size_t bytes) {
  constexpr size_t kFirst = size_t{1} << 20;
  io::Bytes data;
  while (data.size() < bytes) {
    const size_t had = data.size(), more = std::min(bytes - had, std::max(had, kFirst));
    data.resize(had + more);
    data.resize(had + read(data.data() + had, more));
    if (data.size() < had + more) break;
  }
  return data;
}

// Parses the array of an IDX file. read(to, bytes) reads the next bytes and returns their number; the whole file has at
// most `most_bytes`. is_size(bytes) is called with the size that the header implies. It returns true if memory of this
// size may be allocated before the data are read, and throws if the file cannot have this size.
template <class Read, class IsSize>
Array parse(Read read, uint64_t most_bytes, const IsSize& is_size, const std::string& name) {
  std::byte header[4 + 4 * kMaxDims];
  GRADUS_CHECK(read(header, 4) == 4 && header[0] == std::byte{0} && header[1] == std::byte{0}, IoError, "'", name,
               "' is not an IDX file: it does not begin with two zero bytes and a type", io::described(header));
  const DType dtype = dtype_of_code(static_cast<int>(header[2]), name);
  const size_t ndim = static_cast<size_t>(header[3]);
  GRADUS_CHECK(ndim <= kMaxDims, IoError, "'", name, "' has ", ndim, " dimensions, at most ", kMaxDims,
               " are supported");
  GRADUS_CHECK(read(header + 4, 4 * ndim) == 4 * ndim, IoError, "'", name, "' is truncated in its header");

  Shape shape;
  for (size_t i = 0; i < ndim; ++i) shape.push_back(io::read_big_endian<uint32_t>(&header[4 + 4 * i]));
  const std::optional<uint64_t> wanted = io::byte_count(shape, dtype);
  GRADUS_CHECK(wanted, IoError, "'", name, "': shape ", shape, " is too large for this machine");
  const uint64_t data_bytes = *wanted;
  GRADUS_CHECK(data_bytes <= most_bytes, IoError, "'", name, "': shape ", shape, " of ", dtype, " needs ", data_bytes,
               " bytes of data, the file has at most ", most_bytes);

  const bool is_known = is_size(4 + 4 * ndim + data_bytes);
  io::Bytes data;
  if (!is_known) data = read_growing(read, data_bytes);
  const Array array = !is_known && data.size() < data_bytes ? Array() : Array::empty(shape, dtype);
  const size_t got = is_known ? read(array.data(), data_bytes) : data.size();
  GRADUS_CHECK(got == data_bytes, IoError, "'", name, "': shape ", shape, " of ", dtype, " needs ", data_bytes,
               " bytes of data, the file has ", got);
  std::ranges::copy(data, static_cast<std::byte*>(array.data()));
  std::byte more;
  GRADUS_CHECK(read(&more, 1) == 0, IoError, "'", name, "': shape ", shape, " of ", dtype, " needs ", data_bytes,
               " bytes of data, the file has more");
  io::convert_byte_order(array.data(), static_cast<size_t>(array.numel()), size_of(dtype), std::endian::big);
  return array;
}

}  // namespace

Array parse_idx(io::ByteSpan bytes, const std::string& name) {
  const auto read = [rest = bytes](void* to, size_t count) mutable {
    count = std::min(count, rest.size());
    std::copy_n(rest.begin(), count, static_cast<std::byte*>(to));
    rest = rest.subspan(count);
    return count;
  };
  return parse(
      read, bytes.size(), [](uint64_t) { return true; }, name);
}

Array read_idx(const std::string& path) {
  const io::Bytes bytes = io::read_file(path);
  if (!io::is_gzip(bytes)) return parse_idx(bytes, path);
  io::GzipReader reader(bytes, path);
  constexpr uint64_t kSmall = uint64_t{1} << 24;  // up to this size, memory is allocated without checking the trailer
  const auto is_size = [&](uint64_t wanted) {
    if (wanted <= kSmall) return true;
    const std::optional<uint32_t> size = reader.size_in_trailer();
    GRADUS_CHECK(!size || *size == static_cast<uint32_t>(wanted), IoError, "'", path, "' announces ", wanted,
                 " bytes, but its gzip trailer says ", *size, " (modulo 2^32): it is damaged or truncated");
    return size.has_value();
  };
  return parse([&](void* to, size_t count) { return reader.read(to, count); },
               std::min(io::kReadLimit, uint64_t{io::kMostDeflateRatio} * bytes.size()), is_size, path);
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
