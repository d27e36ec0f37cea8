// argmax and argmin: the value and the index of the extreme element along an axis. Among equal elements, the first one
// is chosen; NaN is more extreme than any number.  Layout, grid, block, pipeline and order: device/reduce_kernel.cuh.
#include <limits>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/reduce_kernel.cuh>

namespace gradus {
namespace {

using cuda_detail::Nest;

// A value and its index. The index has the size of the value, to save registers and padding.
template <class C>
struct Candidate {
  C value;
  std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t> index;
};
// The type in which elements of T are compared.
template <class T>
using Key = std::conditional_t<sizeof(compute_t<T>) < 4, int32_t, compute_t<T>>;

// The Op (reduce_kernel.cuh) that chooses the better of two candidates. If T is a Candidate, it folds the results of
// splits.
template <bool kMax, class C, class T>
struct Better {
  using A = Candidate<C>;
  static constexpr C kWorst = std::numeric_limits<C>::has_infinity
                                  ? (kMax ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::infinity())
                                  : (kMax ? std::numeric_limits<C>::lowest() : std::numeric_limits<C>::max());
  static __device__ A neutral() { return {kWorst, ~decltype(A::index)()}; }  // the largest index loses to equal values
  static __device__ A load(T x, int64_t i) {
    if constexpr (std::is_same_v<T, A>) return x;
    else return {static_cast<C>(x), static_cast<decltype(A::index)>(i)};
  }
  static __device__ A fold(const A& a, const A& b) {
    const bool a_nan = scalar::is_nan(a.value), b_nan = scalar::is_nan(b.value);
    const bool better = a_nan != b_nan                ? b_nan
                        : a_nan || a.value == b.value ? b.index < a.index
                                                      : (kMax ? b.value > a.value : b.value < a.value);
    return better ? b : a;
  }
};

// Stores the results. `at` has the offsets in x, indices and values.
template <class T>
struct Results {
  int64_t* indices;
  T* values;  // may be null
  __device__ void store(const int64_t (&at)[3], const Candidate<Key<T>>& best) const {
    indices[at[1]] = static_cast<int64_t>(best.index);
    if (values) values[at[2]] = static_cast<T>(best.value);
  }
};

template <bool kMax, class T>
void run(const View& x, const Nest<3>& outer, const Nest<1>& inner, const MutableView& values,
         const MutableView& indices) {
  using C = Key<T>;
  cuda_detail::for_each_chunk(outer, [&](const Nest<3>& chunk, int64_t, const int64_t* at) {
    cuda_detail::reduce<Better<kMax, C, T>, Better<kMax, C, Candidate<C>>>(
        x.device, x.as<T>() + at[0], chunk, inner,
        Results<T>{indices.as<int64_t>() + at[1], values.data ? values.as<T>() + at[2] : nullptr});
  });
}

}  // namespace

void CudaBackend::arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                             const MutableView& indices) {
  EventScope event(op == ArgReduceOp::argmax ? "argmax" : "argmin", "cuda", "tree", {&x}, x.numel());
  const Shape outer_shape = reduced_shape(x.shape, 1u << axis, true);
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  const Nest<3> outer(outer_shape, {&x.strides, &indices.strides, &value_strides});
  const Nest<1> inner(reduced_shape(x.shape, ~(1u << axis), true), {&x.strides});
  visit(x.dtype, [&]<class T>() {
    if (op == ArgReduceOp::argmax) run<true, T>(x, outer, inner, values, indices);
    else run<false, T>(x, outer, inner, values, indices);
  });
}

}  // namespace gradus
