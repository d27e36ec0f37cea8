// y = (x - mean) s w + b with s = 1 / sqrt(variance + eps). The moments of a block that stays in the cache are computed
// in two passes, relative to a value of the block; the moments of blocks are combined in double. So they are accurate
// even if the mean is large. The residual and ReLU are applied to blocks of results while they are in the cache. norm.h
// describes how threads share the elements.
#include <gradus/backends/openmp/norm/norm.h>

#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

template <class C>
class Normalize {
 public:
  explicit Normalize(const NormalizeArgs& args)
      : x_(args.x), residual_(args.residual), y_(args.y), mean_(args.mean), variance_(args.variance),
        weight_(parameter(args.weight, x_.ndim(), kOne)), bias_(parameter(args.bias, x_.ndim(), kZero)), eps_(args.eps),
        fixed_(args.fixed_statistics), relu_(args.relu),
        lane_axes_(lane_axes(x_, args.axes, {&weight_.strides, &bias_.strides})),
        inner_axes_(lane_axes_ ? lane_axes_ : args.axes), results_(reduced_shape(x_.shape, args.axes, true)),
        outer_(operands(false)), inner_(operands(true)),
        cells_(nest_of<7>(x_.shape, inner_axes_, false,
                          {x_.strides, y_.strides, weight_.strides, bias_.strides, result_strides(mean_, args.axes),
                           result_strides(variance_, args.axes), dense_strides(results_, x_)})),
        slab_(slab_of(x_, args.axes, cells_.numel)) {}

  void run() const {
    if (lane_axes_) run_by_lanes();
    else run_by_rows();
  }

 private:
  using Offsets = std::array<int64_t, 5>;
  using CellOffsets = std::array<int64_t, 7>;

  StridedLoop<5> operands(bool inner) const {
    return nest_of<5>(x_.shape, inner_axes_, inner,
                      {x_.strides, y_.strides, weight_.strides, bias_.strides, strides_or_zero(residual_, x_.ndim())});
  }

  // ---- One outer element at a time ----

  void run_by_rows() const {
    const WorkSplit split(outer_, inner_.numel, 1);
    if (split.stretches == 1)  // one pass: each row is written while it is still in the cache
      return split.each([&](const LaneBlock& row, int64_t, int64_t begin, int64_t end) {
        Moments total;
        if (!fixed_) row_moments(row, begin, end, &total);
        write_row(row, begin, end, statistics_of(offsets_of(cells_, row.begin), total));
      });
    Zeros<Moments> partial(outer_.numel * split.stretches);
    split.each([&](const LaneBlock& row, int64_t s, int64_t begin, int64_t end) {
      if (!fixed_) row_moments(row, begin, end, &partial[s * outer_.numel + row.begin]);
    });
    const Zeros<Statistics<C>> found(outer_.numel);
    for_each_element(cells_, 0, outer_.numel, [&](int64_t o, const CellOffsets& at) {
      Moments total;
      for (int64_t s = 0; s < split.stretches; ++s) total.add(partial[s * outer_.numel + o]);
      found[o] = statistics_of(at, total);
    });
    split.each([&](const LaneBlock& row, int64_t, int64_t begin, int64_t end) {
      write_row(row, begin, end, found[row.begin]);
    });
  }

  static Moments of_block(const C* x, int64_t count) {
    const double n = static_cast<double>(count);
    const double mean = static_cast<double>(x[0]) + static_cast<double>(kernels().sum_about(x, x[0], count)) / n;
    const C about = static_cast<C>(mean);
    const double rest = mean - static_cast<double>(about);
    return {n, mean, static_cast<double>(kernels().squares_about(x, about, count)) - n * rest * rest};
  }

  void row_moments(const LaneBlock& row, int64_t begin, int64_t end, Moments* total) const {
    const Offsets o = offsets_of(outer_, row.begin);
    for_each_block<1>(inner_, 1, begin, end, [&](const Block<1>& block) {
      C buffer[kBlock];
      total->add(of_block(part(x_, 0, o, block).load(buffer).data, block.lanes));
    });
  }

