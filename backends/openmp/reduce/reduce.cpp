// Reductions. Threads share blocks of results and segments ("stretches") of the elements that each result reduces
// (WorkSplit); the segments of a result are combined in order. Floats are summed in float over short runs, and the sums
// of these runs in double.
#include <limits>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/rows.h>
#include <gradus/backends/openmp/simd/work_split.h>
#include <gradus/core/formulas/integers.h>
#include <gradus/core/formulas/scalar_binary.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

constexpr int64_t kRows = 64;
constexpr int64_t kSummed = 2 * kBlock;  // maximum number of elements that are summed in float

// The neutral element of the reduction.
template <BinaryOp op, class A>
constexpr A start_of() {
  using Limits = std::numeric_limits<A>;
  if constexpr (op == BinaryOp::maximum) return std::is_integral_v<A> ? Limits::min() : -Limits::infinity();
  else if constexpr (op == BinaryOp::minimum) return std::is_integral_v<A> ? Limits::max() : Limits::infinity();
  else return A(op == BinaryOp::mul || op == BinaryOp::logical_and);
}
template <BinaryOp op, class A>
A combine(A total, A x) {
  return A(scalar::Binary<op>::apply(total, x));
}

// Calls f.template operator()<op>() with the operation that combines two elements; for a mean it is the sum.
template <class F>
void visit_combine(ReduceOp op, F&& f) {
  using enum BinaryOp;
  switch (op) {
    case ReduceOp::max: return f.template operator()<maximum>();
    case ReduceOp::min: return f.template operator()<minimum>();
    case ReduceOp::all: return f.template operator()<logical_and>();
    case ReduceOp::any: return f.template operator()<logical_or>();
    case ReduceOp::prod: return f.template operator()<mul>();
    default: return f.template operator()<add>();
  }
}

// Reduces `count` contiguous elements.
template <BinaryOp op, class C>
accumulator_t<C> reduce_block(const C* x, int64_t count) {
  using A = accumulator_t<C>;
  if constexpr (std::is_floating_point_v<C>) {
    const Kernels<C>& kernels = kernels_of<C>(kernel_table());
    if constexpr (op == BinaryOp::add) return static_cast<A>(kernels.sum(x, count));
    if constexpr (op == BinaryOp::maximum) return static_cast<A>(kernels.max(x, count));
    if constexpr (op == BinaryOp::minimum) return static_cast<A>(kernels.min(x, count));
    if constexpr (op == BinaryOp::mul) return kernels.product(x, count);
  }
  A total = start_of<op, A>();
  for (int64_t i = 0; i < count; ++i) total = combine<op, A>(total, static_cast<A>(x[i]));
  return total;
}

// Returns true if all (logical_and) or any of `count` bytes are not 0.
bool reduce_bytes(BinaryOp op, const unsigned char* x, int64_t count) {
  if (op == BinaryOp::logical_and) return std::memchr(x, 0, static_cast<size_t>(count)) == nullptr;
  unsigned char found = 0;
  for (int64_t i = 0; i < count; ++i) found |= x[i];
  return found != 0;
}

// Reduces elements [begin, end) of `nest`, the loop over the reduced axes, to one result. Element 0 of the nest is at
// `offset` in x.
template <BinaryOp op, class C>
accumulator_t<C> reduce_runs(const View& x, int64_t offset, const StridedLoop<1>& nest, int64_t begin, int64_t end) {
  using A = accumulator_t<C>;
  A total = start_of<op, A>();
  const int64_t step = step_of(nest, 0);
  constexpr bool logical = op == BinaryOp::logical_and || op == BinaryOp::logical_or;
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
  for_each_run(nest, begin, end, reduce_run);
  return total;
}

// Computes `count` neighbouring results together. The inputs of these results have stride `step` in x; the elements of
// a result are processed one after the other.
template <BinaryOp op, class C>
void reduce_columns(const View& x, int64_t offset, int64_t step, int64_t count, const StridedLoop<1>& nest,
                    int64_t begin, int64_t end, accumulator_t<C>* totals) {
  using A = accumulator_t<C>;
  constexpr bool vectors =
      std::is_floating_point_v<C> && (op == BinaryOp::add || op == BinaryOp::maximum || op == BinaryOp::minimum);
  std::fill_n(totals, count, start_of<op, A>());
  const int64_t row_step = step_of(nest, 0);
  C part[kBlock];  // the results of at most kRows rows, so that sums in type C are short
  int64_t held = 0;
  const auto add_to_totals = [&](const C* row) {
    for (int64_t j = 0; j < count; ++j) totals[j] = combine<op, A>(totals[j], static_cast<A>(row[j]));
  };
  for_each_run(nest, begin, end, [&](const int64_t* at, int64_t run) {
    C buffer[kBlock];
    for (int64_t i = 0; i < run; ++i) {
      const C* from = load_block(x, offset + at[0] + i * row_step, step, count, buffer);
      if constexpr (vectors) {
        if (held == 0) std::copy_n(from, count, part);
        else kernels_of<C>(kernel_table()).of(op).apply(part, from, part, count);
        if (++held == kRows) add_to_totals(part), held = 0;
      } else {
        add_to_totals(from);
      }
    }
  });
  if (held > 0) add_to_totals(part);
}

