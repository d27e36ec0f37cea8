// y = (x - mean) s w + b with s = 1 / sqrt(variance + eps). Moments are taken of blocks that stay in the cache, in two
// passes around a number of the block, and added up in double: right also where the mean is large. The residual and the
// ReLU that may follow are applied to blocks of results before these leave the cache. How
// threads share the elements: norm.h.
#include <gradus/backends/openmp/norm/norm.h>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

template <class C>
class Normalize {
 public:
  explicit Normalize(const NormalizeArgs& args)
      : x_(args.x), y_(args.y), mean_(args.mean), variance_(args.variance), residual_(if_present(args.residual)),
        weight_(args.weight, x_.ndim(), 1), bias_(args.bias, x_.ndim(), 0), eps_(args.eps),
        fixed_(args.fixed_statistics), relu_(args.relu),
        outer_(nest_of<7>(x_.shape, args.axes, false,
                          {x_.strides, y_.strides, weight_.strides, bias_.strides, mean_.strides, variance_.strides,
                           strides_of(residual_)})),
        inner_(nest_of<5>(x_.shape, args.axes, true,
                          {x_.strides, y_.strides, weight_.strides, bias_.strides, strides_of(residual_)})) {}

  void run() const {
    if (prefers_lanes(outer_, inner_) && !varies(inner_, 2) && !varies(inner_, 3)) run_by<kMostLanes>();
    else run_by<1>();
  }

 private:
  using Offsets = std::array<int64_t, 7>;

  template <int64_t most>
  void run_by() const {
    const WorkSplit split(outer_, inner_.numel, most);
    const auto add_moments = [&](const LaneBlock& block, int64_t begin, int64_t end, Moments* total) {
      if (fixed_) return;
      if constexpr (most > 1) lane_moments(block, begin, end, total);
      else row_moments(offsets_of(outer_, block.begin)[0], begin, end, *total);
    };
    const auto write = [&](const LaneBlock& block, int64_t begin, int64_t end, const Statistics<C>* of) {
      if constexpr (most > 1) write_lanes(block, begin, end, of);
      else write_row(offsets_of(outer_, block.begin), begin, end, *of);
    };
    if (split.stretches == 1)  // a block is still in the cache
      return split.each([&](const LaneBlock& block, int64_t, int64_t begin, int64_t end) {
        Moments total[most];
        Statistics<C> found[most];
        add_moments(block, begin, end, total);
        for (int64_t c = 0; c < block.count; ++c) found[c] = statistics_of(block.begin + c, total[c]);
        write(block, begin, end, found);
      });
    std::vector<Moments> partial(static_cast<size_t>(outer_.numel * split.stretches));
    split.each([&](const LaneBlock& block, int64_t s, int64_t begin, int64_t end) {
      add_moments(block, begin, end, &partial[static_cast<size_t>(s * outer_.numel + block.begin)]);
    });
    std::vector<Statistics<C>> found;
    for (int64_t o = 0; o < outer_.numel; ++o) {
      Moments total;
      for (int64_t s = 0; s < split.stretches; ++s) total.add(partial[static_cast<size_t>(s * outer_.numel + o)]);
      found.push_back(statistics_of(o, total));
    }
    split.each([&](const LaneBlock& block, int64_t, int64_t begin, int64_t end) {
      write(block, begin, end, &found[static_cast<size_t>(block.begin)]);
    });
  }

  // ---- One outer element after the other ----

  static Moments of_block(const C* x, int64_t count) {
    const double n = static_cast<double>(count);
    const double mean = static_cast<double>(x[0]) + static_cast<double>(kernels().sum_about(x, x[0], count)) / n;
    const C about = static_cast<C>(mean);
    const double rest = mean - static_cast<double>(about);
    return {n, mean, static_cast<double>(kernels().squares_about(x, about, count)) - n * rest * rest};
  }