  void write_row(const LaneBlock& row, int64_t begin, int64_t end, const Statistics<C>& of) const {
    const Offsets o = offsets_of(outer_, row.begin);
    const C scale = static_cast<C>(of.scale), offset = static_cast<C>(-of.low * of.scale);
    const bool by_element = inner_.ndim > 0 && (step_of(inner_, 2) != 0 || step_of(inner_, 3) != 0);
    for_each_block<1>(inner_, 1, begin, end, [&](const Block<1>& block) {
      C x_buffer[kBlock], w_buffer[kBlock], b_buffer[kBlock], y_buffer[kBlock], w0 = 1, b0 = 0;
      const C *w = nullptr, *b = nullptr;
      if (by_element) {
        w = part(weight_, 2, o, block).load(w_buffer).data, b = part(bias_, 3, o, block).load(b_buffer).data;
      } else {
        w0 = static_cast<C>(load_number(weight_, o[2] + block.run[2]));
        b0 = static_cast<C>(load_number(bias_, o[3] + block.run[3]));
      }
      const auto y = part(y_, 1, o, block);
      const RowsOf<C> to = y.results(y_buffer);
      kernels().affine(part(x_, 0, o, block).load(x_buffer).data, of.high, scale * w0, offset * w0 + b0, w, b, to.data,
                       block.lanes);
      finish(y, to, o, block, x_buffer, y_buffer);
    });
  }

  // ---- Neighbouring cells together ----

  // y = (x - shift) scale + offset, for each cell.
  struct Coefficients {
    explicit Coefficients(int64_t cells) : shift(cells), scale(cells), offset(cells) {}
    Scratch<C> shift, scale, offset;
  };

  void run_by_lanes() const {
    const WorkSplit split(outer_, inner_.numel, kMostLanes);
    const int64_t cells = outer_.numel;
    Zeros<Moments> partial(cells * split.stretches);
    Zeros<Moments> total(numel_of(results_));
    const Coefficients of(cells);
    split.each_twice(
        slab_,
        [&](const LaneBlock& lanes, int64_t s, int64_t begin, int64_t end) {
          if (!fixed_) lane_moments(lanes, begin, end, &partial[s * cells + lanes.begin]);
        },
        [&](int64_t first, int64_t last) {
          for_each_element(cells_, first, last, [&](int64_t cell, const CellOffsets& at) {
            for (int64_t s = 0; s < split.stretches; ++s) total[at[6]].add(partial[s * cells + cell]);
          });
          Statistics<C> found;
          int64_t result = -1;  // index of the result to which `found` belongs
          for_each_element(cells_, first, last, [&](int64_t cell, const CellOffsets& at) {
            if (at[6] != result) found = statistics_of(at, total[at[6]]), result = at[6];
            const double s = found.scale * load_number(weight_, at[2]);
            of.shift[cell] = found.high, of.scale[cell] = static_cast<C>(s);
            of.offset[cell] = static_cast<C>(load_number(bias_, at[3]) - found.low * s);
          });
        },
        [&](const LaneBlock& lanes, int64_t, int64_t begin, int64_t end) { write_lanes(lanes, begin, end, of); });
  }

  void lane_moments(const LaneBlock& lanes, int64_t begin, int64_t end, Moments* total) const {
    const Offsets o = offsets_of(outer_, lanes.begin);
    for_each_block<kMostLanes>(inner_, lanes.count, begin, end, [&](const Block<kMostLanes>& block) {
      C buffer[block.kSize], sum[kMostLanes], about[kMostLanes];
      double mean[kMostLanes];
      const RowsOf<const C> rows = part(x_, 0, o, block).load(buffer);
      const double n = static_cast<double>(rows.rows);
      kernels().lane_sums(rows, rows.data, sum);
      for (int64_t c = 0; c < rows.lanes; ++c) {
        mean[c] = static_cast<double>(rows.data[c]) + static_cast<double>(sum[c]) / n;
        about[c] = static_cast<C>(mean[c]);
      }
      kernels().lane_squares(rows, about, sum);
      for (int64_t c = 0; c < rows.lanes; ++c) {
        const double rest = mean[c] - static_cast<double>(about[c]);
        total[c].add({n, mean[c], static_cast<double>(sum[c]) - n * rest * rest});
      }
    });
  }

