// The text, the page and the drawing of made explanations, whose figures are all known.
#include <gradus/core/platform/file.h>
#include <gradus/gradus.h>
#include <gradus/inspect/explain/explain_parts.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using test::contains;
using training::Explanation;

namespace {

Explanation::Kernel listed_kernel(const std::string& name, double seconds) {
  Explanation::Kernel kernel;
  kernel.name = name, kernel.backend = "openmp", kernel.implementation = "loops", kernel.seconds = seconds;
  return kernel;
}

/// A step of 20 ms with three kernels, two saved arrays, a leak, proposals and a note.
Explanation made_explanation() {
  Explanation e;
  e.step_seconds = 0.020, e.between_seconds = 0.004;
  e.roofline = {2e9, {{1 << 20, 5e9}, {64 << 20, 3e9}}};
  e.kernels = {listed_kernel("conv2d", 0.010), listed_kernel("relu", 0.001), listed_kernel("conv2d_backward", 0.004)};
  e.kernels[0].op = "conv2d", e.kernels[0].module = "stem", e.kernels[0].reason = "few channels";
  e.kernels[0].shapes = {{2, 3}, {4}};
  e.kernels[0].bytes = 3072, e.kernels[0].flops = 1'500'000, e.kernels[0].roofline = 0.25;
  e.kernels[2].op = "Conv2d", e.kernels[2].backward = true;
  e.peak_bytes = 4096, e.peak_call = 7;
  e.saved.resize(2);
  e.saved[0] = {
      "conv2d of stem", {"relu", "max_pool2d"}, "Relu, backward", "stem", {2, 3}, DType::f32, 2048, 0, 1, true};
  e.saved[1] = {"relu", {"relu"}, "the end of the step", "", {8}, DType::f32, 512, 1, 2, false};
  e.leaks = {{"mul, train.cpp:3", {4, 8}, 128}};
  e.faster = {{"fuse <them>", 0.0015, 0, "measured"}};
  e.smaller = {{"recompute", 0, 2048, "saved"}};
  e.notes = {"a & b"};
  return e;
}

/// The text with single blanks instead of the columns' padding.
std::string squeezed(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ' ' && (result.empty() || result.back() == ' ' || result.back() == '\n')) continue;
    if (c == '\n' && !result.empty() && result.back() == ' ') result.pop_back();
    result += c;
  }
  return result;
}

Explanation::Call drawn_call(const std::string& op, const std::string& module, std::vector<size_t> inputs, Shape result,
                             double seconds, bool backward = false) {
  Explanation::Call call;
  call.op = op, call.origin.module = module, call.inputs = std::move(inputs), call.result = result;
  call.seconds = seconds, call.backward = backward;
  return call;
}

/// `count` calls in a row, each of another operator.
Explanation chain_of(size_t count) {
  Explanation e;
  for (size_t i = 0; i < count; ++i)
    e.calls.push_back(
        drawn_call("op" + std::to_string(i), "", i > 0 ? std::vector{i - 1} : std::vector<size_t>(), {1}, 0));
  return e;
}

}  // namespace

TEST_CASE("the text of an explanation has every figure", "[explain]") {
  CHECK(made_explanation().kernel_seconds() == Approx(0.015));
  CHECK(squeezed(made_explanation().str()) == R"(a step: 20.000 ms; 3 kernels: 15.000 ms; )"
                                              R"(between kernels: 4.000 ms; sum: 95.0 % of the step
this machine: 2 GFLOP/s, 5 GB/s from 1 MiB, 3 GB/s from 64 MiB

operator module kernel: implementation bytes MFLOP ms roofline reason
0 conv2d stem conv2d: openmp/loops 3 KiB 1.50 10.0000 25 % few channels
1 relu: openmp/loops 0 B 0.00 1.0000 0 %
2 back Conv2d conv2d_backward: openmp/loops 0 B 0.00 4.0000 0 %
between kernels 4.0000 ms

most memory: 4 KiB beyond what was allocated before, in call 7; saved for the backward pass: 2.5 KiB
2 KiB (2, 3) of conv2d of stem; kept by relu, max_pool2d; until Relu, backward; at the peak
512 B (8,) of relu; kept by relu; until the end of the step
kept from step to step: 128 B (4, 8), made by mul, train.cpp:3

what would save time:
fuse <them>: 1.500 ms (measured)

what would save memory:
recompute: 2 KiB (saved)
note: a & b
)");
}

