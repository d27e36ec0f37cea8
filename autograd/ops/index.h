// Indexing: x.index({…}) and the operators that read or write elements through index tensors and masks.
//
// Index tensors hold int64 or int32. Negative indices count from the end only in operators that say so. An index
// outside of the dimension is an IndexError that names the index, its position and the size. Sums over equal indices
// are deterministic.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// The range start:end:step of one dimension. An absent bound extends the range to the edge. (torch::indexing)
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
/// None inserts a dimension of size 1. Ellipsis selects all elements of the dimensions that the other entries leave.
inline constexpr NoneIndex None{};
inline constexpr EllipsisIndex Ellipsis{};

/// One entry of x.index({…}): an integer, a Slice, None, Ellipsis, true or false (which insert a dimension of size 1 or
/// 0), a boolean mask or an index tensor.
struct TensorIndex {
  enum class Kind : uint8_t { integer, boolean, slice, none, ellipsis, tensor } kind;
  int64_t integer = 0;  // if kind is boolean: 0 or 1
  Slice slice;
  Tensor tensor;
  template <class T>
  requires std::is_integral_v<T> TensorIndex(T index)  // NOLINT(google-explicit-constructor)
      : kind(std::is_same_v<T, bool> ? Kind::boolean : Kind::integer), integer(static_cast<int64_t>(index)) {}
  TensorIndex(Slice range) : kind(Kind::slice), slice(range) {}  // NOLINT(google-explicit-constructor)
  TensorIndex(NoneIndex) : kind(Kind::none) {}                   // NOLINT(google-explicit-constructor)
  TensorIndex(EllipsisIndex) : kind(Kind::ellipsis) {}           // NOLINT(google-explicit-constructor)
  /// An integer tensor selects by index. A boolean mask selects the elements where it is true and covers as many
  /// dimensions of x as it has.
  TensorIndex(const Tensor& index) : kind(Kind::tensor), tensor(index) {}  // NOLINT(google-explicit-constructor)
  /// "..." is Ellipsis.
  TensorIndex(const char* text) : kind(Kind::ellipsis) {  // NOLINT(google-explicit-constructor)
    GRADUS_CHECK(std::string_view(text) == "...", ValueError, "an index can be \"...\", not \"", text, "\"");
  }
};

/// y[…, i, …] = x[…, index[i], …] for a one-dimensional index.
inline Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Loc where = Loc::current()) {
  return x.index_select(dim, index, where);
}
/// y[i] = x[j], where the position j is i with coordinate `dim` replaced by index[i]. y has the shape of index, whose
/// other dimensions may be smaller than those of x.
inline Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Loc where = Loc::current()) {
  return x.gather(dim, index, where);
}
/// gather() after broadcasting x and indices in all dimensions but `dim`; without dim, gather() from the flattened
/// tensors.
Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> dim = {},
                      Loc where = Loc::current());
/// A copy y of x with y[j] = source[i], where the position j is i with coordinate `dim` replaced by index[i], and
/// source is a tensor or a number. If several i have the same j, the last one wins. With reduce = "add", source[i] is
/// added to y[j] instead.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce);
inline Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                          Loc where = Loc::current()) {
  return x.scatter_add(dim, index, source, where);
}
/// Copies of x in which the slices [.., index[i], …] are changed: index_add adds alpha * source[…, i, …], index_copy
/// writes source[…, i, …], index_fill writes a value.
inline Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                        const Scalar& alpha = 1, Loc where = Loc::current()) {
  return x.index_add(dim, index, source, alpha, where);
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Loc where = Loc::current());
const Tensor& index_copy_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                          Loc where = Loc::current());
inline Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value,
                         Loc where = Loc::current()) {
  return x.index_fill(dim, index, value, where);
}
/// A copy of x in which `value` (broadcast) replaces, or with accumulate is added to, the elements that
/// x.index(indices) selects.
Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Operand& value,
                 bool accumulate = false);
/// A copy of x in which the elements where the (broadcast) mask is true are `value`, a number or a tensor of one
/// element.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value);
/// The elements where the mask is true, in row-major order. x and mask are broadcast against each other.
Tensor masked_select(const Tensor& x, const Tensor& mask, Loc where = Loc::current());
/// Indices (count, dim()) of the elements that are not 0, in row-major order. nonzero_numpy and where return one vector
/// for each dimension instead.
Tensor nonzero(const Tensor& x, Loc where = Loc::current());
Tensor argwhere(const Tensor& x, Loc where = Loc::current());
TensorList nonzero_numpy(const Tensor& x, Loc where = Loc::current());
TensorList where(const Tensor& condition, Loc where = Loc::current());
/// int64 (…, num_classes): 1 at the class, else 0. num_classes defaults to the largest class + 1.
Tensor one_hot(const Tensor& x, int64_t num_classes = -1, Loc where = Loc::current());
/// Counts how often each of 0, 1, … occurs in x, a vector of integers: int64 (max(x) + 1), or longer if minlength
/// demands it. With weights (float32 or float64), sums the weights instead.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0, Loc where = Loc::current());
/// Makes coordinate grids from vectors. Result i is a view that contains vector i along dimension i and repeats it
/// along the other dimensions. indexing = "xy" swaps the first two dimensions of the results.
TensorList meshgrid(const TensorList& tensors, std::string_view indexing = "ij", Loc where = Loc::current());

/// Gives access to an element of a CPU tensor as a[i][j], as fast as a pointer does. It does not keep the tensor alive.
template <class T, int N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  decltype(auto) operator[](int64_t i) const {
    if constexpr (N == 1) return static_cast<T&>(data_[i * strides_[0]]);
    else return TensorAccessor<T, N - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  int64_t size(int dim) const { return sizes_[dim]; }
  int64_t stride(int dim) const { return strides_[dim]; }
  T* data() const { return data_; }

 private:
  T* data_;
  const int64_t* sizes_;
  const int64_t* strides_;
};

template <class T, int N>
TensorAccessor<T, N> Tensor::accessor() const {
  GRADUS_CHECK(dim() == N, ShapeError, "accessor of ", N, " dimensions for a tensor of shape ", sizes());
  GRADUS_CHECK(device().is_cpu(), DeviceError, "accessor needs a cpu tensor, got one on ", device(),
               ": call .cpu() first");
  return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
}

}  // namespace gradus
