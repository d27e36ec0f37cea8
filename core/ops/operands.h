// Used by every array operator: the backend to call, checks that several families share, and the memory layout of
// results.
#pragma once

#include <initializer_list>

#include <gradus/core/array/array.h>
#include <gradus/core/registry.h>

namespace gradus::ops {

/// The backend that runs operators on x in this thread.
inline Backend& backend_of(const Array& x) { return current_backend(x.device().type()); }

/// Throws a DeviceError that names two arrays on different devices, if there are any.
void check_same_device(std::initializer_list<const Array*> arrays);
/// Throws unless `x` has `ndim` dimensions. Messages describe the expected shape as `layout`, for example "(N, C, H,
/// W)".
void check_ndim(const Array& x, int ndim, const char* what, const char* layout);
/// Throws unless `x` has a floating type.
void check_floating(const Array& x, const char* what);
/// Throws a DTypeError that names both dtypes unless they are equal.
void check_same_dtype(const Array& a, const char* name_a, const Array& b, const char* name_b);
/// Throws unless `into` has this shape and can hold values of this dtype's kind (an integer type cannot hold floats).
void check_into(const Array& into, const Shape& shape, DType dtype);

/// Layout of the result of convolution and pooling: channels-last if the input or the weight (may be undefined) is.
MemoryFormat output_format(const Array& x, const Array& weight = {});

/// Returns an uninitialised result for an element-wise operator. It takes the layout of the first operand that has this
/// shape, has no gaps and is not both row-major and channels-last; without such an operand it is row-major.
Array output_like(const Shape& shape, DType dtype, Device device, std::initializer_list<const Array*> operands);

}  // namespace gradus::ops
