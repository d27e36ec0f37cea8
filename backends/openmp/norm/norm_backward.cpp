// With g = dy w, s = 1 / sqrt(variance + eps) and h = (x - mean) s:  dx = s (g - avg(g) - h avg(g h)),  dw = sum(dy h),
// db = sum(dy). Where the weight is one number per outer element, sum(dy) and sum(dy h) serve all three; else (layer
// and group norm) each thread adds up dw and db of its own rows, and those are summed in order. Behind a ReLU, dy is
// masked as the sums are taken and stored in dresidual, or where dx will be, for the second pass. How threads share the
// elements: norm.h.
#include <gradus/backends/openmp/norm/norm.h>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

constexpr int64_t kFlush = 64;  // rows after which sums of floats go into sums of doubles

// Sums of g and of g (x - mean) over a range.
struct Sums {
  double plain = 0, product = 0;
  void add(const Sums& other) { plain += other.plain, product += other.product; }
  // Those of a block around the first part of the mean, times a weight.
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
        dense_(broadcast_strides(shape_)), parameters_(numel_of(shape_)),
        outer_(nest_of<9>(x_.shape, args.axes, false,
                          {x_.strides, dy_.strides, zero_if_absent(dx_), weight_.strides, dense_, zero_if_absent(y_),
                           zero_if_absent(masked_), mean_.strides, variance_.strides})),
        inner_(nest_of<7>(x_.shape, args.axes, true,
                          {x_.strides, dy_.strides, zero_if_absent(dx_), weight_.strides, dense_, zero_if_absent(y_),
                           zero_if_absent(masked_)})),
        by_element_(varies(inner_, 3) || varies(inner_, 4)) {}

  void run() {
    if (!by_element_ && prefers_lanes(outer_, inner_)) run_by<kMostLanes>();
    else if (by_element_ && (dweight_ || dbias_)) rows_with_parameters();
    else run_by<1>();
  }

 private:
  using Offsets = std::array<int64_t, 9>;

  template <int64_t most>
  void run_by() const {
    const WorkSplit split(outer_, inner_.numel, most);
    std::vector<Statistics<C>> known;  // of lanes, which are read once for each stretch
    for (int64_t o = 0; most > 1 && o < outer_.numel; ++o) known.push_back(statistics_of(offsets_of(outer_, o)));
    const auto statistics = [&](const LaneBlock& block, Statistics<C>& own) -> const Statistics<C>* {
      if (most > 1) return &known[static_cast<size_t>(block.begin)];
      return &(own = statistics_of(offsets_of(outer_, block.begin)));
    };
    const auto write = [&](const LaneBlock& block, const Statistics<C>* of, const Sums* sums, int64_t begin,
                           int64_t end) {
      if constexpr (most > 1) write_lanes(block, of, sums, begin, end);
      else write_row(offsets_of(outer_, block.begin), *of, *sums, begin, end);
    };
    const bool at_once = split.stretches == 1;  // a block is still in the cache
    std::vector<Sums> partial(static_cast<size_t>(outer_.numel * split.stretches));
    split.each([&](const LaneBlock& block, int64_t s, int64_t begin, int64_t end) {
      Statistics<C> own;
      const Statistics<C>* const of = statistics(block, own);
      Sums* const sums = &partial[static_cast<size_t>(s * outer_.numel + block.begin)];
      if constexpr (most > 1) lane_sums(block, of, begin, end, sums);
      else *sums = sums_of(offsets_of(outer_, block.begin), *of, begin, end, nullptr, nullptr);
      if (at_once && dx_) write(block, of, sums, begin, end);
    });
    std::vector<Sums> total(static_cast<size_t>(outer_.numel));
    for (int64_t s = 0; s < split.stretches; ++s)
      for (int64_t o = 0; o < outer_.numel; ++o)
        total[static_cast<size_t>(o)].add(partial[static_cast<size_t>(s * outer_.numel + o)]);
    if (!at_once && dx_)
      split.each([&](const LaneBlock& block, int64_t, int64_t begin, int64_t end) {
        Statistics<C> own;
        const Statistics<C>* const of = statistics(block, own);
        write(block, of, &total[static_cast<size_t>(block.begin)], begin, end);
      });
    write_parameters_of_outer(total);
  }

