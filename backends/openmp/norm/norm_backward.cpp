// With g = dy w, s = 1 / sqrt(variance + eps) and h = (x - mean) s:  dx = s (g - avg(g) - h avg(g h)),  dw = sum(dy h),
// db = sum(dy). If the weight is constant for each outer element or cell, all three follow from the sums of dy and dy h
// for each of these. Otherwise (layer norm; group norm by rows) each thread sums dw and db over the rows that it
// computes, and these sums are added in order. With a ReLU, the first pass masks dy while it computes the sums, and
// stores the masked dy in dresidual or in dx for the second pass. norm.h describes how threads share the elements.
#include <gradus/backends/openmp/norm/norm.h>

#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

constexpr int64_t kFlush = 64;       // rows after which float sums are added to double sums
constexpr int64_t kCellGrain = 512;  // cells whose statistics a thread computes

// Sums of g and of g (x - mean) over a range.
struct Sums {
  double plain = 0, product = 0;
  void add(const Sums& other) { plain += other.plain, product += other.product; }
  Sums times(double weight) const { return {plain * weight, product * weight}; }
  // Adds the sums of a block times a weight. sums[1] is the sum of g (x - high), where `high` is the first part of the
  // mean (Statistics).
  template <class C>
  void add(const Statistics<C>& of, const C (&sums)[2], double weight) {
    const double sum = static_cast<double>(sums[0]);
    add({weight * sum, weight * (static_cast<double>(sums[1]) - of.low * sum)});
  }
};

template <class C>
class NormalizeBackward {
 public:
  explicit NormalizeBackward(const NormalizeBackwardArgs& args)
      : dy_(args.dy), x_(args.x), mean_(args.mean), variance_(args.variance), y_(args.y),
        weight_(parameter(args.weight, x_.ndim(), kOne)), eps_(args.eps), fixed_(args.fixed_statistics), dx_(args.dx),
        dweight_(args.dweight), dbias_(args.dbias), masked_(args.dresidual || !args.y ? args.dresidual : args.dx),
        shape_(dweight_ ? dweight_.shape
               : dbias_ ? dbias_.shape
                        : Dims::filled(x_.ndim(), 1)),
        dense_(dense_strides(shape_, x_)), parameters_(numel_of(shape_)),
        lane_axes_(lane_axes(x_, args.axes, {&weight_.strides, &dense_})),
        inner_axes_(lane_axes_ ? lane_axes_ : args.axes), results_(reduced_shape(x_.shape, args.axes, true)),
        outer_(operands(false)), inner_(operands(true)),
        cells_(nest_of<10>(x_.shape, inner_axes_, false,
                           {x_.strides, dy_.strides, zero_if_absent(dx_), weight_.strides, dense_, zero_if_absent(y_),
                            zero_if_absent(masked_), result_strides(mean_, args.axes),
                            result_strides(variance_, args.axes), dense_strides(results_, x_)})),
        slab_(slab_of(x_, args.axes, cells_.numel)), by_element_(varies(inner_, 3) || varies(inner_, 4)) {}

  void run() {
    if (lane_axes_) run_by_lanes();
    else if (!by_element_ || (!dweight_ && !dbias_)) run_by_rows();
    else if (inner_.ndim == 1 && parameters_ > 32 * outer_.numel) columns_with_parameters();
    else rows_with_parameters();
  }

 private:
  using Offsets = std::array<int64_t, 7>;
  using CellOffsets = std::array<int64_t, 10>;

  StridedLoop<7> operands(bool inner) const {
    return nest_of<7>(x_.shape, inner_axes_, inner,
                      {x_.strides, dy_.strides, zero_if_absent(dx_), weight_.strides, dense_, zero_if_absent(y_),
                       zero_if_absent(masked_)});
  }

  // ---- One outer element at a time ----