// Writes results [begin, end) of y from their totals. For means, divides by `count`, the number of reduced elements;
// for other reductions `count` is -1. The mean of no elements is 0 / 0, which is NaN.
template <class A>
void store_totals(const A* totals, const StridedLoop<2>& outer, int64_t begin, int64_t end, int64_t count,
                  const MutableView& y) {
  const A* total = totals + begin;
  const int64_t y_step = step_of(outer, 0);
  for_each_run(outer, begin, end, [&](const int64_t* at, int64_t run) {
    visit(y.dtype, [&]<class U> {
      U* out = y.as<U>() + at[0];
      for (int64_t i = 0; i < run; ++i, ++total)
        out[i * y_step] = count >= 0 ? scalar::convert<U>(static_cast<double>(*total) / static_cast<double>(count))
                                     : scalar::convert<U>(*total);
    });
  });
}

// totals[i] = totals[i] combined with others[i], for i < count.
template <BinaryOp op, class A>
void combine_totals(A* totals, const A* others, int64_t count) {
  for (int64_t i = 0; i < count; ++i) totals[i] = combine<op, A>(totals[i], others[i]);
}

// The loops of one operation, as pointers: reduce_as(), which divides the work, is then compiled once for all of them.
template <class C>
struct ReduceLoops {
  decltype(&reduce_columns<BinaryOp::add, C>) columns = nullptr;
  decltype(&reduce_runs<BinaryOp::add, C>) runs = nullptr;
  decltype(&combine_totals<BinaryOp::add, accumulator_t<C>>) combine = nullptr;
};

template <class C>
void reduce_as(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) {
  using A = accumulator_t<C>;
  ReduceLoops<C> loops;
  visit_combine(op, [&]<BinaryOp kOp> {
    loops = {reduce_columns<kOp, C>, reduce_runs<kOp, C>, combine_totals<kOp, A>};
  });
  Strides y_strides = y.strides;
  while (y_strides.size() < x.ndim()) y_strides.push_back(0);
  const StridedLoop<2> outer = nest_of<2>(x.shape, axes, false, {y_strides, x.strides});
  const StridedLoop<1> inner = nest_of<1>(x.shape, axes, true, {x.strides});
  if (outer.numel == 0) return;
  const int64_t x_step = step_of(outer, 1);
  // Neighbouring results are computed together if they are closer in memory than the elements that one result reduces.
  const bool columns =
      outer.ndim > 0 && outer.shape[outer.ndim - 1] > 1 && x_step < step_of(inner, 0) && inner.numel > 1;
  const WorkSplit split(outer, inner.numel, columns ? kBlock : 1);
  const Scratch<A> partial(split.stretches * outer.numel);
  split.each([&](const LaneBlock& block, int64_t s, int64_t from, int64_t to) {
    A* totals = partial.get() + s * outer.numel + block.begin;
    for_each_run(outer, block.begin, block.begin + block.count, [&](const int64_t* at, int64_t count) {
      if (columns) loops.columns(x, at[1], x_step, count, inner, from, to, totals);
      else *totals = loops.runs(x, at[1], inner, from, to);
    });
  });

  // Combines the segments of a result in order; threads share the results.
  parallel_for(outer.numel, std::max<int64_t>(1, kGrain / split.stretches), [&](int64_t begin, int64_t end) {
    for (int64_t s = 1; s < split.stretches; ++s)
      loops.combine(partial.get() + begin, partial.get() + s * outer.numel + begin, end - begin);
    store_totals(partial.get(), outer, begin, end, op == ReduceOp::mean ? inner.numel : -1, y);
  });
}

// The extreme element of a row, which is processed part by part, and its position; among equal elements the first. NaN
// is more extreme than all numbers.
template <class C>
struct Best {
  C value;
  int64_t place;  // -1 before the first part

