// Draws the pictures of the pages from what the framework decides and does: plans of products and reductions, buckets,
// messages. They are the same on every machine.
//
// usage: pictures FOLDER [--check]      --check writes nothing and says which of FOLDER's differ; status 1 then
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include <gradus/backends/cuda/device/reduce_plan.h>
#include <gradus/backends/openmp/gemm/gemm.h>
#include <gradus/core/platform/file.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/distributed/comm/local/local_group.h>
#include <gradus/distributed/parallel/reducer.h>
#include <gradus/gradus.h>
#include <gradus/inspect/explain/explain_parts.h>

using namespace gradus;
using training::detail::print_to;

namespace {

/// SVG whose text and lines are dark on a light page and light on a dark one. Fills are transparent: c0 blue, c1
/// orange, c2 green, c3 violet, on either.
class Picture {
 public:
  void box(double x, double y, double width, double height, const char* style) {
    print_to(svg_, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" class=\"%s\"/>\n", x, y, width, height, style);
  }
  [[gnu::format(printf, 4, 5)]] void text(double x, double y, const char* format, ...) {
    char line[200];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    print_to(svg_, "<text x=\"%g\" y=\"%g\">%s</text>\n", x, y, line);
  }
  void line(double x0, double y0, double x1, double y1) {
    print_to(svg_, "<path d=\"M%g %g L%g %g\"/>\n", x0, y0, x1, y1);
  }
  void path(const std::string& steps, const char* style) {
    svg_ += "<path d=\"" + steps + "\" class=\"" + style + "\"/>\n";
  }
  void arrow(double x0, double y0, double x1, double y1) {
    const double angle = std::atan2(y1 - y0, x1 - x0);
    const auto tip = [&](double turn) {
      print_to(svg_, " L%.1f %.1f", x1 - 6 * std::cos(angle + turn), y1 - 6 * std::sin(angle + turn));
    };
    print_to(svg_, "<path d=\"M%.1f %.1f L%.1f %.1f", x0, y0, x1, y1);
    tip(0.4);
    print_to(svg_, " M%.1f %.1f", x1, y1);
    tip(-0.4);
    svg_ += "\"/>\n";
  }
  std::string str(int width, int height) const {
    std::string page;
    print_to(page, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n<style>\n", width, height);
    return page +
           "text { font: 12px sans-serif; fill: #24292f; } rect, path { stroke: #57606a; fill: none; }\n"
           ".c0 { fill: #3c7ae2; fill-opacity: .45; } .c1 { fill: #e2803c; fill-opacity: .55; }\n"
           ".c2 { fill: #2da44e; fill-opacity: .45; } .c3 { fill: #8250df; fill-opacity: .45; }\n"
           "@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } rect, path { stroke: #8b949e; } }\n"
           "</style>\n" +
           svg_ + "</svg>\n";
  }

 private:
  std::string svg_;
};

// ---- A matrix product: who packs and computes what ------------------------------------------------------------------

std::string matmul_tiles() {
  using namespace openmp_detail;
  constexpr int64_t n = 512;
  const KernelTable& table = avx512::kernels();
  const GemmPlan plan = select(GemmProblem{
      .table = &table, .threads = 2, .rows = n, .columns = n, .depth = n, .a = {n, 1}, .b = {n, 1}, .c = {n, 1}});
  const Registers tile = registers(table, DType::f32);
  const Cut& cut = plan.cut;
  Picture p;
  // C below B, right of A; the depth of A goes right, that of B down.
  constexpr double kScale = 0.37, kSide = n * kScale, kGap = 16, kLeft = 10, kTop = 30;
  const double cx = kLeft + kSide + kGap, cy = kTop + kSide + kGap;
  const double depth = static_cast<double>(plan.depth_at_once) * kScale;
  const double block_rows = static_cast<double>(cut.rows) * kScale, strip = static_cast<double>(tile.columns) * kScale;
  const double block_columns = static_cast<double>(std::min(cut.columns, n)) * kScale;
  p.box(cx, kTop, kSide, kSide, "");
  p.box(cx, kTop, kSide, depth, "c0");
  for (double x = strip; x < kSide - 0.5; x += strip) p.line(cx + x, kTop, cx + x, kTop + depth);
  p.box(kLeft, cy, kSide, kSide, "");
  p.box(kLeft, cy, depth, block_rows, "c1");
  p.box(cx, cy, kSide, kSide, "");
  for (int64_t i = 1; i < cut.row_blocks; ++i)
    p.line(cx, cy + static_cast<double>(i) * block_rows, cx + kSide, cy + static_cast<double>(i) * block_rows);
  for (int64_t i = 1; i < cut.column_blocks; ++i)
    p.line(cx + static_cast<double>(i) * block_columns, cy, cx + static_cast<double>(i) * block_columns, cy + kSide);
  p.box(cx, cy, block_columns, block_rows, "c2");
  const double tile_height = static_cast<double>(tile.rows) * kScale;
  p.box(cx + 2 * strip, cy + 2 * tile_height, strip, tile_height, "c3");
  p.text(cx, kTop - 10, "B, %lld x %lld", static_cast<long long>(n), static_cast<long long>(n));
  p.text(kLeft, cy - 5, "A");
  p.text(cx + kSide + 5, cy + 12, "C");

  const double x = cx + kSide + 40;
  double y = kTop;
  const auto legend = [&](const char* style, const std::string& first, const std::string& second) {
    p.box(x, y, 14, 14, style);
    p.text(x + 22, y + 11, "%s", first.c_str());
    p.text(x + 22, y + 26, "%s", second.c_str());
    y += 44;
  };
  const auto format = [](const char* text, int64_t a, int64_t b, int64_t c = 0) {
    char line[160];
    std::snprintf(line, sizeof line, text, static_cast<long long>(a), static_cast<long long>(b),
                  static_cast<long long>(c));
    return std::string(line);
  };
  legend("c0", format("%lld rows of B at a time, packed once by all threads:", plan.depth_at_once, 0),
         format("strips of %lld columns, %lld KiB each (first-level cache)", tile.columns,
                plan.depth_at_once * tile.columns * 4 / 1024));
  legend("c1", format("a part of A of %lld rows, packed by whoever takes", cut.rows, 0),
         format("the block: panels of up to %lld rows, %lld KiB (second level)", tile.rows,
                cut.rows * plan.depth_at_once * 4 / 1024));
  legend("c2", format("a block of C, %lld x %lld: a thread's work;", cut.rows, cut.columns),
         format("there are %lld x %lld, whatever the number of threads", cut.row_blocks, cut.column_blocks));
  legend("c3", format("a register tile, %lld x %lld: sums of products of a panel", tile.rows, tile.columns),
         format("and a strip, in %lld vectors", tile.rows * tile.columns / tile.vector, 0));

  // What packing does to the order in memory, on a strip of 4 columns.
  y += 10;
  p.text(x, y, "packing: place in memory of what a tile reads, here 4 columns");
  const auto grid = [&](double left, const char* title, int stride) {
    p.text(left, y + 20, "%s", title);
    for (int row = 0; row < 4; ++row)
      for (int column = 0; column < 4; ++column) {
        p.box(left + 34 * column, y + 28 + 18 * row, 34, 18, "c0");
        p.text(left + 34 * column + 4, y + 41 + 18 * row, "%d", row * stride + column);
      }
  };
  grid(x, "rows of B, 512 apart", 512);
  grid(x + 170, "a packed strip", 4);
  return p.str(870, 440);
}

// ---- A reduction on a GPU: which thread adds what -------------------------------------------------------------------

std::string reduce_threads() {
  constexpr int kMultiprocessors = 132, kWidth = 4;  // an H100's; elements of a vector of 16 bytes
  constexpr const char* kStyles[] = {"c0", "c1", "c2", "c3"};
  Picture p;
  const auto draw = [&](double top, const char* title, int64_t count, int64_t reduced, bool adjacent) {
    const cuda_detail::ReducePlan plan(count, reduced, adjacent, kWidth, kMultiprocessors);
    p.text(10, top, "%s: %u blocks%s of 256 threads, %u results%s each, %u threads (lanes) a result", title,
           plan.blocks(count),
           plan.splits > 1 ? (" for each of " + std::to_string(plan.splits) + " splits").c_str() : "", plan.outputs,
           adjacent ? " of 4 columns" : "", plan.lanes);
    p.text(10, top + 18,
           "Vectors of 4 numbers and the lane that folds them, in the corner of a block; there are %lld x %lld.",
           static_cast<long long>(adjacent ? reduced : count), static_cast<long long>(adjacent ? count : reduced));
    for (uint32_t row = 0; row < 6; ++row)
      for (uint32_t column = 0; column < 20; ++column) {
        // As in reduce_kernel.cuh: the threads of a result are neighbours, or those of neighbouring results are.
        const uint32_t output = adjacent ? column : row, vector = adjacent ? row : column;
        if (output >= plan.outputs) continue;
        const uint32_t lane = vector % plan.lanes;
        p.box(10 + 38 * column, top + 28 + 20 * row, 38, 20, kStyles[(lane + output) % 4]);
        p.text(14 + 38 * column, top + 42 + 20 * row, "%u.%u", output, lane);
      }
    const uint32_t step = adjacent ? plan.outputs : 1;
    std::string tree;
    for (uint32_t width = plan.lanes / 2; width > 0; width /= 2)
      print_to(tree, "%s%u", tree.empty() ? "" : ", then ", width * step);
    p.text(10, top + 164, "Numbers: result.lane. Then a tree adds the lanes: thread t takes that of thread t + %s.",
           tree.c_str());
  };
  draw(20, "Sum of each row, 8192 x 1024", 8192, 1024 / kWidth, false);
  draw(220, "Sum of each column, 8192 x 1024", 1024 / kWidth, 8192, true);
  return p.str(870, 400);
}

// ---- The memory of a step -------------------------------------------------------------------------------------------

std::string memory_timeline() {
  const BackendGuard naive("naive");
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)), nn::ReLU(), nn::MaxPool2d(2),
                     nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(400, 120),
                     nn::ReLU(), nn::Linear(120, 84), nn::ReLU(), nn::Linear(84, 10));
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  const MemoryReport report = plan(net, {32, 1, 28, 28}, sgd);
  struct Kind {
    const char *title, *style;
    std::vector<MemoryKind> kinds;
  };
  using enum MemoryKind;
  const Kind kinds[] = {{"parameters, state, inputs", "c3", {parameters, optimizer_state, inputs}},
                        {"gradients of parameters", "c2", {gradients}},
                        {"activations", "c0", {activations}},
                        {"gradients of activations, the rest", "c1", {recomputed, backward, optimizer, workspace}}};
  std::vector<int64_t> below(static_cast<size_t>(report.end)), above = below;
  const double left = 10, bottom = 240, width = 560.0 / static_cast<double>(report.end);
  const double height = 200.0 / static_cast<double>(report.peak);
  Picture p;
  double y = 60;
  for (const Kind& kind : kinds) {
    for (const MemorySpan& span : report.timeline)
      if (std::ranges::count(kind.kinds, span.kind) > 0)
        for (int64_t t = span.begin; t < std::min(span.end, report.end); ++t)
          above[static_cast<size_t>(t)] += span.bytes;
    // Steps to the right along the upper edge, and back along the lower one.
    std::string path = "M";
    const auto edge = [&](const std::vector<int64_t>& bytes, size_t t) {
      const double at = bottom - height * static_cast<double>(bytes[t]);
      const double x0 = left + width * static_cast<double>(t), x1 = x0 + width;
      print_to(path, "%.1f %.1f L%.1f %.1f L", &bytes == &above ? x0 : x1, at, &bytes == &above ? x1 : x0, at);
    };
    for (size_t t = 0; t < above.size(); ++t) edge(above, t);
    for (size_t t = above.size(); t-- > 0;) edge(below, t);
    p.path(path.substr(0, path.size() - 2) + "Z", kind.style);
    below = above;
    p.box(600, y - 11, 14, 14, kind.style);
    p.text(622, y, "%s", kind.title);
    y += 24;
  }
  const double peak = left + width * static_cast<double>(report.peak_time);
  p.text(10, 20, "A step of LeNet, 32 images, SGD with momentum; at most %.2f MB",
         static_cast<double>(report.peak) / 1e6);
  p.line(peak, 30, peak, bottom);
  const std::pair<int64_t, const char*> parts[] = {
      {0, "forward"}, {report.backward_begin, "backward"}, {report.step_begin, "update"}};
  for (const auto& [begin, title] : parts) {
    const double x = left + width * static_cast<double>(begin);
    p.line(x, bottom, x, bottom + 16);
    p.text(x + 4, bottom + 14, "%s", title);
  }
  return p.str(870, 265);
}

