// What every array operator starts with: the backend to call and the checks that several families share.
#pragma once

#include <initializer_list>

#include <gradus/core/registry.h>

namespace gradus::ops {

/// The backend that runs operators on x in this thread.
inline Backend& backend_of(const Array& x) { return current_backend(x.device().type()); }

/// All arrays on one device; else a DeviceError that names two of them.
void check_same_device(std::initializer_list<const Array*> arrays);
/// `x` has `ndim` dimensions, described in messages as `layout`, "(N, C, H, W)".
void check_ndim(const Array& x, int ndim, const char* what, const char* layout);
/// `x` has a floating type.
void check_floating(const Array& x, const char* what);
/// a and b have one dtype; else a DTypeError that names both.
void check_same_dtype(const Array& a, const char* name_a, const Array& b, const char* name_b);
/// `into` can take a result of this shape and dtype without losing its kind (float into int loses).
void check_into(const Array& into, const Shape& shape, DType dtype);

}  // namespace gradus::ops