  void row_moments(int64_t offset, int64_t begin, int64_t end, Moments& total) const {
    const int64_t step = step_of(inner_, 0);
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      C buffer[kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i);
        total.add(of_block(load_block(x_, offset + at[0] + i * step, step, count, buffer), count));
      }
    });
  }

  void write_row(const Offsets& o, int64_t begin, int64_t end, const Statistics<C>& of) const {
    const C scale = static_cast<C>(of.scale), offset = static_cast<C>(-of.low * of.scale);
    const int64_t x_step = step_of(inner_, 0), y_step = step_of(inner_, 1);
    const int64_t w_step = step_of(inner_, 2), b_step = step_of(inner_, 3), r_step = step_of(inner_, 4);
    const bool direct = y_.dtype == dtype_of<C> && y_step == 1;
    const bool by_element = inner_.ndim > 0 && (w_step != 0 || b_step != 0);
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      C x_buffer[kBlock], w_buffer[kBlock], b_buffer[kBlock], y_buffer[kBlock];
      const C w0 = by_element ? C(1) : weight_.one<C>(o[2] + at[2]);
      const C b0 = by_element ? C(0) : bias_.one<C>(o[3] + at[3]);
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i);
        const C* from = load_block(x_, o[0] + at[0] + i * x_step, x_step, count, x_buffer);
        C* to = direct ? y_.as<C>() + o[1] + at[1] + i : y_buffer;
        const C* w = nullptr;
        const C* b = nullptr;
        if (by_element) {
          w = weight_.block(o[2] + at[2] + i * w_step, w_step, count, w_buffer);
          b = bias_.block(o[3] + at[3] + i * b_step, b_step, count, b_buffer);
        }
        kernels().affine(from, of.high, scale * w0, offset * w0 + b0, w, b, to, count);
        if (relu_) {
          const C* more = nullptr;
          if (residual_) more = load_block(*residual_, o[6] + at[4] + i * r_step, r_step, count, x_buffer);
          relu_after_sum(to, more, count);
        }
        if (!direct) store_block(to, y_, o[1] + at[1] + i * y_step, y_step, count);
      }
    });
  }

  // ---- Neighbouring outer elements together ----

  void lane_moments(const LaneBlock& block, int64_t begin, int64_t end, Moments* total) const {
    const int64_t offset = offsets_of(outer_, block.begin)[0], lane = step_of(outer_, 0), step = step_of(inner_, 0);
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      C buffer[kLaneRows * kMostLanes], sum[kMostLanes], about[kMostLanes];
      double mean[kMostLanes];
      for (int64_t first = 0; first < run; first += kLaneRows) {
        const RowsOf<const C> rows = load_rows(x_, offset + at[0] + first * step, step,
                                               std::min(kLaneRows, run - first), lane, block.count, buffer);
        const double n = static_cast<double>(rows.rows);
        kernels().lane_sums(rows, rows.data, sum);
        for (int64_t c = 0; c < block.count; ++c) {
          mean[c] = static_cast<double>(rows.data[c]) + static_cast<double>(sum[c]) / n;
          about[c] = static_cast<C>(mean[c]);
        }
        kernels().lane_squares(rows, about, sum);
        for (int64_t c = 0; c < block.count; ++c) {
          const double rest = mean[c] - static_cast<double>(about[c]);
          total[c].add({n, mean[c], static_cast<double>(sum[c]) - n * rest * rest});
        }
      }
    });
  }

  void write_lanes(const LaneBlock& block, int64_t begin, int64_t end, const Statistics<C>* of) const {
    C shift[kMostLanes], scale[kMostLanes], offset[kMostLanes];
    for (int64_t c = 0; c < block.count; ++c) {
      const Offsets at = offsets_of(outer_, block.begin + c);
      const double w = static_cast<double>(weight_.one<C>(at[2])), s = of[c].scale * w;
      shift[c] = of[c].high, scale[c] = static_cast<C>(s);
      offset[c] = static_cast<C>(static_cast<double>(bias_.one<C>(at[3])) - of[c].low * s);
    }
    const Offsets o = offsets_of(outer_, block.begin);
    const int64_t x_lane = step_of(outer_, 0), y_lane = step_of(outer_, 1);
    const int64_t x_step = step_of(inner_, 0), y_step = step_of(inner_, 1);
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      C x_buffer[kLaneRows * kMostLanes], y_buffer[kLaneRows * kMostLanes];
      for (int64_t first = 0; first < run; first += kLaneRows) {
        const int64_t rows = std::min(kLaneRows, run - first), y_at = o[1] + at[1] + first * y_step;
        const RowsOf<C> to = result_rows(y_, y_at, y_step, rows, y_lane, block.count, y_buffer);
        kernels().lane_affine(load_rows(x_, o[0] + at[0] + first * x_step, x_step, rows, x_lane, block.count, x_buffer),
                              shift, scale, offset, to);
        if (relu_) relu_rows(to, o[6] + at[4] + first * step_of(inner_, 4), x_buffer);
        store_rows(to, y_buffer, y_, y_at, y_step, y_lane);
      }
    });
  }

  void relu_rows(const RowsOf<C>& y, int64_t offset, C* buffer) const {
    RowsOf<const C> more{};
    if (residual_)
      more = load_rows(*residual_, offset, step_of(inner_, 4), y.rows, step_of(outer_, 6), y.lanes, buffer);
    if (y.stride == y.lanes && (!residual_ || more.stride == y.lanes))  // one behind the other
      return relu_after_sum(y.data, more.data, y.rows * y.lanes);
    for (int64_t r = 0; r < y.rows; ++r)
      relu_after_sum(y.data + r * y.stride, residual_ ? more.data + r * more.stride : nullptr, y.lanes);
  }

  // ---- Statistics ----

  static const Kernels<C>& kernels() { return kernels_of<C>(kernel_table()); }

  // Of an outer element: those that are given, or, written down, those of its moments.
  Statistics<C> statistics_of(int64_t o, const Moments& moments) const {
    const Offsets at = offsets_of(outer_, o);
    if (fixed_) return {load_number(mean_, at[4]), load_number(variance_, at[5]), eps_};
    const double variance = std::max(moments.squares, 0.0) / moments.count;
    store_number(mean_, at[4], moments.mean), store_number(variance_, at[5], variance);
    return {moments.mean, variance, eps_};
  }

  Strides strides_of(const View* residual) const { return residual ? residual->strides : Dims::filled(x_.ndim(), 0); }

  const View& x_;
  const MutableView &y_, &mean_, &variance_;
  const View* residual_;
  const Parameter weight_, bias_;
  const double eps_;
  const bool fixed_, relu_;
  const StridedLoop<7> outer_;  // x, y, weight, bias, mean, variance, residual
  const StridedLoop<5> inner_;  // x, y, weight, bias, residual
};

}  // namespace

void OpenmpBackend::normalize(const NormalizeArgs& args) {
  const View& x = args.x;
  if (x.numel() == 0 || args.running) return NaiveBackend::normalize(args);
  EventScope event(args.relu ? "normalize_relu" : "normalize", "openmp", kernel_table().vectors, {&x, &args.y},
                   (args.relu ? 9 : 8) * x.numel());
  visit_wide(x.dtype, [&]<class C> { Normalize<C>(args).run(); });
}

}  // namespace gradus
