// y = (x - mean) s w + b with s = 1 / sqrt(variance + eps). The moments of a block that stays in the cache are computed
// in two passes, relative to a value of the block; the moments of blocks are combined in double. So they are accurate
// even if the mean is large. The residual and ReLU are applied to blocks of results while they are in the cache. norm.h
// describes how threads share the elements.
#include <gradus/backends/openmp/norm/norm.h>

#include <gradus/backends/openmp/openmp_backend.h>
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
        outer_(nest_of<7>(x_.shape, args.axes, false,
                          {x_.strides, y_.strides, weight_.strides, bias_.strides,
                           strides_or_zero(residual_, x_.ndim()), mean_.strides, variance_.strides})),
        inner_(nest_of<5>(
            x_.shape, args.axes, true,
            {x_.strides, y_.strides, weight_.strides, bias_.strides, strides_or_zero(residual_, x_.ndim())})) {}

  void run() const {
    if (prefers_lanes(outer_, inner_) && !varies(inner_, 2) && !varies(inner_, 3))
      run_by<kMostLanes>(&Normalize::lane_moments, &Normalize::write_lanes);
    else run_by<1>(&Normalize::row_moments, &Normalize::write_row);
  }

 private:
  using Offsets = std::array<int64_t, 7>;

  template <int64_t most, class AddMoments, class Write>
  void run_by(AddMoments add_moments, Write write) const {
    const WorkSplit split(outer_, inner_.numel, most);
    if (split.stretches == 1)  // one pass: each block is written while it is still in the cache
      return split.each([&](const LaneBlock& block, int64_t, int64_t begin, int64_t end) {
        Moments total[most];
        Statistics<C> found[most];
        if (!fixed_) (this->*add_moments)(block, begin, end, total);
        for (int64_t c = 0; c < block.count; ++c) found[c] = statistics_of(block.begin + c, total[c]);
        (this->*write)(block, begin, end, found);
      });
    std::vector<Moments> partial(static_cast<size_t>(outer_.numel * split.stretches));
    split.each([&](const LaneBlock& block, int64_t s, int64_t begin, int64_t end) {
      if (!fixed_)
        (this->*add_moments)(block, begin, end, &partial[static_cast<size_t>(s * outer_.numel + block.begin)]);
    });
    std::vector<Statistics<C>> found;
    for (int64_t o = 0; o < outer_.numel; ++o) {
      Moments total;
      for (int64_t s = 0; s < split.stretches; ++s) total.add(partial[static_cast<size_t>(s * outer_.numel + o)]);
      found.push_back(statistics_of(o, total));
    }
    split.each([&](const LaneBlock& block, int64_t, int64_t begin, int64_t end) {
      (this->*write)(block, begin, end, &found[static_cast<size_t>(block.begin)]);
    });
  }

  // ---- One outer element at a time ----

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

  void write_row(const LaneBlock& row, int64_t begin, int64_t end, const Statistics<C>* of) const {
    const Offsets o = offsets_of(outer_, row.begin);
    const C scale = static_cast<C>(of->scale), offset = static_cast<C>(-of->low * of->scale);
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
      kernels().affine(part(x_, 0, o, block).load(x_buffer).data, of->high, scale * w0, offset * w0 + b0, w, b, to.data,
                       block.lanes);
      finish(y, to, o, block, x_buffer, y_buffer);
    });
  }

  // ---- Neighbouring outer elements together ----

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

  void write_lanes(const LaneBlock& lanes, int64_t begin, int64_t end, const Statistics<C>* of) const {
    C shift[kMostLanes], scale[kMostLanes], offset[kMostLanes];
    for (int64_t c = 0; c < lanes.count; ++c) {
      const Offsets at = offsets_of(outer_, lanes.begin + c);
      const double w = load_number(weight_, at[2]), s = of[c].scale * w;
      shift[c] = of[c].high, scale[c] = static_cast<C>(s);
      offset[c] = static_cast<C>(load_number(bias_, at[3]) - of[c].low * s);
    }
    const Offsets o = offsets_of(outer_, lanes.begin);
    for_each_block<kMostLanes>(inner_, lanes.count, begin, end, [&](const Block<kMostLanes>& block) {
      C x_buffer[block.kSize], y_buffer[block.kSize];
      const auto y = part(y_, 1, o, block);
      const RowsOf<C> to = y.results(y_buffer);
      kernels().lane_affine(part(x_, 0, o, block).load(x_buffer), shift, scale, offset, to);
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
  Statistics<C> statistics_of(int64_t o, const Moments& moments) const {
    const Offsets at = offsets_of(outer_, o);
    if (fixed_) return {load_number(mean_, at[5]), load_number(variance_, at[6]), eps_};
    const double variance = std::max(moments.squares, 0.0) / moments.count;
    store_number(mean_, at[5], moments.mean), store_number(variance_, at[6], variance);
    return {moments.mean, variance, eps_};
  }

  const View &x_, &residual_;
  const MutableView &y_, &mean_, &variance_;
  static constexpr C kOne = 1, kZero = 0;
  const View weight_, bias_;
  const double eps_;
  const bool fixed_, relu_;
  const StridedLoop<7> outer_;  // x, y, weight, bias, residual, mean, variance
  const StridedLoop<5> inner_;  // the first five of these
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