TEST_CASE("the text of an explanation lists the most costly kernels in the order in which they ran", "[explain]") {
  Explanation e = made_explanation();
  const std::string two = squeezed(e.str(2));
  CHECK_THAT(two, contains("0 conv2d stem") && contains("2 back Conv2d") && contains("and 1 cheaper ones\n"));
  CHECK(two.find("1 relu:") == std::string::npos);
  CHECK(two.find("0 conv2d stem") < two.find("2 back Conv2d"));
  CHECK(e.str(3).find("cheaper") == std::string::npos);
  e.kernels[2].seconds = e.kernels[1].seconds;  // of two with the same time, the earlier one is listed
  CHECK_THAT(squeezed(e.str(2)), contains("1 relu:"));
}

TEST_CASE("the text of an explanation lists twenty saved arrays, and says where nothing was found", "[explain]") {
  Explanation e;
  e.saved.assign(20, made_explanation().saved[1]);
  const auto lines_of_saved = [&] {
    const std::string text = e.str();
    size_t lines = 0;
    for (size_t at = text.find("of relu"); at != std::string::npos; at = text.find("of relu", at + 1)) ++lines;
    return lines;
  };
  CHECK(lines_of_saved() == 20);
  CHECK(e.str().find("smaller ones") == std::string::npos);
  e.saved.resize(23, e.saved[0]);
  CHECK(lines_of_saved() == 20);
  CHECK_THAT(e.str(), contains("  and 3 smaller ones\n"));
  CHECK_THAT(e.str(), contains("what would save time:\n  nothing found\n\nwhat would save memory:\n  nothing found\n"));
}

TEST_CASE("the page of an explanation has every figure, and its texts are escaped", "[explain]") {
  const Explanation e = made_explanation();
  const std::string page = e.html("a \"<step>\"");
  CHECK_THAT(page, contains("<title>a &quot;&lt;step&gt;&quot;</title>"));
  CHECK_THAT(page, contains("<p>a step: 20.000 ms; 3 kernels: 15.000 ms;"));
  CHECK_THAT(page, contains("<tr><td>0</td><td>forward</td><td>conv2d</td><td>stem</td><td>conv2d</td>"
                            "<td>openmp: loops</td><td>few channels</td><td>(2, 3) (4,)</td><td>3 KiB</td>"
                            "<td>1.50</td><td>10.0000</td><td>25</td></tr>\n<tr><td>1</td>"));
  CHECK_THAT(page, contains("<tr><td>2</td><td>backward</td><td>Conv2d</td>"));
  CHECK_THAT(page, contains("<td>between kernels</td>") && contains("<td>4.0000</td><td></td></tr>\n</table>"));
  CHECK_THAT(page, contains("Most memory: 4 KiB beyond") && contains("in call 7."));
  CHECK_THAT(page, contains("<tr><td>2 KiB</td><td>(2, 3)</td><td>conv2d of stem</td><td>relu, max_pool2d</td>"
                            "<td>Relu, backward</td><td>yes</td></tr>\n"
                            "<tr><td>512 B</td><td>(8,)</td><td>relu</td><td>relu</td>"
                            "<td>the end of the step</td><td></td></tr>\n"));
  CHECK_THAT(page, contains("<h2>Kept from step to step</h2>\n<table>"
                            "<tr><td>128 B</td><td>(4, 8)</td><td>mul, train.cpp:3</td></tr>\n</table>"));
  CHECK_THAT(page, contains("<tr><td>fuse &lt;them&gt;</td><td>1.500 ms</td><td>measured</td></tr>"));
  CHECK_THAT(page, contains("<tr><td>recompute</td><td>2 KiB</td><td>saved</td></tr>"));
  CHECK_THAT(page, contains("<p>a &amp; b</p>"));
  CHECK(page.find("{{") == std::string::npos);
  CHECK(Explanation().html().find("Kept from") == std::string::npos);

  const test::TemporaryDirectory directory;
  e.save_html(directory.file("page.html"), "saved");
  const io::Bytes bytes = io::read_file(directory.file("page.html"));
  CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == e.html("saved"));
}

