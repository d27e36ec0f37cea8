// Indexing: x.index({…}) and the operators that read or write elements by index tensors and masks.
//
// Index tensors hold int64 or int32. Where the operator says so negative ones count from the end; one outside the
// dimension is an IndexError that names it, its position and the size. Sums over equal indices are deterministic.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// A range start:end:step of one dimension; absent ends reach to the edge. (torch::indexing)
struct Slice {
  Slice() = default;
  Slice(std::optional<int64_t> start_, std::optional<int64_t> end_ = {}, std::optional<int64_t> step_ = {})
      : start(start_), end(end_), step(step_.value_or(1)) {}
  std::optional<int64_t> start, end;
  int64_t step = 1;
};
struct NoneIndex {
  constexpr operator std::optional<int64_t>() const {
    return {};
  }  // NOLINT(google-explicit-constructor): Slice(None, 3)
};
struct EllipsisIndex {};
/// A new dimension of size 1; the rest of the dimensions.
inline constexpr NoneIndex None{};
inline constexpr EllipsisIndex Ellipsis{};

/// One entry of x.index({…}): an integer, a Slice, None, Ellipsis, true or false (a new dimension of size 1 or 0), a
/// mask or an index tensor.
struct TensorIndex {
  enum class Kind : uint8_t { integer, boolean, slice, none, ellipsis, tensor } kind;
  int64_t integer = 0;  // boolean: 0 or 1
  Slice slice;
  Tensor tensor;
  template <class T>
  requires std::is_integral_v<T> TensorIndex(T index)  // NOLINT(google-explicit-constructor)
      : kind(std::is_same_v<T, bool> ? Kind::boolean : Kind::integer), integer(static_cast<int64_t>(index)) {}
  TensorIndex(Slice range) : kind(Kind::slice), slice(range) {}  // NOLINT(google-explicit-constructor)
  TensorIndex(NoneIndex) : kind(Kind::none) {}                   // NOLINT(google-explicit-constructor)
  TensorIndex(EllipsisIndex) : kind(Kind::ellipsis) {}           // NOLINT(google-explicit-constructor)
  /// Integers: an advanced index. Booleans: the elements where it is true; it stands for all its dimensions.
  TensorIndex(const Tensor& index) : kind(Kind::tensor), tensor(index) {}  // NOLINT(google-explicit-constructor)
  /// "..." is Ellipsis.
  TensorIndex(const char* text) : kind(Kind::ellipsis) {  // NOLINT(google-explicit-constructor)
    GRADUS_CHECK(std::string_view(text) == "...", ValueError, "an index can be \"...\", not \"", text, "\"");
  }
};

/// y[…, i, …] = x[…, index[i], …] for a one-dimensional index.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Loc where = Loc::current());
/// y[i] = x[i with index[i] at dim]: y has index's shape, whose other sizes may be smaller than x's.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Loc where = Loc::current());
/// gather with x and indices broadcast against each other but in `dim`; without dim, of the flattened tensors.
Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> dim = {},
                      Loc where = Loc::current());
/// x with y[i with index[i] at dim] = source[i] (a tensor or a number); of equal places the last wins. With reduce
/// "add" the source is added.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Loc where = Loc::current());
/// x with alpha * source[…, i, …] added to, or source[…, i, …] or a value written to, its parts [.., index[i], …].
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha = 1,
                 Loc where = Loc::current());
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Loc where = Loc::current());
const Tensor& index_copy_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                          Loc where = Loc::current());
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value, Loc where = Loc::current());
/// x with `value` (broadcast) in, or added to, what x.index(indices) shows.
Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Operand& value,
                 bool accumulate = false);
/// x with `value`, a number or a tensor of one element, where the (broadcast) mask is true.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value);
/// The elements where the mask is true, in row-major order, of x and mask broadcast against each other.
Tensor masked_select(const Tensor& x, const Tensor& mask, Loc where = Loc::current());
/// Indices (count, dim()) of the elements that are not 0, in row-major order; as_tuple and where: a vector for each
/// dimension.
Tensor nonzero(const Tensor& x, Loc where = Loc::current());
Tensor argwhere(const Tensor& x, Loc where = Loc::current());
TensorList nonzero_numpy(const Tensor& x, Loc where = Loc::current());
TensorList where(const Tensor& condition, Loc where = Loc::current());
/// int64 (…, num_classes): 1 at the class, else 0. Without num_classes, the largest class + 1.
Tensor one_hot(const Tensor& x, int64_t num_classes = -1, Loc where = Loc::current());
/// How often each of 0, 1, … stands in x, one-dimensional integers: int64 (max(x) + 1), or at least minlength; with
/// weights (float32 or float64) their sums instead.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0, Loc where = Loc::current());
/// Vectors as the coordinates of a grid: result i varies along dimension i alone (views). indexing "xy" swaps the first
/// two dimensions of the results.
TensorList meshgrid(const TensorList& tensors, std::string_view indexing = "ij", Loc where = Loc::current());

}  // namespace gradus
