#include <gradus/core/io/file_kind.h>

#include <algorithm>
#include <string_view>

#include <gradus/core/io/byte_order.h>

namespace gradus::io {
namespace {

using namespace std::string_view_literals;

constexpr const char* kConvertTorch =
    ", which may hold code. Convert it in Python:\n"
    "  import torch, safetensors.torch\n"
    "  state = torch.load(\"model.pt\", map_location=\"cpu\")  # a whole module: state = state.state_dict()\n"
    "  safetensors.torch.save_file({k: v.clone() for k, v in state.items()}, \"model.safetensors\")";
constexpr const char* kConvertImage =
    "; PNG and JPEG images are read. Convert it, for instance with ImageMagick or Pillow";
constexpr const char* kConvertHdf5 =
    ". Convert its weights in Python: h5py reads them, safetensors.numpy.save_file writes them";
constexpr const char* kConvertOnnx =
    ". Convert its weights in Python: onnx.numpy_helper.to_array reads each of graph.initializer, "
    "safetensors.numpy.save_file writes them";

struct Kind {
  size_t offset;
  std::string_view magic;
  const char *what, *remedy;
};
constexpr Kind kKinds[] = {
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file (Keras's weights)", kConvertHdf5},
    {0, "\x93NUMPY"sv, "an array of NumPy (npy)", ""},
    {0, "\x89PNG\r\n"sv, "a PNG image", ""},
    {0, "\xff\xd8\xff"sv, "a JPEG image", ""},
    {0, "GIF8"sv, "a GIF image", kConvertImage},
    {0, "II*\0"sv, "a TIFF image", kConvertImage},
    {0, "MM\0*"sv, "a TIFF image", kConvertImage},
    {0, "8BPS"sv, "a Photoshop image", kConvertImage},
    {0, "#?RADIANCE"sv, "a Radiance HDR image", kConvertImage},
    {0, "\0\0\0\x0cjP  "sv, "a JPEG 2000 image", kConvertImage},
    {0, "\0\0\0\x0cJXL "sv, "a JPEG XL image", kConvertImage},
    {0, "\xff\x0a"sv, "a JPEG XL image", kConvertImage},
    {8, "WEBP"sv, "a WebP image", kConvertImage},
    {4, "ftypavif"sv, "an AVIF image", kConvertImage},
    {4, "ftyphei"sv, "a HEIF image", kConvertImage},
    {4, "ftypmif1"sv, "a HEIF image", kConvertImage},
    {0, "\x1f\x8b"sv, "compressed by gzip", "; unpack it (gunzip)"},
    {0, "\xfd\x37zXZ\0"sv, "compressed by xz", "; unpack it (unxz)"},
    {0, "BZh"sv, "compressed by bzip2", "; unpack it (bunzip2)"},
    {0, "\x28\xb5\x2f\xfd"sv, "compressed by zstd", "; unpack it (unzstd)"},
    {0, "GGUF"sv, "a GGUF file (llama.cpp)", ""},
    {0, "version https://git-lfs"sv, "the pointer that Git LFS leaves for a file",
     "; fetch the file itself: git lfs pull"},
    {0, "<!DOCTYPE"sv, "a web page", "; the download went wrong"},
    {0, "<!doctype"sv, "a web page", "; the download went wrong"},
    {0, "<html"sv, "a web page", "; the download went wrong"},
    {257, "ustar"sv, "a tar archive", "; unpack it (tar -xf)"},
    {0, "BM"sv, "a BMP image", kConvertImage},
};

bool has(std::string_view text, size_t offset, std::string_view magic) {
  return text.size() >= offset + magic.size() && text.substr(offset, magic.size()) == magic;
}

// Two magic bytes alone are too common, so the fields of a BMP header that are always zero are checked too.
bool is_bmp(std::string_view text) { return has(text, 6, "\0\0\0\0"sv); }

// A Netpbm file begins with P1 … P7 and white space.
bool is_netpbm(std::string_view text) {
  return text.size() > 2 && text[0] == 'P' && text[1] >= '1' && text[1] <= '7' && (text[2] == '\n' || text[2] == ' ');
}

// A pickle of protocol 2 or later begins with the byte 0x80 and the number of its protocol.
bool is_pickle(std::string_view text) { return text.size() > 2 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5; }

// An ONNX file is a protocol-buffers message: field 1, the version of the format, is followed by field 2 (the producer)
// or 7 (the graph).
bool is_onnx(std::string_view text) {
  return text.size() > 2 && text[0] == '\x08' && text[1] >= 1 && text[1] <= 32 &&
         (text[2] == '\x12' || text[2] == '\x3a');
}

// Identifies a zip archive by the name of its first member.
std::string zip_kind(std::string_view text) {
  std::string_view name;
  if (text.size() > 30)
    name = text.substr(30, read_little_endian<uint16_t>(reinterpret_cast<const std::byte*>(&text[26])));
  if (name.ends_with(".npy"))
    return "an archive of NumPy (npz). In Python, numpy.load(file)[name] is one of its arrays, "
           "numpy.save and safetensors.numpy.save_file write it";
  const bool is_torch = name.ends_with("/data.pkl") || name.ends_with("/version") || name.ends_with("/byteorder") ||
                        name.ends_with("/.format_version") || name.find("/data/") != name.npos ||
                        name.find("/code/") != name.npos || name.ends_with("/constants.pkl");
  if (is_torch) return std::string("a file of torch.save") + kConvertTorch;
  return "a zip archive";
}

std::string kind_of(std::string_view text) {
  if (has(text, 0, "PK\3\4")) return zip_kind(text);
  if (has(text, 0, "PK\5\6")) return "an empty zip archive";
  if (is_pickle(text)) return std::string("a pickle of Python, as torch.save wrote before PyTorch 1.6") + kConvertTorch;
  for (const Kind& kind : kKinds)
    if (has(text, kind.offset, kind.magic) && (kind.magic != "BM" || is_bmp(text)))
      return std::string(kind.what) + kind.remedy;
  if (is_netpbm(text)) return std::string("a Netpbm image (PPM, PGM, PBM)") + kConvertImage;
  if (is_onnx(text)) return std::string("an ONNX model") + kConvertOnnx;
  if (has(text, 4, "\0\0\0\0{\""sv)) return "a safetensors file";
  return "";
}

}  // namespace

std::string described(ByteSpan start) {
  const std::string kind =
      kind_of({reinterpret_cast<const char*>(start.data()), std::min(start.size(), kFileKindBytes)});
  return kind.empty() ? "" : "; it is " + kind;
}

}  // namespace gradus::io