  void write_lanes(const LaneBlock& lanes, int64_t begin, int64_t end, const Coefficients& of) const {
    const Offsets o = offsets_of(outer_, lanes.begin);
    for_each_block<kMostLanes>(inner_, lanes.count, begin, end, [&](const Block<kMostLanes>& block) {
      C x_buffer[block.kSize], y_buffer[block.kSize];
      const auto y = part(y_, 1, o, block);
      const RowsOf<C> to = y.results(y_buffer);
      kernels().lane_affine(part(x_, 0, o, block).load(x_buffer), of.shift.get() + lanes.begin,
                            of.scale.get() + lanes.begin, of.offset.get() + lanes.begin, to);
      finish(y, to, o, block, x_buffer, y_buffer);
    });
  }

  // ---- Both loop orders ----

  template <int64_t most, class AnyView>
  BlockOf<most, AnyView> part(const AnyView& view, int k, const Offsets& o, const Block<most>& block) const {
    return {view, k, outer_, o, inner_, block};
  }

  // Applies the ReLU to a block of results, if there is one, and stores the block.
  template <int64_t most>
  void finish(const BlockOf<most, MutableView>& y, const RowsOf<C>& to, const Offsets& o, const Block<most>& block,
              C* residual, const C* results) const {
    if (relu_) relu_after_sum(to, residual_ ? part(residual_, 4, o, block).load(residual) : RowsOf<const C>{});
    y.store(to, results);
  }

  // ---- Statistics ----

  static const Kernels<C>& kernels() { return kernels_of<C>(kernel_table()); }

  // The statistics of an outer element: the fixed statistics, or statistics that are computed from the moments and
  // stored.
  Statistics<C> statistics_of(const CellOffsets& at, const Moments& moments) const {
    if (fixed_) return {load_number(mean_, at[4]), load_number(variance_, at[5]), eps_};
    const double variance = std::max(moments.squares, 0.0) / moments.count;
    store_number(mean_, at[4], moments.mean), store_number(variance_, at[5], variance);
    return {moments.mean, variance, eps_};
  }

  const View &x_, &residual_;
  const MutableView &y_, &mean_, &variance_;
  static constexpr C kOne = 1, kZero = 0;
  const View weight_, bias_;
  const double eps_;
  const bool fixed_, relu_;
  const uint32_t lane_axes_, inner_axes_;  // lane_axes_: 0 if the loop order is by rows
  const Shape results_;                    // shape of mean and variance
  const StridedLoop<5> outer_, inner_;     // x, y, weight, bias, residual
  const StridedLoop<7> cells_;             // the elements of outer_: x, y, weight, bias, mean, variance, result
  const int64_t slab_;                     // number of cells in a slab
};

}  // namespace

void OpenmpBackend::normalize(const NormalizeArgs& args) {
  const View& x = args.x;
  if (x.numel() == 0 || args.running) return NaiveBackend::normalize(args);
  EventScope event(args.relu ? "normalize_relu" : "normalize", "openmp", kernel_table().vectors, {&x, &args.y},
                   (args.relu ? 9 : 8) * x.numel());
  Array weight, bias;
  NormalizeArgs ordered = args;
  ordered.weight = ordered_as(x, args.weight, *this, weight), ordered.bias = ordered_as(x, args.bias, *this, bias);
  visit_wide(x.dtype, [&]<class C> { Normalize<C>(ordered).run(); });
}

}  // namespace gradus