// ---- A step of data-parallel training -------------------------------------------------------------------------------

/// Kernels of a step as they would follow each other on a core of 100 GFLOP/s with memory of 20 GB/s.
class PaperClock final : public Observer {
 public:
  struct Kernel {
    double begin, end;
    bool backward;
  };
  PaperClock() { add_observer(this); }
  ~PaperClock() override { remove_observer(this); }
  void on_end(const ObservedEvent& event) override {
    if (event.kind != ObservedEvent::Kind::kernel || !event.leaf) return;
    const double begin = now;
    now += std::max(static_cast<double>(event.flops) / 100e9, static_cast<double>(event.bytes) / 20e9);
    kernels.push_back({begin, now, backward});
  }
  std::vector<Kernel> kernels;
  double now = 0;
  bool backward = false;
};

std::string ddp_step() {
  constexpr double kLatency = 20e-6, kBandwidth = 5e9;  // of the link
  const BackendGuard naive("naive");                    // whose kernels are the same everywhere
  nn::Sequential net(nn::Linear(784, 512), nn::ReLU(), nn::Linear(512, 512), nn::ReLU(), nn::Linear(512, 256),
                     nn::ReLU(), nn::Linear(256, 10));
  const Tensor x = randn({64, 784}), target = zeros({64}, kLong);
  std::vector<Array> parameters;
  for (const Tensor& parameter : net->parameters()) parameters.push_back(parameter.array());
  std::vector<double> ready(parameters.size());
  std::vector<size_t> order;
  PaperClock clock;
  for (size_t i = 0; i < parameters.size(); ++i)
    net->parameters()[i].register_post_accumulate_grad_hook([&, i](const Tensor&) {
      ready[i] = clock.now;
      order.push_back(i);
    });
  const Tensor loss = cross_entropy(net->forward(x), target);
  clock.backward = true;
  loss.backward();
  const double computed = clock.now;

  const auto duration = [&](const std::vector<size_t>& bucket) {
    size_t bytes = 0;
    for (const size_t i : bucket) bytes += parameters[i].nbytes();
    return kLatency + static_cast<double>(bytes) / kBandwidth;  // of two ranks each sends as much as it has
  };
  const dist::BucketPlan buckets = dist::plan_buckets(parameters, order, {.first = 256 << 10, .others = 1 << 20});
  double whole = computed + duration(order), sum = 0;
  std::vector<std::pair<double, double>> sent;
  for (const auto& bucket : buckets) {
    double begin = sent.empty() ? 0 : sent.back().second;
    for (const size_t i : bucket) begin = std::max(begin, ready[i]);
    sent.emplace_back(begin, begin + duration(bucket));
    sum += duration(bucket);
  }

  Picture p;
  const double scale = 600 / whole, left = 150;
  const auto rows = [&](double top, const char* title, const std::vector<std::pair<double, double>>& bars) {
    p.text(10, top + 17, "computing");
    for (const auto& kernel : clock.kernels)
      p.box(left + scale * kernel.begin, top, scale * (kernel.end - kernel.begin), 26, kernel.backward ? "c1" : "c0");
    p.text(10, top + 53, "%s", title);
    for (size_t i = 0; i < bars.size(); ++i) {
      p.box(left + scale * bars[i].first, top + 36, scale * (bars[i].second - bars[i].first), 26, "c2");
      p.text(left + scale * bars[i].first + 4, top + 53, "%zu", i);
    }
    const double end = left + scale * std::max(computed, bars.back().second);
    p.line(end, top - 6, end, top + 68);
    p.text(end + 5, top + 17, "%.2f ms", 1e3 * std::max(computed, bars.back().second));
  };
  p.text(10, 20, "Forward (blue), backward (orange), all-reduces (green) of a perceptron of four layers, batch of 64.");
  p.text(10, 38, "On paper: 100 GFLOP/s and 20 GB/s a rank; a link of 5 GB/s and 20 \u00b5s.");
  rows(60, "one all-reduce", {{computed, whole}});
  rows(160, "in buckets", sent);
  for (size_t i = 0; i < ready.size(); ++i) p.line(left + scale * ready[i], 186, left + scale * ready[i], 196);
  p.text(10, 250, "Ticks: a gradient is there. A bucket leaves when its last one is, and the one before has gone.");
  return p.str(830, 265);
}