// A layer is called twice, and a sum reads the results of a layer and of two operators.
TEST_CASE("the drawing has a box for each layer or operator, with lines from what it reads", "[explain]") {
  Explanation e;
  e.calls = {drawn_call("conv2d", "stem", {}, {2, 4}, 0.001),
             drawn_call("relu", "stem", {0}, {2, 5}, 0.002),
             drawn_call("mul", "", {1}, {6}, 0.001),
             drawn_call("add_scalar", "", {1}, {6}, 0.0005),
             drawn_call("add", "", {2, 3, 1}, {6}, 0.001),
             drawn_call("conv2d", "stem", {4}, {7}, 0.003),
             drawn_call("cross_entropy", "", {5}, {}, 0),
             drawn_call("CrossEntropy", "", {}, {7}, 0.001, true),
             drawn_call("Conv2d", "stem", {}, {6}, 0.005, true),
             drawn_call("Add", "", {}, {6}, 0.001, true),
             drawn_call("AddScalar", "", {}, {6}, 0.0005, true),
             drawn_call("Mul", "", {}, {6}, 0, true),
             drawn_call("Relu", "stem", {}, {6}, 0.001, true),
             drawn_call("Conv2d", "stem", {}, {6}, 0.002, true),
             drawn_call("Strange", "", {}, {6}, 0.001, true),
             drawn_call("optimizer_step", "", {}, {6}, 0.001)};
  std::vector<size_t> box_of;
  CHECK(training::detail::picture_of(e, box_of) == R"(<svg xmlns="http://www.w3.org/2000/svg" width="790" height="310">
<path d="M255 40 L255 62"/>
<path d="M255 40 L605 62"/>
<path d="M90 20 C0 71 0 93 90 144"/>
<path d="M255 102 L255 124"/>
<path d="M605 102 L255 124"/>
<path d="M255 164 L255 186"/>
<path d="M255 226 L255 248"/>
<rect data-box="0" x="90" y="0" width="330" height="40" rx="4" fill-opacity="0.75"/>
<text x="98" y="17">stem: conv2d</text><text x="98" y="33" class="small">(2, 5), 3.000 + 3.000 ms</text>
<rect data-box="1" x="90" y="62" width="330" height="40" rx="4" fill-opacity="0.12"/>
<text x="98" y="79">mul</text><text x="98" y="95" class="small">(6,), 1.000 + 0.000 ms</text>
<rect data-box="2" x="440" y="62" width="330" height="40" rx="4" fill-opacity="0.12"/>
<text x="448" y="79">add_scalar</text><text x="448" y="95" class="small">(6,), 0.500 + 0.500 ms</text>
<rect data-box="3" x="90" y="124" width="330" height="40" rx="4" fill-opacity="0.25"/>
<text x="98" y="141">add</text><text x="98" y="157" class="small">(6,), 1.000 + 1.000 ms</text>
<rect data-box="4" x="90" y="186" width="330" height="40" rx="4" fill-opacity="1.00"/>
<text x="98" y="203">stem: conv2d</text><text x="98" y="219" class="small">(7,), 3.000 + 5.000 ms</text>
<rect data-box="5" x="90" y="248" width="330" height="40" rx="4" fill-opacity="0.12"/>
<text x="98" y="265">cross_entropy</text><text x="98" y="281" class="small">(), 0.000 + 1.000 ms</text>
</svg>
)");
  CHECK(box_of == std::vector<size_t>{0, 0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0, 0, SIZE_MAX, SIZE_MAX});
}

TEST_CASE("the drawing cuts long titles, and leaves nets out that have more than a thousand boxes", "[explain]") {
  std::vector<size_t> box_of;
  Explanation e = chain_of(1);
  e.calls[0].op = std::string(44, 'x');
  CHECK_THAT(training::detail::picture_of(e, box_of), contains(">" + e.calls[0].op + "</text>"));
  e.calls[0].op = "first<" + std::string(42, 'x');
  CHECK_THAT(training::detail::picture_of(e, box_of), contains(">\u2026&lt;" + std::string(42, 'x') + "</text>"));
  CHECK_THAT(training::detail::picture_of(e, box_of), contains("fill-opacity=\"0.00\""));  // no time was measured
  CHECK_THAT(training::detail::picture_of(chain_of(1000), box_of), contains("data-box=\"999\""));
  CHECK(training::detail::picture_of(chain_of(1001), box_of).empty());
  CHECK(box_of.size() == 1001);
  CHECK(training::detail::picture_of(Explanation(), box_of) ==
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"90\" height=\"0\">\n</svg>\n");
  CHECK(box_of.empty());
}