  void run_by_rows() const {
    const WorkSplit split(outer_, inner_.numel, 1);
    const bool at_once = split.stretches == 1;  // writes dx while the row is still in the cache
    Zeros<Sums> partial(outer_.numel * split.stretches);
    split.each([&](const LaneBlock& row, int64_t s, int64_t begin, int64_t end) {
      const Offsets at = offsets_of(outer_, row.begin);
      const Statistics<C> of = statistics_of(offsets_of(cells_, row.begin));
      Sums& sums = partial[s * outer_.numel + row.begin];
      sums = sums_of(at, of, begin, end, nullptr, nullptr);
      if (at_once && dx_) write_row(at, of, sums, begin, end);
    });
    Zeros<Sums> total(outer_.numel);
    for (int64_t s = 0; s < split.stretches; ++s)
      for (int64_t o = 0; o < outer_.numel; ++o) total[o].add(partial[s * outer_.numel + o]);
    if (!at_once) write_rows(total);
    if (dweight_)
      for_each_element(cells_, 0, cells_.numel,
                       [&](int64_t o, const CellOffsets& at) { total[o].product *= statistics_of(at).scale; });
    write_parameters_of_cells(total);
  }

  // Divides the rows into groups; each group sums the gradients of the parameters in its own memory.
  void rows_with_parameters() const {
    const int64_t most = std::clamp<int64_t>((int64_t{1} << 20) / parameters_, 1, kWantedStretches);
    const int64_t group = std::max({ceil_div(outer_.numel, most), ceil_div(kGrain, inner_.numel),
                                    std::min(2 * kFlush, ceil_div(outer_.numel, 8))});
    const int64_t groups = ceil_div(outer_.numel, group);
    const Scratch<double> totals(groups * 2 * parameters_);
    parallel_chunks<C>(outer_.numel, group, slot_size(2 * parameters_), [&](int64_t begin, int64_t end, C* buffer) {
      double* total = totals.get() + begin / group * 2 * parameters_;
      std::fill_n(total, 2 * parameters_, 0.0);
      std::fill_n(buffer, 2 * parameters_, C(0));
      const auto flush = [&] {
        for (int64_t i = 0; i < 2 * parameters_; ++i) total[i] += static_cast<double>(buffer[i]), buffer[i] = 0;
      };
      for (int64_t o = begin; o < end; ++o) {
        const Offsets at = offsets_of(outer_, o);
        const Statistics<C> statistics = statistics_of(offsets_of(cells_, o));
        const Sums sums = sums_of(at, statistics, 0, inner_.numel, buffer, buffer + parameters_);
        if (dx_) write_row(at, statistics, sums, 0, inner_.numel);
        if ((o - begin) % kFlush == kFlush - 1 || o + 1 == end) flush();  // keeps float sums short
      }
    });
    for (int64_t g = 1; g < groups; ++g)
      for (int64_t i = 0; i < 2 * parameters_; ++i) totals[i] += totals[g * 2 * parameters_ + i];
    write_parameters(totals.get(), totals.get() + parameters_);
  }

  // For few long rows (layer norm of images): the threads share the parameters, each of which is summed over all rows.
  void columns_with_parameters() const {
    constexpr int64_t kColumns = 2048;
    const int64_t rows = outer_.numel, segments = ceil_div(parameters_, kColumns);
    const Scratch<C> buffer(2 * parameters_);
    const Scratch<double> totals(2 * parameters_);
    Zeros<Sums> partial(segments * rows), sums(rows);
    parallel_each(segments, 1, [&](int64_t s) {
      const int64_t begin = s * kColumns, end = std::min(parameters_, begin + kColumns);
      for (const int64_t first : {begin, begin + parameters_}) {
        std::fill_n(buffer.get() + first, end - begin, C(0));
        std::fill_n(totals.get() + first, end - begin, 0.0);
      }
      for (int64_t o = 0; o < rows; ++o) {
        partial[s * rows + o] = sums_of(offsets_of(outer_, o), statistics_of(offsets_of(cells_, o)), begin, end,
                                        buffer.get(), buffer.get() + parameters_);
        if (o % kFlush != kFlush - 1 && o + 1 != rows) continue;
        for (const int64_t first : {begin, begin + parameters_})
          for (int64_t i = first; i < first + end - begin; ++i)
            totals[i] += static_cast<double>(buffer[i]), buffer[i] = 0;
      }
    });
    for (int64_t s = 0; s < segments; ++s)
      for (int64_t o = 0; o < rows; ++o) sums[o].add(partial[s * rows + o]);
    write_rows(sums);
    write_parameters(totals.get(), totals.get() + parameters_);
  }

