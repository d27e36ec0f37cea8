// npy: NumPy's file format for one array.
//
//   6 bytes   \x93NUMPY       2 bytes   version: 1.0, 2.0 or 3.0
//   2 bytes (version 1) or 4  length of the header, little-endian
//   header    a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//             (Python 2 writes the sizes as 3L, 4L)
//   the rest  the elements, row-major or (fortran_order) column-major, in the byte order of descr
//
// Readers check all sizes against the size of the file before they allocate memory. They throw an IoError for an
// invalid file.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string>

#include <gradus/core/array/array.h>
#include <gradus/core/platform/file.h>

namespace gradus::io {

/// Parses a file in memory; `name` identifies it in messages. The array is in CPU memory. dtypes: f2 f4 f8 i4 i8 u1 b1
/// in either byte order. An array in Fortran order keeps its order in memory, so its strides are column-major.
Array parse_npy(ByteSpan bytes, const std::string& name);
/// Loads the array of a file.
inline Array load_npy(const std::string& path) { return parse_npy(read_file(path), path); }

/// The bytes of a file with `array` (any strides and device), row-major and little-endian. Throws a DTypeError for
/// bfloat16, which NumPy does not have.
Bytes encode_npy(const Array& array);
/// Writes encode_npy(array) through AtomicFile.
inline void save_npy(const std::string& path, const Array& array) { write_file(path, encode_npy(array)); }

}  // namespace gradus::io
