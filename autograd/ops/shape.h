// Views, joining and rearranging. Negative dimensions count from the last.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Joins tensors along a dimension that exists; other sizes must agree, dtypes are promoted. Tensors of shape (0,) join
/// anything.
Tensor cat(const TensorList& tensors, int64_t dim = 0, Loc where = Loc::current());
/// Joins tensors of one shape along a new dimension.
Tensor stack(const TensorList& tensors, int64_t dim = 0, Loc where = Loc::current());
/// cat along the columns (vectors: along themselves), the rows, the third dimension; smaller tensors get dimensions as
/// by atleast_1d, atleast_2d, atleast_3d.
Tensor hstack(const TensorList& tensors, Loc where = Loc::current());
Tensor vstack(const TensorList& tensors, Loc where = Loc::current());
Tensor dstack(const TensorList& tensors, Loc where = Loc::current());
/// Views with at least so many dimensions: () is (1), (1, 1), (1, 1, 1); (N) is (1, N), (1, N, 1); (M, N) is (M, N, 1).
Tensor atleast_1d(const Tensor& x, Loc where = Loc::current());
Tensor atleast_2d(const Tensor& x, Loc where = Loc::current());
Tensor atleast_3d(const Tensor& x, Loc where = Loc::current());

Tensor reshape(const Tensor& x, IntArrayRef size, Loc where = Loc::current());
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1, Loc where = Loc::current());
/// The dimension `dim` as several of these sizes, one of which may be -1.
Tensor unflatten(const Tensor& x, int64_t dim, IntArrayRef sizes, Loc where = Loc::current());
Tensor t(const Tensor& x, Loc where = Loc::current());
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1, Loc where = Loc::current());
Tensor swapaxes(const Tensor& x, int64_t axis0, int64_t axis1, Loc where = Loc::current());
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1, Loc where = Loc::current());
Tensor permute(const Tensor& x, IntArrayRef dims, Loc where = Loc::current());
/// Dimension source[i] becomes dimension destination[i]; the others keep their order.
Tensor movedim(const Tensor& x, IntArrayRef source, IntArrayRef destination, Loc where = Loc::current());
Tensor movedim(const Tensor& x, int64_t source, int64_t destination, Loc where = Loc::current());
Tensor squeeze(const Tensor& x, Loc where = Loc::current());
Tensor squeeze(const Tensor& x, int64_t dim, Loc where = Loc::current());
Tensor unsqueeze(const Tensor& x, int64_t dim, Loc where = Loc::current());
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Loc where = Loc::current());
Tensor select(const Tensor& x, int64_t dim, int64_t index, Loc where = Loc::current());
/// x[…, i, i + offset, …]: the diagonals of the matrices in dim1 and dim2, as a view's last dimension.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1, Loc where = Loc::current());
Tensor broadcast_to(const Tensor& x, IntArrayRef size, Loc where = Loc::current());
/// All tensors expanded to the shape that they have together.
TensorList broadcast_tensors(const TensorList& tensors, Loc where = Loc::current());

/// Views of consecutive parts along `dim`: of one size (the last may be smaller), or of given sizes.
TensorList split(const Tensor& x, int64_t split_size, int64_t dim = 0, Loc where = Loc::current());
TensorList split(const Tensor& x, const std::vector<int64_t>& split_sizes, int64_t dim = 0, Loc where = Loc::current());
TensorList split_with_sizes(const Tensor& x, const std::vector<int64_t>& split_sizes, int64_t dim = 0,
                            Loc where = Loc::current());
/// At most `chunks` parts of one size, the last may be smaller; fewer where the sizes say so.
TensorList chunk(const Tensor& x, int64_t chunks, int64_t dim = 0, Loc where = Loc::current());
/// The parts of size 1, without the dimension.
TensorList unbind(const Tensor& x, int64_t dim = 0, Loc where = Loc::current());

/// Copies in another arrangement. repeat and tile say how often each dimension is repeated; repeat needs a number for
/// each, tile takes missing ones, in front, as 1.
Tensor repeat(const Tensor& x, IntArrayRef repeats, Loc where = Loc::current());
Tensor tile(const Tensor& x, IntArrayRef repeats, Loc where = Loc::current());
/// Every element `repeats` times in a row; without `dim`, of the flattened tensor.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {}, Loc where = Loc::current());
Tensor flip(const Tensor& x, IntArrayRef dims, Loc where = Loc::current());
Tensor fliplr(const Tensor& x, Loc where = Loc::current());
Tensor flipud(const Tensor& x, Loc where = Loc::current());
/// Element i becomes element i + shift, those beyond the end come in at the start; without `dims`, of the flattened
/// tensor.
Tensor roll(const Tensor& x, IntArrayRef shifts, IntArrayRef dims = {}, Loc where = Loc::current());
/// The matrices in the last two dimensions, with 0 above (tril) or below (triu) the diagonal with that number.
Tensor tril(const Tensor& x, int64_t diagonal = 0, Loc where = Loc::current());
Tensor triu(const Tensor& x, int64_t diagonal = 0, Loc where = Loc::current());
/// Of a matrix a copy of its diagonal; of a vector the square matrix with that diagonal, else 0.
Tensor diag(const Tensor& x, int64_t diagonal = 0, Loc where = Loc::current());

}  // namespace gradus