  // The sums over inner elements [begin, end) of g and of g (x - mean), where g is dy if the weight is constant for
  // each outer element, else dy w. Also adds dy h to dw and dy to db if these are not null.
  Sums sums_of(const Offsets& o, const Statistics<C>& of, int64_t begin, int64_t end, C* dw, C* db) const {
    Sums total;
    const int64_t w_step = step_of(inner_, 3), p_step = inner_.ndim > 0 ? step_of(inner_, 4) : 0;
    for_each_block<1>(inner_, 1, begin, end, [&](const Block<1>& block) {
      C x_buffer[kBlock], dy_buffer[kBlock], w_buffer[kBlock], g_buffer[kBlock];
      const int64_t count = block.lanes, p = o[4] + block.run[4] + block.first * p_step;
      const C *x = part(x_, 0, o, block).load(x_buffer).data, *dy = gradient(o, block, dy_buffer).data;
      const C scale = static_cast<C>(of.scale), low = static_cast<C>(of.low);
      C sums[2];
      if (dw && p_step == 1) {
        const C* w = part(weight_, 3, o, block).load(w_buffer).data;
        kernels().gradient_sums({count, dy, w, x, of.high, low, scale, dw + p, db + p}, sums);
        return total.add(of, sums, 1);
      }
      if (dw && p_step != 0)
        for (int64_t k = 0; k < count; ++k)
          dw[p + k * p_step] += dy[k] * ((x[k] - of.high - low) * scale), db[p + k * p_step] += dy[k];
      if (by_element_ && w_step != 0) {
        kernels().of(BinaryOp::mul).apply(dy, part(weight_, 3, o, block).load(w_buffer).data, g_buffer, count);
        dy = g_buffer;
      }
      kernels().products_about(dy, x, of.high, count, sums);
      if (dw && p_step == 0) dw[p] += (sums[1] - low * sums[0]) * scale, db[p] += sums[0];
      total.add(of, sums, constant_weight(o, block));
    });
    return total;
  }

  // The weight of a block if the weight varies only between runs, else 1.
  double constant_weight(const Offsets& o, const Block<1>& block) const {
    return by_element_ && step_of(inner_, 3) == 0 ? load_number(weight_, o[3] + block.run[3]) : 1;
  }

  // The part of an operand that belongs to a block.
  template <int64_t most, class AnyView>
  BlockOf<most, AnyView> part(const AnyView& view, int k, const Offsets& o, const Block<most>& block) const {
    return {view, k, outer_, o, inner_, block};
  }

  // dy of a block. With a ReLU it is masked and stored in masked_ for the second pass.
  template <int64_t most>
  RowsOf<const C> gradient(const Offsets& o, const Block<most>& block, C* buffer) const {
    const RowsOf<const C> dy = part(dy_, 1, o, block).load(buffer);
    if (!y_) return dy;
    C y_buffer[block.kSize];
    const auto masked = part(masked_, 6, o, block);
    const RowsOf<C> to = masked.results(buffer);
    relu_gradient(dy, part(y_, 5, o, block).load(y_buffer), to);
    masked.store(to, buffer);
    return {to.data, to.stride, to.rows, to.lanes};
  }
  // The gradient for the second pass: dy, or the masked dy that the first pass has stored.
  template <int64_t most>
  RowsOf<const C> second_gradient(const Offsets& o, const Block<most>& block, C* buffer) const {
    return masked_ ? part(masked_, 6, o, block).load(buffer) : part(dy_, 1, o, block).load(buffer);
  }

  // The coefficients of dx = a g + b (x - high) + c, where `high` is the first part of the mean (Statistics).
  struct Coefficients {
    double a, b, c;
  };
  // `sums` are the sums of the outer element, multiplied by the weight w.
  Coefficients coefficients(const Statistics<C>& of, const Sums& sums, double w) const {
    const int64_t count = x_.numel() / numel_of(results_);
    const double n = static_cast<double>(count), s = of.scale;
    if (fixed_) return {s * w, 0, 0};
    const double average_g = sums.plain / n, slope = s * s * s * (sums.product / n);
    return {s * w, -slope, slope * of.low - s * average_g};
  }