// ---- Collectives as messages ----------------------------------------------------------------------------------------

/// Rank 0 adds up and tells the others.
void all_to_one(dist::ProcessGroup& group) {
  const Tensor x = full({1}, std::pow(10, group.rank())), theirs = empty({1});
  for (int rank = 1; rank < group.size(); ++rank) {
    if (group.rank() == rank) group.send(x.array(), 0);
    if (group.rank() == 0) group.recv(theirs.array(), rank), x.add_(theirs);
  }
  for (int rank = 1; rank < group.size(); ++rank) {
    if (group.rank() == 0) group.send(x.array(), rank);
    if (group.rank() == rank) group.recv(x.array(), 0);
  }
}

void all_to_all(dist::ProcessGroup& group) { group.all_reduce(full({1}, std::pow(10, group.rank())).array()); }

void ring(dist::ProcessGroup& group) {
  const int n = group.size(), rank = group.rank();
  const Tensor x = full({n}, std::pow(10, rank)), arrived = empty({1});
  const auto part = [&](int i) { return x.slice(0, (i + 2 * n) % n, (i + 2 * n) % n + 1); };
  for (int step = 0; step < 2 * n - 2; ++step) {
    group.send(part(rank - step).array(), (rank + 1) % n);
    group.recv(arrived.array(), (rank + n - 1) % n);
    if (step < n - 1) part(rank - step - 1).add_(arrived);
    else part(rank - step - 1).copy_(arrived);
  }
}

