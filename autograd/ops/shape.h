// Views, joining and indexing.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// A range start:end:step of one dimension; absent ends reach to the edge. (torch::indexing)
struct Slice {
  Slice() = default;
  Slice(std::optional<int64_t> start, std::optional<int64_t> end = {}, int64_t step = 1)
      : start(start), end(end), step(step) {}
  std::optional<int64_t> start, end;
  int64_t step = 1;
};
struct NoneIndex {};
struct EllipsisIndex {};
/// A new dimension of size 1; the rest of the dimensions.
inline constexpr NoneIndex None{};
inline constexpr EllipsisIndex Ellipsis{};

/// One entry of x.index({…}).
struct TensorIndex {
  enum class Kind : uint8_t { integer, slice, none, ellipsis } kind;
  int64_t integer = 0;
  Slice slice;
  TensorIndex(int64_t index) : kind(Kind::integer), integer(index) {}  // NOLINT(google-explicit-constructor)
  TensorIndex(int index) : kind(Kind::integer), integer(index) {}      // NOLINT(google-explicit-constructor)
  TensorIndex(Slice range) : kind(Kind::slice), slice(range) {}        // NOLINT(google-explicit-constructor)
  TensorIndex(NoneIndex) : kind(Kind::none) {}                         // NOLINT(google-explicit-constructor)
  TensorIndex(EllipsisIndex) : kind(Kind::ellipsis) {}                 // NOLINT(google-explicit-constructor)
};

/// Joins tensors along a dimension that exists; other sizes must agree, dtypes are promoted.
Tensor cat(const TensorList& tensors, int64_t dim = 0, Loc where = Loc::current());
/// Joins tensors of one shape along a new dimension.
Tensor stack(const TensorList& tensors, int64_t dim = 0, Loc where = Loc::current());
Tensor reshape(const Tensor& x, IntArrayRef size, Loc where = Loc::current());
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1, Loc where = Loc::current());
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1, Loc where = Loc::current());
Tensor permute(const Tensor& x, IntArrayRef dims, Loc where = Loc::current());
Tensor squeeze(const Tensor& x, int64_t dim, Loc where = Loc::current());
Tensor unsqueeze(const Tensor& x, int64_t dim, Loc where = Loc::current());

}  // namespace gradus
