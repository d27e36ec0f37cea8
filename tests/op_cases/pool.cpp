// Pooling beyond max_pool2d (see image.cpp).
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_avg_pool(CaseList& cases) {
  cases.add("avg_pool2d", {{2, 2, 4, 6}}, [](X x) { return avg_pool2d(x[0], 2); }, "F.avg_pool2d(x[0], 2)").is_image();
  cases.add("avg_pool2d.overlap", {{1, 2, 7, 7}}, [](X x) { return avg_pool2d(x[0], 3, 2, 1); },
            "F.avg_pool2d(x[0], 3, 2, 1)").is_image();
  cases.add("avg_pool2d.uneven", {{1, 3, 7, 8}}, [](X x) { return avg_pool2d(x[0], {3, 2}, Pair(1, 2), {1, 0}); },
            "F.avg_pool2d(x[0], (3, 2), (1, 2), (1, 0))").is_image();
  cases.add("avg_pool2d.ceil_mode", {{1, 2, 6, 7}}, [](X x) { return avg_pool2d(x[0], 3, 2, 1, true); },
            "F.avg_pool2d(x[0], 3, 2, 1, ceil_mode=True)").is_image();
  cases.add("avg_pool2d.exclude_pad", {{1, 2, 6, 7}}, [](X x) { return avg_pool2d(x[0], 3, 2, 1, true, false); },
            "F.avg_pool2d(x[0], 3, 2, 1, ceil_mode=True, count_include_pad=False)").is_image();
  // With ceil_mode, a last window that would start in the padding after the image is omitted.
  cases.add("avg_pool2d.ceil_mode_in_padding", {{1, 2, 5, 8}}, [](X x) { return avg_pool2d(x[0], 2, 3, 1, true); },
            "F.avg_pool2d(x[0], 2, 3, 1, ceil_mode=True)").is_image();
  cases.add("max_pool2d.ceil_mode_in_padding", {{1, 2, 5, 8}},
            [](X x) { return max_pool2d_with_indices(x[0], 2, 3, 1, 1, true); },
            "F.max_pool2d(x[0], 2, 3, 1, ceil_mode=True, return_indices=True)").is_image();
  cases.add("avg_pool2d.divisor", {{1, 2, 5, 5}}, [](X x) { return avg_pool2d(x[0], 2, 2, 1, false, true, 3); },
            "F.avg_pool2d(x[0], 2, 2, 1, divisor_override=3)").is_image();
  cases.add("avg_pool2d.negative_divisor", {{1, 2, 5, 5}},
            [](X x) { return avg_pool2d(x[0], 2, 2, 1, false, true, -3); },
            "F.avg_pool2d(x[0], 2, 2, 1, divisor_override=-3)").is_image();
  cases.add("avg_pool2d.unbatched", {{2, 4, 6}}, [](X x) { return avg_pool2d(x[0], 2); }, "F.avg_pool2d(x[0], 2)");
  cases.add("avg_pool2d.no_images", {{0, 2, 4, 6}}, [](X x) { return avg_pool2d(x[0], 2); }, "F.avg_pool2d(x[0], 2)");
  cases.add("avg_pool2d.special", {special({1, 2, 4, 4})}, [](X x) { return avg_pool2d(x[0], 2); },
            "F.avg_pool2d(x[0], 2)").differentiable(0);
  cases.add("avg_pool2d.large", {{4, 6, 28, 28}}, [](X x) { return avg_pool2d(x[0], 2); }).is_image();
  cases.add("avg_pool1d", {{2, 3, 7}}, [](X x) { return avg_pool1d(x[0], 3, 2, 1); }, "F.avg_pool1d(x[0], 3, 2, 1)");
  cases.add("avg_pool1d.options", {{3, 8}}, [](X x) { return avg_pool1d(x[0], 3, 2, 1, true, false); },
            "F.avg_pool1d(x[0], 3, 2, 1, ceil_mode=True, count_include_pad=False)");
}

static void add_adaptive_pool(CaseList& cases) {
  cases.add("adaptive_avg_pool2d", {{2, 3, 5, 7}}, [](X x) { return adaptive_avg_pool2d(x[0], 1); },
            "F.adaptive_avg_pool2d(x[0], 1)").is_image();
  cases.add("adaptive_avg_pool2d.uneven", {{2, 2, 5, 7}}, [](X x) { return adaptive_avg_pool2d(x[0], {3, 4}); },
            "F.adaptive_avg_pool2d(x[0], (3, 4))").is_image();
  cases.add("adaptive_avg_pool2d.keep", {{1, 2, 5, 4}}, [](X x) { return adaptive_avg_pool2d(x[0], {std::nullopt, 7}); },
            "F.adaptive_avg_pool2d(x[0], (None, 7))").is_image();
  cases.add("adaptive_avg_pool2d.unbatched", {{3, 5, 7}}, [](X x) { return adaptive_avg_pool2d(x[0], 2); },
            "F.adaptive_avg_pool2d(x[0], 2)");
  cases.add("adaptive_avg_pool2d.large", {{3, 40, 14, 14}}, [](X x) { return adaptive_avg_pool2d(x[0], 1); }).is_image();
  cases.add("adaptive_avg_pool1d", {{2, 3, 7}}, [](X x) { return adaptive_avg_pool1d(x[0], 3); },
            "F.adaptive_avg_pool1d(x[0], 3)");
  cases.add("adaptive_max_pool2d", {{2, 2, 4, 6}}, [](X x) { return adaptive_max_pool2d(x[0], {2, 3}); },
            "F.adaptive_max_pool2d(x[0], (2, 3))").is_image();
  cases.add("adaptive_max_pool2d.uneven", {{1, 2, 5, 7}}, [](X x) { return adaptive_max_pool2d(x[0], {3, 4}); },
            "F.adaptive_max_pool2d(x[0], (3, 4))").is_image();
  cases.add("adaptive_max_pool1d", {{2, 3, 7}}, [](X x) { return adaptive_max_pool1d(x[0], 3); },
            "F.adaptive_max_pool1d(x[0], 3)");
}

static void add_max_pool1d(CaseList& cases) {
  cases.add("max_pool1d", {{2, 3, 8}}, [](X x) { return max_pool1d(x[0], 2); }, "F.max_pool1d(x[0], 2)");
  cases.add("max_pool1d.options", {{2, 3, 9}}, [](X x) { return max_pool1d_with_indices(x[0], 3, 2, 1, 1, true); },
            "F.max_pool1d(x[0], 3, 2, 1, 1, ceil_mode=True, return_indices=True)");
  cases.add("max_pool1d.unbatched", {{3, 8}}, [](X x) { return max_pool1d(x[0], 3, 1, 0, 2); },
            "F.max_pool1d(x[0], 3, 1, 0, 2)");
}

void add_pool(CaseList& cases) {
  add_avg_pool(cases);
  add_adaptive_pool(cases);
  add_max_pool1d(cases);
}

}  // namespace gradus::op_cases
