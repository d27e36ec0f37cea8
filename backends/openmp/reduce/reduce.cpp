// Reductions. Threads share out blocks of the result and stretches of what each of them reduces (WorkSplit); the
// stretches of an element are combined in order. Sums of floats are added up in float over short runs and from there on
// in double.
#include <limits>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/work_split.h>
#include <gradus/core/observer.h>
#include <gradus/core/wrapping.h>

namespace gradus {
namespace {

using namespace openmp_detail;

constexpr int64_t kRows = 64;
constexpr int64_t kSummed = 2 * kBlock;  // elements that are added up in their own type and in place

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

// `count` neighbours.
template <ReduceOp op, class C>
accumulator_t<C> reduce_block(const C* x, int64_t count) {
  using A = accumulator_t<C>;
  if constexpr (std::is_floating_point_v<C>) {
    const Kernels<C>& kernels = kernels_of<C>(kernel_table());
    if constexpr (op == ReduceOp::sum) return static_cast<A>(kernels.sum(x, count));
    if constexpr (op == ReduceOp::max) return static_cast<A>(kernels.max(x, count));
    if constexpr (op == ReduceOp::min) return static_cast<A>(kernels.min(x, count));
    if constexpr (op == ReduceOp::prod) return kernels.product(x, count);
  }
  constexpr int64_t kChains = 8;  // of operations that wait for one another
  A part[kChains];
  std::fill_n(part, kChains, start_of<A>(op));
  int64_t i = 0;
  for (; i + kChains <= count; i += kChains)
    for (int64_t k = 0; k < kChains; ++k) part[k] = combine<op, A>(part[k], static_cast<A>(x[i + k]));
  for (; i < count; ++i) part[0] = combine<op, A>(part[0], static_cast<A>(x[i]));
  for (int64_t k = 1; k < kChains; ++k) part[0] = combine<op, A>(part[0], part[k]);
  return part[0];
}

// Whether all or any of `count` bytes are not 0.
bool reduce_bytes(ReduceOp op, const unsigned char* x, int64_t count) {
  if (op == ReduceOp::all) return std::memchr(x, 0, static_cast<size_t>(count)) == nullptr;
  unsigned char found = 0;
  for (int64_t i = 0; i < count; ++i) found |= x[i];
  return found != 0;
}

// One element: elements [begin, end) of the reduced nest, starting at `offset`.
template <ReduceOp op, class C>
accumulator_t<C> reduce_runs(const View& x, int64_t offset, const StridedLoop<1>& nest, int64_t begin, int64_t end) {
  using A = accumulator_t<C>;
  A total = start_of<A>(op);
  const int64_t step = step_of(nest, 0);
  constexpr bool logical = op == ReduceOp::all || op == ReduceOp::any;
  const bool bytes = logical && step == 1 && size_of(x.dtype) == 1;
  const int64_t block = step == 1 && x.dtype == dtype_of<C> ? kSummed : kBlock;
  const auto reduce_run = [&](const int64_t* at, int64_t run) {
    if (bytes) {
      total = combine<op, A>(total, reduce_bytes(op, x.as<unsigned char>() + offset + at[0], run) ? A(1) : A(0));
      return;
    }
    C buffer[kBlock];
    for (int64_t i = 0, count; i < run; i += count) {
      count = std::min(block, run - i);
      const C* from = load_block(x, offset + at[0] + i * step, step, count, buffer);
      total = combine<op, A>(total, reduce_block<op, C>(from, count));
    }
  };
  const int64_t only = begin * step;
  if (nest.ndim == 1 && begin < end) reduce_run(&only, end - begin);
  else for_each_run(nest, begin, end, reduce_run);
  return total;
}

// `count` neighbours of the result at once, `step` apart in x: their reduced elements follow each other.
template <ReduceOp op, class C>
void reduce_columns(const View& x, int64_t offset, int64_t step, int64_t count, const StridedLoop<1>& nest,
                    int64_t begin, int64_t end, accumulator_t<C>* totals) {
  using A = accumulator_t<C>;
  constexpr bool vectors =
      std::is_floating_point_v<C> && (op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::min);
  std::fill_n(totals, count, start_of<A>(op));
  const int64_t row_step = step_of(nest, 0);
  C part[kBlock];  // of up to kRows rows: short sums
  int64_t held = 0;
  const auto add_to_totals = [&](const C* row) {
    for (int64_t j = 0; j < count; ++j) totals[j] = combine<op, A>(totals[j], static_cast<A>(row[j]));
  };
  for_each_run(nest, begin, end, [&](const int64_t* at, int64_t run) {
    C buffer[kBlock];
    for (int64_t i = 0; i < run; ++i) {
      const C* from = load_block(x, offset + at[0] + i * row_step, step, count, buffer);
      if constexpr (vectors) {
        constexpr BinaryOp fold = op == ReduceOp::sum   ? BinaryOp::add
                                  : op == ReduceOp::max ? BinaryOp::maximum
                                                        : BinaryOp::minimum;
        if (held == 0) std::copy_n(from, count, part);
        else kernels_of<C>(kernel_table()).of(fold).apply(part, from, part, count);
        if (++held == kRows) add_to_totals(part), held = 0;
      } else {
        add_to_totals(from);
      }
    }
  });
  if (held > 0) add_to_totals(part);
}

template <ReduceOp op, class C>
void reduce_as(ReduceOp asked, const View& x, uint32_t axes, const MutableView& y) {
  using A = accumulator_t<C>;
  Strides y_strides = y.strides;
  while (y_strides.size() < x.ndim()) y_strides.push_back(0);
  const StridedLoop<2> outer = nest_of<2>(x.shape, axes, false, {y_strides, x.strides});
  const StridedLoop<1> inner = nest_of<1>(x.shape, axes, true, {x.strides});
  if (outer.numel == 0) return;
  const int64_t y_step = step_of(outer, 0), x_step = step_of(outer, 1);
  // Neighbours together where they are closer in memory than what one of them reduces.
  const bool columns =
      outer.ndim > 0 && outer.shape[outer.ndim - 1] > 1 && x_step < step_of(inner, 0) && inner.numel > 1;
  const WorkSplit split(outer, inner.numel, columns ? kBlock : 1);
  const Scratch<A> partial(split.stretches * outer.numel);
  split.each([&](const LaneBlock& block, int64_t s, int64_t from, int64_t to) {
    A* totals = partial.get() + s * outer.numel + block.begin;
    for_each_run(outer, block.begin, block.begin + block.count, [&](const int64_t* at, int64_t count) {
      if (columns) reduce_columns<op, C>(x, at[1], x_step, count, inner, from, to, totals);
      else *totals = reduce_runs<op, C>(x, at[1], inner, from, to);
    });
  });

  // The stretches of an element in order, neighbours side by side.
  const double count = static_cast<double>(inner.numel);
  parallel_for(outer.numel, std::max<int64_t>(1, kGrain / split.stretches), [&](int64_t begin, int64_t end) {
    for (int64_t s = 1; s < split.stretches; ++s)
      for (int64_t i = begin; i < end; ++i) partial[i] = combine<op, A>(partial[i], partial[s * outer.numel + i]);
    const A* total = partial.get() + begin;
    visit(y.dtype, [&]<class U> {
      for_each_run(outer, begin, end, [&](const int64_t* at, int64_t run) {
        U* out = y.as<U>() + at[0];
        for (int64_t i = 0; i < run; ++i, ++total)
          out[i * y_step] = asked == ReduceOp::mean
                                ? scalar::convert<U>(static_cast<double>(*total) / count)  // 0 / 0 is NaN
                                : scalar::convert<U>(*total);
      });
    });
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
    const bool direct = x.dtype == dtype_of<C> && step == 1;
    const auto best_of = [&](int64_t offset) {
      C buffer[kBlock], best{};
      int64_t best_index = -1;
      for (int64_t i = 0, count; i < size; i += count) {
        count = direct ? size : std::min(kBlock, size - i);
        const C* from = load_block(x, offset + i * step, step, count, buffer);
        if constexpr (std::is_floating_point_v<C>) {
          const Kernels<C>& kernels = kernels_of<C>(kernel_table());
          const C found = (op == ArgReduceOp::argmax ? kernels.max : kernels.min)(from, count);
          if (best_index < 0 || beats(found, best) || scalar::is_nan(found))
            best = found, best_index = i + kernels.find(from, found, count);
          if (scalar::is_nan(found)) return best_index;  // the first NaN wins
        } else {
          for (int64_t j = 0; j < count; ++j)
            if (best_index < 0 || beats(from[j], best)) best = from[j], best_index = i + j;
        }
      }
      return best_index;
    };
    const int64_t index_step = step_of(nest, 0), x_step = step_of(nest, 1), value_step = step_of(nest, 2);
    // Neighbouring columns together, where they are adjacent in memory.
    const bool columns = std::is_floating_point_v<C> && x.dtype == dtype_of<C> && nest.ndim > 0 && x_step == 1 &&
                         step > 1 && size <= INT32_MAX;
    const auto best_of_run = [&](const int64_t* at, int64_t count) {
      int64_t rows[kBlock];  // of the extremes of neighbouring columns
      for (int64_t i = 0; i < count; ++i) {
        const int64_t offset = at[1] + i * x_step;
        if constexpr (std::is_floating_point_v<C>)
          if (columns && i % kBlock == 0) {
            C best[kBlock];
            kernels_of<C>(kernel_table())
                .lane_extremes({x.as<C>() + offset, step, size, std::min(kBlock, count - i)}, op == ArgReduceOp::argmax,
                               best, rows);
          }
        const int64_t best = columns ? rows[i % kBlock] : best_of(offset);
        indices.as<int64_t>()[at[0] + i * index_step] = best;
        if (!values.data) continue;
        const size_t bytes = size_of(x.dtype);
        std::memcpy(values.as<char>() + static_cast<size_t>(at[2] + i * value_step) * bytes,
                    x.as<char>() + static_cast<size_t>(offset + best * step) * bytes, bytes);
      }
    };
    parallel_runs(nest, best_of_run, ceil_div(kGrain, std::max<int64_t>(size, 1)));
  });
}

// Running totals along an axis. Rows are shared out among the threads; rows that are neighbours in memory go together,
// so that the inner loop runs over them. A row is one chain of sums, whatever the number of threads.
void OpenmpBackend::scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) {
  if (is_floating(x.dtype) && !is_floating(y.dtype)) return NaiveBackend::scan(op, x, axis, reverse, y);
  EventScope event(op == ScanOp::sum ? "cumsum" : "cumprod", "openmp", "loops", {&x, &y}, x.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1, x_along = step_along(x, axis), y_along = step_along(y, axis);
  const StridedLoop<2> nest(rows_of(y.shape, axis), {&y.strides, &x.strides});
  if (size == 0 || nest.numel == 0) return;
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1);
  // At a time: a block of one row, or, where neighbours are closer than the elements of a row, an element of several.
  const bool apart = x_step >= x_along;
  const int64_t together = apart ? 1 : 64, block = apart ? kBlock : 1;
  const auto scan_rows = [&]<class C, class U>(const int64_t* at, int64_t rows) {  // loads as C, stores as U
    using A = accumulator_t<U>;
    C x_buffer[kBlock];
    U results[kBlock];
    A totals[kBlock];
    std::fill_n(totals, rows, op == ScanOp::sum ? A(0) : A(1));
    for (int64_t done = 0, count; done < size; done += count) {
      count = std::min(block, size - done);
      const int64_t first = reverse ? size - done - count : done;
      const C* from = load_block(x, at[1] + first * x_along, apart ? x_along : x_step, count * rows, x_buffer);
      const auto next = [&](A& total, int64_t k) {
        const A element = static_cast<A>(from[k]);
        total = op == ScanOp::sum ? total + element : wrapping_product(total, element);
        results[k] = static_cast<U>(total);
      };
      if (apart)
        for (int64_t i = 0; i < count; ++i) next(totals[0], reverse ? count - 1 - i : i);
      else
        for (int64_t row = 0; row < rows; ++row) next(totals[row], row);
      store_block(results, y, at[0] + first * y_along, apart ? y_along : y_step, count * rows);
    }
  };
  visit_compute(x.dtype, [&]<class C> {
    visit_compute(y.dtype, [&]<class U> {
      const auto scan_run = [&](const int64_t* at, int64_t run) {
        for (int64_t i = 0; i < run; i += together) {
          const int64_t offsets[] = {at[0] + i * y_step, at[1] + i * x_step};
          scan_rows.template operator()<C, U>(offsets, std::min(together, run - i));
        }
      };
      parallel_runs(nest, scan_run, round_up(ceil_div(kGrain, size), together));
    });
  });
}

}  // namespace gradus
