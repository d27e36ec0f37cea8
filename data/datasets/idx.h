// IDX, the format of the MNIST files: http://yann.lecun.com/exdb/mnist/
//
//   2 bytes   zero
//   1 byte    element type: 0x08 unsigned byte, 0x0C int32, 0x0D float32, 0x0E float64
//   1 byte    number of dimensions
//   4 bytes   for each dimension its size, big-endian
//   the rest  the elements, row-major and big-endian
#pragma once

#include <string>

#include <gradus/core/array/array.h>
#include <gradus/core/platform/file.h>

namespace gradus::data {

/// Reads the array of an IDX file, plain or gzipped. Decompresses at most the size that the header states, and at most
/// 2 GiB. Any other content is an IoError that names the file.
Array read_idx(const std::string& path);
/// Parses the bytes of an uncompressed file; `name` names it in messages.
Array parse_idx(io::ByteSpan bytes, const std::string& name);

}  // namespace gradus::data
