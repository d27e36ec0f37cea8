// Reductions. The elements of the result are cut into blocks, and what each of them reduces into stretches, both by shape
// alone: threads share out (block, stretch) pairs, and the stretches of an element are combined in order. Sums of floats
// are added up in float over short runs and from there on in double.
#include <limits>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/observer.h>
#include <gradus/core/wrapping.h>

namespace gradus {
namespace {

using namespace openmp;

constexpr int64_t kWantedPieces = 64;

template <class C>
using accumulator_t = std::conditional_t<std::is_floating_point_v<C>, double, int64_t>;

template <class A>
A start_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return std::is_integral_v<A> ? std::numeric_limits<A>::min() : -std::numeric_limits<A>::infinity();
    case ReduceOp::min:
      return std::is_integral_v<A> ? std::numeric_limits<A>::max() : std::numeric_limits<A>::infinity();
    case ReduceOp::all:
    case ReduceOp::prod: return A(1);
    default: return A(0);
  }
}

template <ReduceOp op, class A>
A combine(A total, A x) {
  if constexpr (op == ReduceOp::max) return scalar::Binary<BinaryOp::maximum>::apply(total, x);
  else if constexpr (op == ReduceOp::min) return scalar::Binary<BinaryOp::minimum>::apply(total, x);
  else if constexpr (op == ReduceOp::all) return A(total != A(0) && x != A(0));
  else if constexpr (op == ReduceOp::any) return A(total != A(0) || x != A(0));
  else if constexpr (op == ReduceOp::prod) return wrapping_product(total, x);
  else return total + x;
}

// Calls f.template operator()<op>() for the ways to combine; a mean is a sum here.
template <class F>
void visit_combine(ReduceOp op, F&& f) {
  switch (op) {
    case ReduceOp::max: return f.template operator()<ReduceOp::max>();
    case ReduceOp::min: return f.template operator()<ReduceOp::min>();
    case ReduceOp::all: return f.template operator()<ReduceOp::all>();
    case ReduceOp::any: return f.template operator()<ReduceOp::any>();
    case ReduceOp::prod: return f.template operator()<ReduceOp::prod>();
    default: return f.template operator()<ReduceOp::sum>();
  }
}

// x's axes that are in `axes` (or that are not), as a shape and strides of their own.
struct Axes {
  Shape shape;
  Strides x, y;
  Axes(const View& x_view, const MutableView& y_view, uint32_t axes, bool reduced) {
    for (int i = 0; i < x_view.ndim(); ++i)
      if (((axes >> i) & 1u) == (reduced ? 1u : 0u)) {
        shape.push_back(x_view.shape[i]), x.push_back(x_view.strides[i]);
        y.push_back(i < y_view.ndim() ? y_view.strides[i] : 0);
      }
  }
};

// One element: elements [begin, end) of the reduced nest, starting at `offset`.
template <ReduceOp op, class C>
accumulator_t<C> reduce_runs(const View& x, int64_t offset, const StridedLoop<1>& nest, int64_t begin, int64_t end) {
  using A = accumulator_t<C>;
  A total = start_of<A>(op);
  const int64_t step = step_of(nest, 0);
  for_each_run(nest, begin, end, [&](const int64_t* at, int64_t run) {
    C buffer[kBlock];
    for (int64_t i = 0; i < run; i += kBlock) {
      const int64_t count = std::min(kBlock, run - i);
      const C* from = load_block(x.data, x.dtype, offset + at[0] + i * step, step, count, buffer);
      if constexpr (op == ReduceOp::sum && std::is_floating_point_v<C>)
        total += static_cast<A>(kernels_of<C>(kernel_table()).sum(from, count));
      else
        for (int64_t j = 0; j < count; ++j) total = combine<op, A>(total, static_cast<A>(from[j]));
    }
  });
  return total;
}

// `count` neighbours of the result at once, `step` apart in x: their reduced elements lie one behind the other.
template <ReduceOp op, class C>
void reduce_columns(const View& x, int64_t offset, int64_t step, int64_t count, const StridedLoop<1>& nest,
                    int64_t begin, int64_t end, accumulator_t<C>* totals) {
  using A = accumulator_t<C>;
  std::fill_n(totals, count, start_of<A>(op));
  const int64_t row_step = step_of(nest, 0);
  for_each_run(nest, begin, end, [&](const int64_t* at, int64_t run) {
    C buffer[kBlock];
    for (int64_t i = 0; i < run; ++i) {
      const C* from = load_block(x.data, x.dtype, offset + at[0] + i * row_step, step, count, buffer);
      for (int64_t j = 0; j < count; ++j) totals[j] = combine<op, A>(totals[j], static_cast<A>(from[j]));
    }
  });
}