  void write_row(const Offsets& o, const Statistics<C>& of, const Sums& sums, int64_t begin, int64_t end) const {
    const double w0 = by_element_ ? 1 : load_number(weight_, o[3]);
    const Coefficients k = coefficients(of, sums.times(w0), w0);
    const bool varies = by_element_ && step_of(inner_, 3) != 0;  // the weight varies along the run
    for_each_block<1>(inner_, 1, begin, end, [&](const Block<1>& block) {
      const C a = static_cast<C>(k.a * constant_weight(o, block)), b = static_cast<C>(k.b), c = static_cast<C>(k.c);
      C x_buffer[kBlock], dy_buffer[kBlock], w_buffer[kBlock], dx_buffer[kBlock];
      const C* w = varies ? part(weight_, 3, o, block).load(w_buffer).data : nullptr;
      const auto dx = part(dx_, 2, o, block);
      const RowsOf<C> to = dx.results(dx_buffer);
      kernels().combine(second_gradient(o, block, dy_buffer).data, w, part(x_, 0, o, block).load(x_buffer).data,
                        of.high, a, b, c, to.data, block.lanes);
      dx.store(to, dx_buffer);
    });
  }

  // Computes dx, if it is wanted, from the sums of all outer elements.
  void write_rows(const Zeros<Sums>& sums) const {
    if (!dx_) return;
    WorkSplit(outer_, inner_.numel, 1).each([&](const LaneBlock& row, int64_t, int64_t begin, int64_t end) {
      const int64_t o = row.begin;
      write_row(offsets_of(outer_, o), statistics_of(offsets_of(cells_, o)), sums[o], begin, end);
    });
  }

  // ---- Neighbouring cells together ----

  // dx = a g + b (x - shift) + c, for each cell.
  struct LaneCoefficients {
    explicit LaneCoefficients(int64_t cells) : shift(cells), a(cells), b(cells), c(cells) {}
    Scratch<C> shift, a, b, c;
  };

  void run_by_lanes() const {
    const WorkSplit split(outer_, inner_.numel, kMostLanes);
    const int64_t cells = outer_.numel;
    Zeros<Statistics<C>> statistics(cells);
    Zeros<Sums> partial(cells * split.stretches), total(cells);
    Zeros<Sums> of_results(numel_of(results_));
    const LaneCoefficients k(cells);
    parallel_for(cells, kCellGrain, [&](int64_t first, int64_t last) {
      for_each_element(cells_, first, last, [&](int64_t cell, const CellOffsets& at) {
        statistics[cell] = statistics_of(at);
        k.shift[cell] = statistics[cell].high;
      });
    });
    split.each_twice(
        slab_,
        [&](const LaneBlock& lanes, int64_t s, int64_t begin, int64_t end) {
          lane_sums(lanes, &statistics[lanes.begin], k.shift.get() + lanes.begin, begin, end,
                    &partial[s * cells + lanes.begin]);
        },
        [&](int64_t first, int64_t last) {
          for_each_element(cells_, first, last, [&](int64_t cell, const CellOffsets& at) {
            Sums& sums = total[cell];
            for (int64_t s = 0; s < split.stretches; ++s) sums.add(partial[s * cells + cell]);
            of_results[at[9]].add(sums.times(load_number(weight_, at[3])));
          });
          for_each_element(cells_, first, last, [&](int64_t cell, const CellOffsets& at) {
            const Coefficients found = coefficients(statistics[cell], of_results[at[9]], load_number(weight_, at[3]));
            k.a[cell] = static_cast<C>(found.a), k.b[cell] = static_cast<C>(found.b);
            k.c[cell] = static_cast<C>(found.c);
            total[cell].product *= statistics[cell].scale;
          });
        },
        [&](const LaneBlock& lanes, int64_t, int64_t begin, int64_t end) {
          if (dx_) write_lanes(lanes, begin, end, k);
        });
    write_parameters_of_cells(total);
  }

  void lane_sums(const LaneBlock& lanes, const Statistics<C>* of, const C* shift, int64_t begin, int64_t end,
                 Sums* total) const {
    const Offsets o = offsets_of(outer_, lanes.begin);
    for_each_block<kMostLanes>(inner_, lanes.count, begin, end, [&](const Block<kMostLanes>& block) {
      C x_buffer[block.kSize], dy_buffer[block.kSize], plain[kMostLanes], product[kMostLanes];
      kernels().lane_products(gradient(o, block, dy_buffer), part(x_, 0, o, block).load(x_buffer), shift, plain,
                              product);
      for (int64_t c = 0; c < lanes.count; ++c) {
        const double sum = static_cast<double>(plain[c]);
        total[c].add({sum, static_cast<double>(product[c]) - of[c].low * sum});
      }
    });
  }