std::string messages() {
  constexpr int kRanks = 4;
  constexpr double kLane = 70, kStep = 19;
  Picture p;
  double left = 0;
  int height = 0;
  const auto draw = [&](const char* title, const std::function<void(dist::ProcessGroup&)>& work) {
    // Lamport's clock: the order of a rank's events, and a message arrives after it was sent. Which thread ran when
    // makes no difference.
    int time[kRanks] = {}, last = 0;
    std::map<size_t, std::pair<int, int>> sent;  // message -> rank, time
    struct Arrow {
      int to, arrives;
      float number;
    };
    std::map<std::pair<int, int>, Arrow> arrows;  // by time and rank of the sending
    const dist::MessageLog log = dist::record_messages(kRanks, work);
    const auto x = [&](int rank) { return left + kLane * (rank + 0.5); };
    const auto y = [&](int at) { return 40 + kStep * at; };
    p.text(left + 14, 16, "%s", title);
    for (const dist::MessageLog::Event& event : log.events) {
      if (event.kind == dist::MessageLog::Event::Kind::sends) {
        sent[event.message] = {event.rank, ++time[event.rank]};
      } else {
        const auto [from, then] = sent[event.message];
        time[event.rank] = std::max(time[event.rank], then) + 1;
        float number;
        std::memcpy(&number, event.body.data(), sizeof number);
        arrows[{then, from}] = {event.rank, time[event.rank], number};
      }
      last = std::max(last, time[event.rank]);
    }
    for (const auto& [sending, arrow] : arrows) {
      const auto [then, from] = sending;
      p.arrow(x(from), y(then), x(arrow.to), y(arrow.arrives));
      const std::string number = std::to_string(std::lround(arrow.number));
      p.text(x(from) + (arrow.to > from ? 5 : -5 - 7 * static_cast<double>(number.size())), y(then) - 1, "%s",
             number.c_str());
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      p.text(x(rank) - 18, 34, "rank %d", rank);
      p.line(x(rank), 40, x(rank), y(last) + 6);
    }
    height = std::max(height, static_cast<int>(y(last)) + 20);
    left += kRanks * kLane;
  };
  draw("rank 0 does it all", all_to_one);
  draw("everybody to everybody (one exchange)", all_to_all);
  draw("a ring (a quarter a message)", ring);
  return p.str(static_cast<int>(left), height);
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string_view(argv[2]) == "--check";
  if (argc < 2 || (argc > 2 && !check)) return std::fprintf(stderr, "usage: pictures FOLDER [--check]\n"), 2;
  int differing = 0;
  const std::pair<const char*, std::string (*)()> pictures[] = {{"matmul_tiles.svg", matmul_tiles},
                                                                {"reduce_threads.svg", reduce_threads},
                                                                {"memory_timeline.svg", memory_timeline},
                                                                {"ddp_step.svg", ddp_step},
                                                                {"all_reduce_messages.svg", messages}};
  for (const auto& [name, draw] : pictures) {
    const std::string path = std::string(argv[1]) + "/" + name, picture = draw();
    if (!check) {
      io::write_file(path, picture);
    } else if (const io::Bytes bytes = io::read_file(path);
               std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) != picture) {
      std::printf("%s is not what is drawn now: run scripts/pictures.sh\n", path.c_str());
      ++differing;
    }
  }
  return differing > 0 ? 1 : 0;
}
