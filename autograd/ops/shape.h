// Views, joining and rearranging. Negative dimensions count from the end.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Joins tensors along an existing dimension. The other sizes must agree; dtypes are promoted. Tensors of shape (0,)
/// may be joined with any shape.
Tensor cat(const TensorList& tensors, int64_t dim = 0, Loc where = Loc::current());
/// Joins tensors of one shape along a new dimension.
Tensor stack(const TensorList& tensors, int64_t dim = 0, Loc where = Loc::current());
/// cat along the columns (hstack; vectors along their only dimension), the rows (vstack) or the third dimension
/// (dstack). Tensors with fewer dimensions are extended by atleast_1d, atleast_2d and atleast_3d.
Tensor hstack(const TensorList& tensors, Loc where = Loc::current());
Tensor vstack(const TensorList& tensors, Loc where = Loc::current());
Tensor dstack(const TensorList& tensors, Loc where = Loc::current());
/// Views with at least 1, 2 or 3 dimensions: () becomes (1), (1, 1), (1, 1, 1); (N) becomes (1, N), (1, N, 1); (M, N)
/// becomes (M, N, 1).
Tensor atleast_1d(const Tensor& x, Loc where = Loc::current());
Tensor atleast_2d(const Tensor& x, Loc where = Loc::current());
Tensor atleast_3d(const Tensor& x, Loc where = Loc::current());

inline Tensor reshape(const Tensor& x, IntArrayRef size, Loc where = Loc::current()) { return x.reshape(size, where); }
inline Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1, Loc where = Loc::current()) {
  return x.flatten(start_dim, end_dim, where);
}
/// Splits dimension `dim` into dimensions of the given sizes, one of which may be -1.
inline Tensor unflatten(const Tensor& x, int64_t dim, IntArrayRef sizes, Loc where = Loc::current()) {
  return x.unflatten(dim, sizes, where);
}
inline Tensor t(const Tensor& x, Loc where = Loc::current()) { return x.t(where); }
inline Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1, Loc where = Loc::current()) {
  return x.transpose(dim0, dim1, where);
}
inline Tensor swapaxes(const Tensor& x, int64_t axis0, int64_t axis1, Loc where = Loc::current()) {
  return x.transpose(axis0, axis1, where);
}
inline Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1, Loc where = Loc::current()) {
  return x.transpose(dim0, dim1, where);
}
inline Tensor permute(const Tensor& x, IntArrayRef dims, Loc where = Loc::current()) { return x.permute(dims, where); }
/// Dimension source[i] becomes dimension destination[i]; the others keep their order.
inline Tensor movedim(const Tensor& x, IntArrayRef source, IntArrayRef destination, Loc where = Loc::current()) {
  return x.movedim(source, destination, where);
}
inline Tensor squeeze(const Tensor& x, std::optional<int64_t> dim = {}, Loc where = Loc::current()) {
  return x.squeeze(dim, where);
}
inline Tensor unsqueeze(const Tensor& x, int64_t dim, Loc where = Loc::current()) { return x.unsqueeze(dim, where); }
inline Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Loc where = Loc::current()) {
  return x.narrow(dim, start, length, where);
}
inline Tensor select(const Tensor& x, int64_t dim, int64_t index, Loc where = Loc::current()) {
  return x.select(dim, index, where);
}
/// x[…, i, i + offset, …]: the diagonals of the matrices in dim1 and dim2, as the last dimension of a view.
inline Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1,
                       Loc where = Loc::current()) {
  return x.diagonal(offset, dim1, dim2, where);
}
Tensor broadcast_to(const Tensor& x, IntArrayRef size, Loc where = Loc::current());
/// Expands all tensors to their common broadcast shape.
TensorList broadcast_tensors(const TensorList& tensors, Loc where = Loc::current());

/// Views of consecutive parts along `dim`, of equal size (the last may be smaller) or of the given sizes.
inline TensorList split(const Tensor& x, int64_t split_size, int64_t dim = 0, Loc where = Loc::current()) {
  return x.split(split_size, dim, where);
}
inline TensorList split(const Tensor& x, const std::vector<int64_t>& split_sizes, int64_t dim = 0,
                        Loc where = Loc::current()) {
  return x.split(split_sizes, dim, where);
}
inline TensorList split_with_sizes(const Tensor& x, const std::vector<int64_t>& split_sizes, int64_t dim = 0,
                                   Loc where = Loc::current()) {
  return x.split(split_sizes, dim, where);
}
/// At most `chunks` parts of equal size, of which the last may be smaller. There are fewer parts if the size is not
/// divisible.
inline TensorList chunk(const Tensor& x, int64_t chunks, int64_t dim = 0, Loc where = Loc::current()) {
  return x.chunk(chunks, dim, where);
}
/// The slices along `dim`, without that dimension.
TensorList unbind(const Tensor& x, int64_t dim = 0, Loc where = Loc::current());

/// Repeated copies. `repeats` gives the number of repetitions of each dimension; repeat needs a number for each
/// dimension, while tile treats missing leading numbers as 1.
Tensor repeat(const Tensor& x, IntArrayRef repeats, Loc where = Loc::current());
Tensor tile(const Tensor& x, IntArrayRef repeats, Loc where = Loc::current());
/// Repeats every element `repeats` times in a row; without `dim`, flattens x first.
inline Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {},
                                Loc where = Loc::current()) {
  return x.repeat_interleave(repeats, dim, where);
}
Tensor flip(const Tensor& x, IntArrayRef dims, Loc where = Loc::current());
Tensor fliplr(const Tensor& x, Loc where = Loc::current());
Tensor flipud(const Tensor& x, Loc where = Loc::current());
/// Moves element i to i + shift; elements moved beyond the end reenter at the start. Without `dims`, x is treated as
/// flattened.
inline Tensor roll(const Tensor& x, IntArrayRef shifts, IntArrayRef dims = {}, Loc where = Loc::current()) {
  return x.roll(shifts, dims, where);
}
/// The matrices in the last two dimensions, with the elements above (tril) or below (triu) the given diagonal set to 0.
Tensor tril(const Tensor& x, int64_t diagonal = 0, Loc where = Loc::current());
Tensor triu(const Tensor& x, int64_t diagonal = 0, Loc where = Loc::current());
/// For a matrix, a copy of its diagonal; for a vector, a square matrix with that diagonal and zeros elsewhere.
Tensor diag(const Tensor& x, int64_t diagonal = 0, Loc where = Loc::current());

}  // namespace gradus