  // Processes elements [begin, begin + count) of the row.
  void add(ArgReduceOp op, const C* x, int64_t begin, int64_t count) {
    const bool largest = op == ArgReduceOp::argmax;
    if constexpr (std::is_floating_point_v<C>) {
      const Kernels<C>& kernels = kernels_of<C>(kernel_table());
      const C extreme = (largest ? kernels.max : kernels.min)(x, count);
      if (beats(largest, extreme)) value = extreme, place = begin + kernels.find(x, extreme, count);
    } else {
      const C* extreme = largest ? std::max_element(x, x + count) : std::min_element(x, x + count);
      if (beats(largest, *extreme)) value = *extreme, place = begin + (extreme - x);
    }
  }

 private:
  bool beats(bool largest, C other) const {
    if (place < 0) return true;
    if (scalar::is_nan(value)) return false;
    return scalar::is_nan(other) || (largest ? other > value : other < value);
  }
};

}  // namespace

void OpenmpBackend::reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) {
  const bool vectors = (op == ReduceOp::sum || op == ReduceOp::mean) && is_floating(x.dtype);
  EventScope event(gradus::name(op), "openmp", vectors ? kernel_table().vectors : "loops", {&x, &y}, x.numel());
  visit_compute(x.dtype, [&]<class C> { reduce_as<C>(op, x, axes, y); });
}

void OpenmpBackend::arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                               const MutableView& indices) {
  EventScope event(op == ArgReduceOp::argmax ? "argmax" : "argmin", "openmp", "loops", {&x, &indices}, x.numel());
  const Strides& value_strides = values.data ? values.strides : indices.strides;
  const RowsAlong<3> rows(x.shape, axis, {&x.strides, &indices.strides, &value_strides});
  const auto bytes = static_cast<int64_t>(size_of(x.dtype));
  visit_compute(x.dtype, [&]<class C> {
    // Contiguous rows are processed as a whole. Other rows are copied to a buffer in parts, so that the size of the
    // buffer does not depend on the row's length.
    constexpr int64_t kMostInBuffer = 1024;
    const bool in_place = rows.together == 1 && rows.along[0] == 1 && x.dtype == dtype_of<C>;
    const int64_t length = in_place ? rows.size : std::min(rows.size, kMostInBuffer);
    const int64_t tail = rows.size - (ceil_div(rows.size, length) - 1) * length;
    const RowsAlong<3> part = rows.of_size(length), last = rows.of_size(tail);
    rows.template each_with_room<C>(in_place ? 0 : part.room(), [&](C* buffer, const int64_t* at, int64_t count) {
      Best<C> best[RowsAlong<3>::kMostTogether];
      std::fill_n(best, count, Best<C>{C(), -1});
      for (int64_t begin = 0; begin < rows.size; begin += length) {
        const RowsAlong<3>& now = begin + length < rows.size ? part : last;
        const int64_t offset = at[0] + begin * rows.along[0];
        const C* row = now.load(0, x, &offset, count, buffer);
        for (int64_t i = 0; i < count; ++i) best[i].add(op, row + i * now.pitch, begin, now.size);
      }
      for (int64_t i = 0; i < count; ++i) {
        indices.as<int64_t>()[at[1] + i * step_of(rows.nest, 1)] = best[i].place;
        if (!values.data) continue;
        const int64_t from = at[0] + i * step_of(rows.nest, 0) + best[i].place * rows.along[0];
        std::memcpy(values.as<char>() + (at[2] + i * step_of(rows.nest, 2)) * bytes, x.as<char>() + from * bytes,
                    size_of(x.dtype));
      }
    });
  });
}

// Running sums and products along an axis. Threads share the rows. Rows that are neighbours in memory are processed
// together, so that the inner loop runs over rows. One thread computes all sums of a row, in order.
void OpenmpBackend::scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) {
  if (is_floating(x.dtype) && !is_floating(y.dtype)) return NaiveBackend::scan(op, x, axis, reverse, y);
  EventScope event(op == ScanOp::sum ? "cumsum" : "cumprod", "openmp", "loops", {&x, &y}, x.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1, x_along = step_along(x, axis), y_along = step_along(y, axis);
  const StridedLoop<2> nest(reduced_shape(y.shape, 1u << axis, true), {&y.strides, &x.strides});
  if (size == 0 || nest.numel == 0) return;
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1);
  // What is loaded at once is a block of one row or, if neighbouring rows are closer in memory than the elements of a
  // row, one element of each of several rows.
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
