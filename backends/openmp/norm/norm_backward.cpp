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
      : dy_(args.dy), x_(args.x), mean_(args.mean), variance_(args.variance), y_(if_present(args.y)),
        masked_(if_present(args.dresidual || !args.y ? args.dresidual : args.dx)), weight_(args.weight, x_.ndim(), 1),
        eps_(args.eps), fixed_(args.fixed_statistics), dx_(if_present(args.dx)), dweight_(if_present(args.dweight)),
        dbias_(if_present(args.dbias)), shape_(dweight_ ? dweight_->shape
                                               : dbias_ ? dbias_->shape
                                                        : Dims::filled(x_.ndim(), 1)),
        dense_(broadcast_strides(shape_)), parameters_(numel_of(shape_)),
        outer_(nest_of<9>(x_.shape, args.axes, false,
                          {x_.strides, dy_.strides, strides_of(dx_), weight_.strides, dense_, mean_.strides,
                           variance_.strides, strides_of(y_), strides_of(masked_)})),
        inner_(nest_of<7>(
            x_.shape, args.axes, true,
            {x_.strides, dy_.strides, strides_of(dx_), weight_.strides, dense_, strides_of(y_), strides_of(masked_)})),
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
    parallel_for(outer_.numel, group, [&](int64_t begin, int64_t end) {
      double* total = totals.get() + begin / group * 2 * parameters_;
      std::fill_n(total, 2 * parameters_, 0.0);
      const Scratch<C> buffer(2 * parameters_);
      std::fill_n(buffer.get(), 2 * parameters_, C(0));
      const auto flush = [&] {
        for (int64_t i = 0; i < 2 * parameters_; ++i) total[i] += static_cast<double>(buffer[i]), buffer[i] = 0;
      };
      for (int64_t o = begin; o < end; ++o) {
        const Offsets at = offsets_of(outer_, o);
        const Statistics<C> statistics = statistics_of(at);
        const Sums sums = sums_of(at, statistics, 0, inner_.numel, buffer.get(), buffer.get() + parameters_);
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
    const int64_t x_step = step_of(inner_, 0), w_step = step_of(inner_, 3);
    const int64_t p_step = inner_.ndim > 0 ? step_of(inner_, 4) : 0;
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      const double run_weight = constant_weight(o, at);
      C x_buffer[kBlock], dy_buffer[kBlock], w_buffer[kBlock], g_buffer[kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i), p = o[4] + at[4] + i * p_step;
        const C* x = load_block(x_, o[0] + at[0] + i * x_step, x_step, count, x_buffer);
        const C* dy = gradient(o, at, i, count, dy_buffer);
        const C scale = static_cast<C>(of.scale), low = static_cast<C>(of.low);
        C sums[2];
        if (dw && p_step == 1) {
          const C* w = weight_.block(o[3] + at[3] + i * w_step, w_step, count, w_buffer);
          kernels().gradient_sums({count, dy, w, x, of.high, low, scale, dw + p, db + p}, sums);
          total.add(of, sums, 1);
          continue;
        }
        if (dw && p_step != 0)
          for (int64_t k = 0; k < count; ++k)
            dw[p + k * p_step] += dy[k] * ((x[k] - of.high - low) * scale), db[p + k * p_step] += dy[k];
        if (by_element_ && w_step != 0) {
          const C* w = weight_.block(o[3] + at[3] + i * w_step, w_step, count, w_buffer);
          kernels().of(BinaryOp::mul).apply(dy, w, g_buffer, count);
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
    const int64_t dy_step = step_of(inner_, 1), y_step = step_of(inner_, 5);
    const C* dy = load_block(dy_, o[1] + at[1] + i * dy_step, dy_step, count, buffer);
    if (!y_) return dy;
    C y_buffer[kBlock];
    const C* y = load_block(*y_, o[7] + at[5] + i * y_step, y_step, count, y_buffer);
    const int64_t step = step_of(inner_, 6), to_at = o[8] + at[6] + i * step;
    const bool direct = masked_ && masked_->dtype == dtype_of<C> && step == 1;
    C* to = direct ? masked_->as<C>() + to_at : buffer;
    relu_gradient(dy, y, to, count);
    if (masked_ && !direct) store_block(to, *masked_, to_at, step, count);
    return to;
  }

  // The weight of a run, where that varies between runs alone; else 1.
  double constant_weight(const Offsets& o, const int64_t* at) const {
    return by_element_ && step_of(inner_, 3) == 0 ? static_cast<double>(weight_.one<C>(o[3] + at[3])) : 1;
  }

  // What the second pass reads of outer elements from o on: dy, or what the first one has put down of it.
  struct Gradient {
    View view;
    int inner;  // its operand of inner_
    int64_t offset, step, lane;
  };
  Gradient second_gradient(const Offsets& o) const {
    if (masked_) return {*masked_, 6, o[8], step_of(inner_, 6), step_of(outer_, 8)};
    return {dy_, 1, o[1], step_of(inner_, 1), step_of(outer_, 1)};
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
    const double w0 = by_element_ ? 1 : static_cast<double>(weight_.one<C>(o[3]));
    const Coefficients k = coefficients(of, sums, w0);
    const int64_t x_step = step_of(inner_, 0), dx_step = step_of(inner_, 2), w_step = step_of(inner_, 3);
    const Gradient g = second_gradient(o);
    const bool direct = dx_->dtype == dtype_of<C> && dx_step == 1;
    const bool varies = by_element_ && w_step != 0;  // along the run
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      const C a = static_cast<C>(k.a * constant_weight(o, at)), b = static_cast<C>(k.b), c = static_cast<C>(k.c);
      C x_buffer[kBlock], dy_buffer[kBlock], w_buffer[kBlock], dx_buffer[kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i);
        const C* x = load_block(x_, o[0] + at[0] + i * x_step, x_step, count, x_buffer);
        const C* dy = load_block(g.view, g.offset + at[g.inner] + i * g.step, g.step, count, dy_buffer);
        const C* w = varies ? weight_.block(o[3] + at[3] + i * w_step, w_step, count, w_buffer) : nullptr;
        C* to = direct ? dx_->as<C>() + o[2] + at[2] + i : dx_buffer;
        kernels().combine(dy, w, x, of.high, a, b, c, to, count);
        if (!direct) store_block(to, *dx_, o[2] + at[2] + i * dx_step, dx_step, count);
      }
    });
  }

  // ---- Neighbouring outer elements together ----

  void lane_sums(const LaneBlock& block, const Statistics<C>* of, int64_t begin, int64_t end, Sums* total) const {
    const Offsets o = offsets_of(outer_, block.begin);
    const int64_t x_lane = step_of(outer_, 0), x_step = step_of(inner_, 0);
    C shift[kMostLanes];
    for (int64_t c = 0; c < block.count; ++c) shift[c] = of[c].high;
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      C x_buffer[kLaneRows * kMostLanes], dy_buffer[kLaneRows * kMostLanes], plain[kMostLanes], product[kMostLanes];
      for (int64_t first = 0; first < run; first += kLaneRows) {
        const int64_t rows = std::min(kLaneRows, run - first);
        const RowsOf<const C> dy = gradient_rows(o, at, first, rows, block.count, dy_buffer);
        kernels().lane_products(
            dy, load_rows(x_, o[0] + at[0] + first * x_step, x_step, rows, x_lane, block.count, x_buffer), shift, plain,
            product);
        for (int64_t c = 0; c < block.count; ++c) {
          const double sum = static_cast<double>(plain[c]);
          total[c].add({sum, static_cast<double>(product[c]) - of[c].low * sum});
        }
      }
    });
  }

  // Rows of dy from inner element `first` of a run on, masked as in `gradient`.
  RowsOf<const C> gradient_rows(const Offsets& o, const int64_t* at, int64_t first, int64_t rows, int64_t lanes,
                                C* buffer) const {
    const int64_t dy_step = step_of(inner_, 1), y_step = step_of(inner_, 5), step = step_of(inner_, 6);
    const int64_t lane = step_of(outer_, 8), to_at = o[8] + at[6] + first * step;
    const RowsOf<const C> dy =
        load_rows(dy_, o[1] + at[1] + first * dy_step, dy_step, rows, step_of(outer_, 1), lanes, buffer);
    if (!y_) return dy;
    C y_buffer[kLaneRows * kMostLanes];
    const RowsOf<const C> y =
        load_rows(*y_, o[7] + at[5] + first * y_step, y_step, rows, step_of(outer_, 7), lanes, y_buffer);
    const RowsOf<C> to = masked_ ? result_rows(*masked_, to_at, step, rows, lane, lanes, buffer)
                                 : RowsOf<C>{buffer, kMostLanes, rows, lanes};
    relu_gradient(dy, y, to);
    if (masked_) store_rows(to, buffer, *masked_, to_at, step, lane);
    return {to.data, to.stride, rows, lanes};
  }

  void write_lanes(const LaneBlock& block, const Statistics<C>* of, const Sums* sums, int64_t begin,
                   int64_t end) const {
    C shift[kMostLanes], a[kMostLanes], b[kMostLanes], k[kMostLanes];
    for (int64_t c = 0; c < block.count; ++c) {
      const double w = static_cast<double>(weight_.one<C>(offsets_of(outer_, block.begin + c)[3]));
      const Coefficients found = coefficients(of[c], sums[c], w);
      shift[c] = of[c].high;
      a[c] = static_cast<C>(found.a), b[c] = static_cast<C>(found.b), k[c] = static_cast<C>(found.c);
    }
    const Offsets o = offsets_of(outer_, block.begin);
    const Gradient g = second_gradient(o);
    const int64_t x_step = step_of(inner_, 0), dx_step = step_of(inner_, 2);
    for_each_run(inner_, begin, end, [&](const int64_t* at, int64_t run) {
      C x_buffer[kLaneRows * kMostLanes], dy_buffer[kLaneRows * kMostLanes], dx_buffer[kLaneRows * kMostLanes];
      for (int64_t first = 0; first < run; first += kLaneRows) {
        const int64_t rows = std::min(kLaneRows, run - first);
        const int64_t dx_at = o[2] + at[2] + first * dx_step;
        const RowsOf<C> to = result_rows(*dx_, dx_at, dx_step, rows, step_of(outer_, 2), block.count, dx_buffer);
        kernels().lane_combine(
            load_rows(g.view, g.offset + at[g.inner] + first * g.step, g.step, rows, g.lane, block.count, dy_buffer),
            load_rows(x_, o[0] + at[0] + first * x_step, x_step, rows, step_of(outer_, 0), block.count, x_buffer),
            shift, a, b, k, to);
        store_rows(to, dx_buffer, *dx_, dx_at, dx_step, step_of(outer_, 2));
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
    const Strides &w = dweight_ ? dweight_->strides : dense_, &b = dbias_ ? dbias_->strides : dense_;
    const StridedLoop<3> nest(shape_, {&dense_, &w, &b});
    for_each_run(nest, 0, nest.numel, [&](const int64_t* at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t from = at[0] + i * step_of(nest, 0);
        if (dweight_) store_number(*dweight_, at[1] + i * step_of(nest, 1), dw[from]);
        if (dbias_) store_number(*dbias_, at[2] + i * step_of(nest, 2), db[from]);
      }
    });
  }

  static const Kernels<C>& kernels() { return kernels_of<C>(kernel_table()); }
  Statistics<C> statistics_of(const Offsets& at) const {
    return {load_number(mean_, at[5]), load_number(variance_, at[6]), eps_};
  }
  template <class AnyView>
  Strides strides_of(const AnyView* view) const {
    return view ? view->strides : Dims::filled(x_.ndim(), 0);
  }
  // Row-major strides, 0 where the size is 1.
  static Strides broadcast_strides(const Shape& shape) {
    Strides strides = contiguous_strides(shape);
    for (int i = 0; i < shape.size(); ++i)
      if (shape[i] == 1) strides[i] = 0;
    return strides;
  }

  const View &dy_, &x_, &mean_, &variance_;
  const View* y_;              // the result, where a ReLU follows
  const MutableView* masked_;  // where dy goes that it lets through
  const Parameter weight_;
  const double eps_;
  const bool fixed_;
  const MutableView *dx_, *dweight_, *dbias_;
  const Shape shape_;    // of the parameters, in x's rank
  const Strides dense_;  // of a row-major array of theirs
  const int64_t parameters_;
  const StridedLoop<9> outer_;  // x, dy, dx, weight, parameters, mean, variance, y, masked
  const StridedLoop<7> inner_;  // x, dy, dx, weight, parameters, y, masked
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
