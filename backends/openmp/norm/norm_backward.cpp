// With g = dy w, s = 1 / sqrt(variance + eps) and h = (x - mean) s:  dx = s (g - avg(g) - h avg(g h)),  dw = sum(dy h),
// db = sum(dy). If the weight is constant for each outer element, all three follow from sum(dy) and sum(dy h).
// Otherwise (layer and group norm) each thread sums dw and db over the rows that it computes, and these sums are added
// in order. With a ReLU, the first pass masks dy while it computes the sums, and stores the masked dy in dresidual or
// in dx for the second pass. norm.h describes how threads share the elements.
#include <gradus/backends/openmp/norm/norm.h>

#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

constexpr int64_t kFlush = 64;  // rows after which float sums are added to double sums

// Sums of g and of g (x - mean) over a range.
struct Sums {
  double plain = 0, product = 0;
  void add(const Sums& other) { plain += other.plain, product += other.product; }
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
    std::vector<Statistics<C>> known;  // in the order by lanes: computed once for all segments
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
    const bool at_once = split.stretches == 1;  // writes dx while the block is still in the cache
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

  // ---- One outer element at a time ----

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
        const Statistics<C> statistics = statistics_of(at);
        const Sums sums = sums_of(at, statistics, 0, inner_.numel, buffer, buffer + parameters_);
        if (dx_) write_row(at, statistics, sums, 0, inner_.numel);
        if ((o - begin) % kFlush == kFlush - 1 || o + 1 == end) flush();  // keeps float sums short
      }
    });
    for (int64_t g = 1; g < groups; ++g)
      for (int64_t i = 0; i < 2 * parameters_; ++i) totals[i] += totals[g * 2 * parameters_ + i];
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
  Coefficients coefficients(const Statistics<C>& of, const Sums& sums, double w) const {
    const double n = static_cast<double>(inner_.numel), s = of.scale;
    if (fixed_) return {s * w, 0, 0};
    const double average_g = sums.plain * w / n, slope = s * s * s * (sums.product * w / n);
    return {s * w, -slope, slope * of.low - s * average_g};
  }

  void write_row(const Offsets& o, const Statistics<C>& of, const Sums& sums, int64_t begin, int64_t end) const {
    const double w0 = by_element_ ? 1 : load_number(weight_, o[3]);
    const Coefficients k = coefficients(of, sums, w0);
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

  // ---- Neighbouring outer elements together ----

  void lane_sums(const LaneBlock& lanes, const Statistics<C>* of, int64_t begin, int64_t end, Sums* total) const {
    const Offsets o = offsets_of(outer_, lanes.begin);
    C shift[kMostLanes];
    for (int64_t c = 0; c < lanes.count; ++c) shift[c] = of[c].high;
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

  void write_lanes(const LaneBlock& lanes, const Statistics<C>* of, const Sums* sums, int64_t begin,
                   int64_t end) const {
    C shift[kMostLanes], a[kMostLanes], b[kMostLanes], k[kMostLanes];
    for (int64_t c = 0; c < lanes.count; ++c) {
      const double w = load_number(weight_, offsets_of(outer_, lanes.begin + c)[3]);
      const Coefficients found = coefficients(of[c], sums[c], w);
      shift[c] = of[c].high;
      a[c] = static_cast<C>(found.a), b[c] = static_cast<C>(found.b), k[c] = static_cast<C>(found.c);
    }
    const Offsets o = offsets_of(outer_, lanes.begin);
    for_each_block<kMostLanes>(inner_, lanes.count, begin, end, [&](const Block<kMostLanes>& block) {
      C x_buffer[block.kSize], dy_buffer[block.kSize], dx_buffer[block.kSize];
      const auto dx = part(dx_, 2, o, block);
      const RowsOf<C> to = dx.results(dx_buffer);
      kernels().lane_combine(second_gradient(o, block, dy_buffer), part(x_, 0, o, block).load(x_buffer), shift, a, b, k,
                             to);
      dx.store(to, dx_buffer);
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
    for (int64_t i = 0; i < nest.numel; ++i) {
      const auto at = offsets_of(nest, i);
      if (dweight_) store_number(dweight_, at[1], dw[at[0]]);
      if (dbias_) store_number(dbias_, at[2], db[at[0]]);
    }
  }

  static const Kernels<C>& kernels() { return kernels_of<C>(kernel_table()); }
  Statistics<C> statistics_of(const Offsets& at) const {
    return {load_number(mean_, at[7]), load_number(variance_, at[8]), eps_};
  }
  Strides zero_if_absent(const StridedLayout& view) const { return strides_or_zero(view, x_.ndim()); }
  // Row-major strides, with 0 for axes of size 1.
  static Strides broadcast_strides(const Shape& shape) {
    Strides strides = contiguous_strides(shape);
    for (int i = 0; i < shape.size(); ++i)
      if (shape[i] == 1) strides[i] = 0;
    return strides;
  }

  static constexpr C kOne = 1;
  const View &dy_, &x_, &mean_, &variance_, &y_;  // y_: the forward result if a ReLU was applied, else empty
  const View weight_;
  const double eps_;
  const bool fixed_;
  const MutableView &dx_, &dweight_, &dbias_, &masked_;  // masked_: receives the masked dy if there is a ReLU
  const Shape shape_;                                    // shape of the parameters, with x's rank
  const Strides dense_;                                  // strides of a row-major array of this shape
  const int64_t parameters_;
  const StridedLoop<9> outer_;  // x, dy, dx, weight, parameters, y, masked, mean, variance
  const StridedLoop<7> inner_;  // the first seven of these
  const bool by_element_;       // the weight or its gradient varies along the inner axes
};

}  // namespace

void OpenmpBackend::normalize_backward(const NormalizeBackwardArgs& args) {
  const View& x = args.x;
  if (x.numel() == 0) return NaiveBackend::normalize_backward(args);
  // The composite adds dy and addend in vectors, and then calls this function with the sum.
  if (args.addend) return Backend::normalize_backward(args);  // NOLINT(bugprone-parent-virtual-call)
  EventScope event(args.y ? "normalize_relu_backward" : "normalize_backward", "openmp", kernel_table().vectors,
                   {&args.dy, &args.y, &x}, (args.y ? 13 : 12) * x.numel());
  visit_wide(x.dtype, [&]<class C> { NormalizeBackward<C>(args).run(); });
}

}  // namespace gradus