template <ReduceOp op, class C>
void reduce_as(ReduceOp asked, const View& x, uint32_t axes, const MutableView& y) {
  using A = accumulator_t<C>;
  const Axes kept(x, y, axes, false), reduced(x, y, axes, true);
  const StridedLoop<2> outer(kept.shape, {&kept.y, &kept.x});
  const StridedLoop<1> inner(reduced.shape, {&reduced.x});
  if (outer.numel == 0) return;
  const int64_t y_step = step_of(outer, 0), x_step = step_of(outer, 1);
  // Neighbours together where they are closer in memory than what one of them reduces.
  const bool columns =
      outer.ndim > 0 && outer.shape[outer.ndim - 1] > 1 && x_step < step_of(inner, 0) && inner.numel > 1;
  const int64_t width = columns ? std::min(outer.shape[outer.ndim - 1], kBlock) : 1;
  const int64_t pieces = divide_up(outer.numel, width);
  const int64_t least = std::max<int64_t>(1, kGrain / width);
  const int64_t stretch = std::max(least, divide_up(inner.numel, divide_up(kWantedPieces, pieces)));
  const int64_t stretches = std::max<int64_t>(1, divide_up(inner.numel, stretch));

  const Scratch<A> partial(stretches * outer.numel);
  const int64_t work = width * std::max<int64_t>(1, std::min(stretch, inner.numel));
  parallel_for(pieces * stretches, divide_up(kGrain, work), [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t begin = piece % pieces * width, end = std::min(outer.numel, begin + width);
      const int64_t from = piece / pieces * stretch, to = std::min(inner.numel, from + stretch);
      A* totals = partial.get() + piece / pieces * outer.numel + begin;
      for_each_run(outer, begin, end, [&](const int64_t* at, int64_t count) {
        if (columns) reduce_columns<op, C>(x, at[1], x_step, count, inner, from, to, totals);
        else
          for (int64_t i = 0; i < count; ++i) totals[i] = reduce_runs<op, C>(x, at[1] + i * x_step, inner, from, to);
        totals += count;
      });
    }
  });

  const double count = static_cast<double>(inner.numel);
  int64_t done = 0;
  for_each_run(outer, 0, outer.numel, [&](const int64_t* at, int64_t run) {
    for (int64_t i = 0; i < run; ++i, ++done) {
      A total = partial[done];
      for (int64_t s = 1; s < stretches; ++s) total = combine<op, A>(total, partial[s * outer.numel + done]);
      visit(y.dtype, [&]<class U> {
        U& out = y.as<U>()[at[0] + i * y_step];
        if (asked == ReduceOp::mean) out = scalar::convert<U>(static_cast<double>(total) / count);  // 0 / 0 is NaN
        else out = scalar::convert<U>(total);
      });
    }
  });
}

}  // namespace

void OpenmpBackend::reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) {
  const bool vectors = (op == ReduceOp::sum || op == ReduceOp::mean) && is_floating(x.dtype);
  EventScope event(gradus::name(op), "openmp", vectors ? kernel_table().vectors : "loops", {&x, &y}, x.numel());
  visit_compute(x.dtype, [&]<class C> { visit_combine(op, [&]<ReduceOp kOp> { reduce_as<kOp, C>(op, x, axes, y); }); });
}

void OpenmpBackend::arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                               const MutableView& indices) {
  EventScope event(op == ArgReduceOp::argmax ? "argmax" : "argmin", "openmp", "loops", {&x, &indices}, x.numel());
  const int64_t size = x.ndim() ? x.shape[axis] : 1, step = x.ndim() ? x.strides[axis] : 0;
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  const StridedLoop<3> nest(indices.shape, {&indices.strides, &x.strides, &value_strides});
  visit_compute(x.dtype, [&]<class C> {
    const auto beats = [op](C a, C b) { return op == ArgReduceOp::argmax ? a > b : a < b; };
    const auto best_of = [&](int64_t offset) {
      C buffer[kBlock], best{};
      int64_t best_index = -1;
      for (int64_t i = 0; i < size; i += kBlock) {
        const int64_t count = std::min(kBlock, size - i);
        const C* from = load_block(x.data, x.dtype, offset + i * step, step, count, buffer);
        for (int64_t j = 0; j < count; ++j) {
          if (best_index >= 0 && !beats(from[j], best) && !scalar::is_nan(from[j])) continue;
          best = from[j], best_index = i + j;
          if (scalar::is_nan(best)) return best_index;  // the first NaN wins
        }
      }
      return best_index;
    };
    const int64_t index_step = step_of(nest, 0), x_step = step_of(nest, 1), value_step = step_of(nest, 2);
    parallel_for(nest.numel, divide_up(kGrain, std::max<int64_t>(size, 1)), [&](int64_t begin, int64_t end) {
      for_each_run(nest, begin, end, [&](const int64_t* at, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t offset = at[1] + i * x_step, best = best_of(offset);
          indices.as<int64_t>()[at[0] + i * index_step] = best;
          if (!values.data) continue;
          const size_t bytes = size_of(x.dtype);
          std::memcpy(values.as<char>() + static_cast<size_t>(at[2] + i * value_step) * bytes,
                      x.as<char>() + static_cast<size_t>(offset + best * step) * bytes, bytes);
        }
      });
    });
  });
}

}  // namespace gradus