  void write_lanes(const LaneBlock& lanes, int64_t begin, int64_t end, const LaneCoefficients& k) const {
    const Offsets o = offsets_of(outer_, lanes.begin);
    const int64_t first = lanes.begin;
    for_each_block<kMostLanes>(inner_, lanes.count, begin, end, [&](const Block<kMostLanes>& block) {
      C x_buffer[block.kSize], dy_buffer[block.kSize], dx_buffer[block.kSize];
      const auto dx = part(dx_, 2, o, block);
      const RowsOf<C> to = dx.results(dx_buffer);
      kernels().lane_combine(second_gradient(o, block, dy_buffer), part(x_, 0, o, block).load(x_buffer),
                             k.shift.get() + first, k.a.get() + first, k.b.get() + first, k.c.get() + first, to);
      dx.store(to, dx_buffer);
    });
  }

  // ---- Gradients of the parameters ----

  // Adds up the sums of dy and dy h of all outer elements or cells.
  void write_parameters_of_cells(const Zeros<Sums>& total) const {
    if (!dweight_ && !dbias_) return;
    Zeros<double> dw(parameters_), db(parameters_);
    for_each_element(cells_, 0, cells_.numel, [&](int64_t cell, const CellOffsets& at) {
      const Sums& sums = total[cell];
      dw[at[4]] += sums.product;
      db[at[4]] += sums.plain;
    });
    write_parameters(&dw[0], &db[0]);
  }

  void write_parameters(const double* dw, const double* db) const {
    const Strides &w = dweight_ ? dweight_.strides : dense_, &b = dbias_ ? dbias_.strides : dense_;
    const StridedLoop<3> nest(shape_, {&dense_, &w, &b});
    parallel_for(nest.numel, kGrain, [&](int64_t begin, int64_t end) {
      for_each_element(nest, begin, end, [&](int64_t, const std::array<int64_t, 3>& at) {
        if (dweight_) store_number(dweight_, at[1], dw[at[0]]);
        if (dbias_) store_number(dbias_, at[2], db[at[0]]);
      });
    });
  }

  static const Kernels<C>& kernels() { return kernels_of<C>(kernel_table()); }
  Statistics<C> statistics_of(const CellOffsets& at) const {
    return {load_number(mean_, at[7]), load_number(variance_, at[8]), eps_};
  }
  Strides zero_if_absent(const StridedLayout& view) const { return strides_or_zero(view, x_.ndim()); }

  static constexpr C kOne = 1;
  const View &dy_, &x_, &mean_, &variance_, &y_;  // y_: the forward result if a ReLU was applied, else empty
  const View weight_;
  const double eps_;
  const bool fixed_;
  const MutableView &dx_, &dweight_, &dbias_, &masked_;  // masked_: receives the masked dy if there is a ReLU
  const Shape shape_;                                    // shape of the parameters, with x's rank
  const Strides dense_;                    // strides of an array of this shape, in which their gradients are summed
  const int64_t parameters_;               // its number of elements
  const uint32_t lane_axes_, inner_axes_;  // lane_axes_: 0 if the loop order is by rows
  const Shape results_;                    // shape of mean and variance
  const StridedLoop<7> outer_, inner_;     // x, dy, dx, weight, parameters, y, masked
  const StridedLoop<10> cells_;            // outer_ with mean, variance and the index of the result
  const int64_t slab_;                     // number of cells in a slab
  const bool by_element_;                  // the weight or its gradient varies along the inner axes
};

}  // namespace

void OpenmpBackend::normalize_backward(const NormalizeBackwardArgs& args) {
  const View& x = args.x;
  if (x.numel() == 0) return NaiveBackend::normalize_backward(args);
  // The composite adds dy and addend in vectors, and then calls this function with the sum.
  if (args.addend) return Backend::normalize_backward(args);  // NOLINT(bugprone-parent-virtual-call)
  EventScope event(args.y ? "normalize_relu_backward" : "normalize_backward", "openmp", kernel_table().vectors,
                   {&args.dy, &args.y, &x}, (args.y ? 13 : 12) * x.numel());
  Array weight;
  NormalizeBackwardArgs ordered = args;
  ordered.weight = ordered_as(x, args.weight, *this, weight);
  visit_wide(x.dtype, [&]<class C> { NormalizeBackward<C>(ordered).run(); });
}

}  // namespace gradus