  // ---- One outer element after the other ----

  // Rows in groups, each of which adds up the gradients of the parameters in memory of its own.
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
        const Statistics<C> statistics = statistics_of(at);
        const Sums sums = sums_of(at, statistics, 0, inner_.numel, buffer, buffer + parameters_);
        if (dx_) write_row(at, statistics, sums, 0, inner_.numel);
        if ((o - begin) % kFlush == kFlush - 1 || o + 1 == end) flush();  // sums of floats stay short
      }
    });
    for (int64_t g = 1; g < groups; ++g)
      for (int64_t i = 0; i < 2 * parameters_; ++i) totals[i] += totals[g * 2 * parameters_ + i];
    write_parameters(totals.get(), totals.get() + parameters_);
  }

  // Sums over inner elements [begin, end): of dy where the weight is one number per outer element, else of dy w. Adds
  // dy h and dy to dw and db where these are given.
  Sums sums_of(const Offsets& o, const Statistics<C>& of, int64_t begin, int64_t end, C* dw, C* db) const {
    Sums total;
    const int64_t w_step = step_of(inner_, 3), p_step = inner_.ndim > 0 ? step_of(inner_, 4) : 0;
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      const Run<View> x_run(x_, 0, outer_, o, inner_, at), weight(weight_, 3, outer_, o, inner_, at);
      const double run_weight = constant_weight(o, at);
      C x_buffer[kBlock], dy_buffer[kBlock], w_buffer[kBlock], g_buffer[kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i), p = o[4] + at[4] + i * p_step;
        const C *x = x_run.load(i, count, x_buffer), *dy = gradient(o, at, i, count, dy_buffer);
        const C scale = static_cast<C>(of.scale), low = static_cast<C>(of.low);
        C sums[2];
        if (dw && p_step == 1) {
          const C* w = weight.load(i, count, w_buffer);
          kernels().gradient_sums({count, dy, w, x, of.high, low, scale, dw + p, db + p}, sums);
          total.add(of, sums, 1);
          continue;
        }
        if (dw && p_step != 0)
          for (int64_t k = 0; k < count; ++k)
            dw[p + k * p_step] += dy[k] * ((x[k] - of.high - low) * scale), db[p + k * p_step] += dy[k];
        if (by_element_ && w_step != 0) {
          kernels().of(BinaryOp::mul).apply(dy, weight.load(i, count, w_buffer), g_buffer, count);
          dy = g_buffer;
        }
        kernels().products_about(dy, x, of.high, count, sums);
        if (dw && p_step == 0) dw[p] += (sums[1] - low * sums[0]) * scale, db[p] += sums[0];
        total.add(of, sums, run_weight);
      }
    });
    return total;
  }

  // `count` elements of dy from element i of a run on; behind a ReLU those that it lets through, and 0, put down in
  // masked_.
  const C* gradient(const Offsets& o, const int64_t* at, int64_t i, int64_t count, C* buffer) const {
    const C* dy = Run<View>(dy_, 1, outer_, o, inner_, at).load(i, count, buffer);
    if (!y_) return dy;
    C y_buffer[kBlock];
    const Run<MutableView> masked(masked_, 6, outer_, o, inner_, at);
    C* to = masked_ ? masked.results(i, buffer) : buffer;
    relu_gradient(dy, Run<View>(y_, 5, outer_, o, inner_, at).load(i, count, y_buffer), to, count);
    if (masked_) masked.store(i, count, to, buffer);
    return to;
  }

  // The weight of a run, where that varies between runs alone; else 1.
  double constant_weight(const Offsets& o, const int64_t* at) const {
    return by_element_ && step_of(inner_, 3) == 0 ? load_number(weight_, o[3] + at[3]) : 1;
  }

  // What the second pass reads: dy, or what the first one has put down of it.
  Run<View> second_gradient(const View& put_down, const Offsets& o, const int64_t* at) const {
    return masked_ ? Run<View>(put_down, 6, outer_, o, inner_, at) : Run<View>(dy_, 1, outer_, o, inner_, at);
  }

  // dx = a g + b (x - high) + c
  struct Coefficients {
    double a, b, c;
  };
  Coefficients coefficients(const Statistics<C>& of, const Sums& sums, double w) const {
    const double n = static_cast<double>(inner_.numel), s = of.scale;
    if (fixed_) return {s * w, 0, 0};
    const double average_g = sums.plain * w / n, slope = s * s * s * (sums.product * w / n);
    return {s * w, -slope, slope * of.low - s * average_g};
  }

  void write_row(const Offsets& o, const Statistics<C>& of, const Sums& sums, int64_t begin, int64_t end) const {
    const double w0 = by_element_ ? 1 : load_number(weight_, o[3]);
    const Coefficients k = coefficients(of, sums, w0);
    const bool varies = by_element_ && step_of(inner_, 3) != 0;  // the weight, along the run
    const View put_down = masked_;
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      const C a = static_cast<C>(k.a * constant_weight(o, at)), b = static_cast<C>(k.b), c = static_cast<C>(k.c);
      const Run<View> x(x_, 0, outer_, o, inner_, at), weight(weight_, 3, outer_, o, inner_, at);
      const Run<View> dy = second_gradient(put_down, o, at);
      const Run<MutableView> dx(dx_, 2, outer_, o, inner_, at);
      C x_buffer[kBlock], dy_buffer[kBlock], w_buffer[kBlock], dx_buffer[kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i);
        const C* w = varies ? weight.load(i, count, w_buffer) : nullptr;
        C* to = dx.results(i, dx_buffer);
        kernels().combine(dy.load(i, count, dy_buffer), w, x.load(i, count, x_buffer), of.high, a, b, c, to, count);
        dx.store(i, count, to, dx_buffer);
      }
    });
  }

  // ---- Neighbouring outer elements together ----

  void lane_sums(const LaneBlock& block, const Statistics<C>* of, int64_t begin, int64_t end, Sums* total) const {
    const Offsets o = offsets_of(outer_, block.begin);
    C shift[kMostLanes];
    for (int64_t c = 0; c < block.count; ++c) shift[c] = of[c].high;
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      const Run<View> x(x_, 0, outer_, o, inner_, at);
      C x_buffer[kLaneRows * kMostLanes], dy_buffer[kLaneRows * kMostLanes], plain[kMostLanes], product[kMostLanes];
      for (int64_t i = 0; i < run; i += kLaneRows) {
        const int64_t rows = std::min(kLaneRows, run - i);
        kernels().lane_products(gradient_rows(o, at, i, rows, block.count, dy_buffer),
                                x.load_rows(i, rows, block.count, x_buffer), shift, plain, product);
        for (int64_t c = 0; c < block.count; ++c) {
          const double sum = static_cast<double>(plain[c]);
          total[c].add({sum, static_cast<double>(product[c]) - of[c].low * sum});
        }
      }
    });
  }

  // Rows of dy from inner element i of a run on, masked as in `gradient`.
  RowsOf<const C> gradient_rows(const Offsets& o, const int64_t* at, int64_t i, int64_t rows, int64_t lanes,
                                C* buffer) const {
    const RowsOf<const C> dy = Run<View>(dy_, 1, outer_, o, inner_, at).load_rows(i, rows, lanes, buffer);
    if (!y_) return dy;
    C y_buffer[kLaneRows * kMostLanes];
    const Run<MutableView> masked(masked_, 6, outer_, o, inner_, at);
    const RowsOf<C> to =
        masked_ ? masked.result_rows(i, rows, lanes, buffer) : RowsOf<C>{buffer, kMostLanes, rows, lanes};
    relu_gradient(dy, Run<View>(y_, 5, outer_, o, inner_, at).load_rows(i, rows, lanes, y_buffer), to);
    if (masked_) masked.store_rows(i, to, buffer);
    return {to.data, to.stride, rows, lanes};
  }

  void write_lanes(const LaneBlock& block, const Statistics<C>* of, const Sums* sums, int64_t begin,
                   int64_t end) const {
    C shift[kMostLanes], a[kMostLanes], b[kMostLanes], k[kMostLanes];
    for (int64_t c = 0; c < block.count; ++c) {
      const double w = load_number(weight_, offsets_of(outer_, block.begin + c)[3]);
      const Coefficients found = coefficients(of[c], sums[c], w);
      shift[c] = of[c].high;
      a[c] = static_cast<C>(found.a), b[c] = static_cast<C>(found.b), k[c] = static_cast<C>(found.c);
    }
    const Offsets o = offsets_of(outer_, block.begin);
    const View put_down = masked_;
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      const Run<View> x(x_, 0, outer_, o, inner_, at), dy = second_gradient(put_down, o, at);
      const Run<MutableView> dx(dx_, 2, outer_, o, inner_, at);
      C x_buffer[kLaneRows * kMostLanes], dy_buffer[kLaneRows * kMostLanes], dx_buffer[kLaneRows * kMostLanes];
      for (int64_t i = 0; i < run; i += kLaneRows) {
        const int64_t rows = std::min(kLaneRows, run - i);
        const RowsOf<C> to = dx.result_rows(i, rows, block.count, dx_buffer);
        kernels().lane_combine(dy.load_rows(i, rows, block.count, dy_buffer),
                               x.load_rows(i, rows, block.count, x_buffer), shift, a, b, k, to);
        dx.store_rows(i, to, dx_buffer);
      }
    });
  }

  // ---- Gradients of the parameters ----

  void write_parameters_of_outer(const std::vector<Sums>& total) const {
    if (!dweight_ && !dbias_) return;
    std::vector<double> dw(static_cast<size_t>(parameters_)), db(dw.size());
    for (int64_t o = 0; o < outer_.numel; ++o) {
      const Offsets at = offsets_of(outer_, o);
      const Sums& sums = total[static_cast<size_t>(o)];
      dw[static_cast<size_t>(at[4])] += sums.product * statistics_of(at).scale;
      db[static_cast<size_t>(at[4])] += sums.plain;
    }
    write_parameters(dw.data(), db.data());
  }

  void write_parameters(const double* dw, const double* db) const {
    const Strides &w = dweight_ ? dweight_.strides : dense_, &b = dbias_ ? dbias_.strides : dense_;
    const StridedLoop<3> nest(shape_, {&dense_, &w, &b});
    for_each_run(nest, 0, nest.numel, [&](const int64_t* at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t from = at[0] + i * step_of(nest, 0);
        if (dweight_) store_number(dweight_, at[1] + i * step_of(nest, 1), dw[from]);
        if (dbias_) store_number(dbias_, at[2] + i * step_of(nest, 2), db[from]);
      }
    });
  }

  static const Kernels<C>& kernels() { return kernels_of<C>(kernel_table()); }
  Statistics<C> statistics_of(const Offsets& at) const {
    return {load_number(mean_, at[7]), load_number(variance_, at[8]), eps_};
  }
  Strides zero_if_absent(const StridedLayout& view) const { return strides_or_zero(view, x_.ndim()); }
  // Row-major strides, 0 where the size is 1.
  static Strides broadcast_strides(const Shape& shape) {
    Strides strides = contiguous_strides(shape);
    for (int i = 0; i < shape.size(); ++i)
      if (shape[i] == 1) strides[i] = 0;
    return strides;
  }

  static constexpr C kOne = 1;
  const View &dy_, &x_, &mean_, &variance_, &y_;  // y: the result, where a ReLU follows
  const View weight_;
  const double eps_;
  const bool fixed_;
  const MutableView &dx_, &dweight_, &dbias_, &masked_;  // masked: where dy goes that the ReLU lets through
  const Shape shape_;                                    // of the parameters, in x's rank
  const Strides dense_;                                  // of a row-major array of theirs
  const int64_t parameters_;
  const StridedLoop<9> outer_;  // x, dy, dx, weight, parameters, y, masked, mean, variance
  const StridedLoop<7> inner_;  // the first seven of them
  const bool by_element_;       // weight or parameters change along the inner axes
};

}  // namespace

void OpenmpBackend::normalize_backward(const NormalizeBackwardArgs& args) {
  const View& x = args.x;
  if (x.numel() == 0) return NaiveBackend::normalize_backward(args);
  EventScope event(args.y ? "normalize_relu_backward" : "normalize_backward", "openmp", kernel_table().vectors,
                   {&args.dy, &args.y, &x}, (args.y ? 13 : 12) * x.numel());
  visit_wide(x.dtype, [&]<class C> { NormalizeBackward<C>(args).run(); });
}

}  // namespace gradus
