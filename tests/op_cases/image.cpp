// Pooling, dropout and operators on images.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_max_pool(CaseList& cases) {
  cases.add("max_pool2d", {{2, 2, 4, 6}}, [](X x) { return max_pool2d(x[0], 2); }, "F.max_pool2d(x[0], 2)").is_image();
  cases.add("max_pool2d.overlap", {{1, 2, 7, 7}}, [](X x) { return max_pool2d(x[0], 3, 2, 1); },
            "F.max_pool2d(x[0], 3, 2, 1)").is_image();
  cases.add("max_pool2d.uneven", {{1, 2, 7, 8}},
            [](X x) { return max_pool2d(x[0], {3, 2}, Pair(1, 2), {1, 0}, {1, 2}); },
            "F.max_pool2d(x[0], (3, 2), (1, 2), (1, 0), (1, 2))").is_image();
  cases.add("max_pool2d.ceil_mode", {{1, 2, 6, 7}}, [](X x) { return max_pool2d(x[0], 3, 2, 0, 1, true); },
            "F.max_pool2d(x[0], 3, 2, 0, 1, ceil_mode=True)").is_image();
  cases.add("max_pool2d.unbatched", {{2, 4, 6}}, [](X x) { return max_pool2d(x[0], 2); }, "F.max_pool2d(x[0], 2)");
  cases.add("max_pool2d.ties", {ties({1, 2, 6, 6})}, [](X x) { return max_pool2d_with_indices(x[0], 3, 1); },
            "F.max_pool2d(x[0], 3, 1, return_indices=True)");
  cases.add("max_pool2d.no_images", {{0, 2, 4, 6}}, [](X x) { return max_pool2d(x[0], 2); }, "F.max_pool2d(x[0], 2)");
  cases.add("max_pool2d.large", {{4, 6, 28, 28}}, [](X x) { return max_pool2d(x[0], 2); }).is_image();
  cases.add("max_pool2d.special", {special({1, 1, 4, 4})}, [](X x) { return max_pool2d(x[0], 2); },
            "F.max_pool2d(x[0], 2)").differentiable(0);
  cases.add("max_pool2d_with_indices", {{2, 2, 5, 6}}, [](X x) { return max_pool2d_with_indices(x[0], 3, 2, 1); },
            "F.max_pool2d(x[0], 3, 2, 1, return_indices=True)").is_image();
}

static void add_dropout(CaseList& cases) {
  cases.add("dropout.p0", {{3, 5}}, [](X x) { return dropout(x[0], 0); }, "F.dropout(x[0], 0)");
  cases.add("dropout.p1", {{3, 5}}, [](X x) { return dropout(x[0], 1); }, "F.dropout(x[0], 1)");
  cases.add("dropout.eval", {{3, 5}}, [](X x) { return dropout(x[0], 0.5, false); },
            "F.dropout(x[0], 0.5, training=False)");
  cases.add("dropout.empty", {{0, 3}}, [](X x) { return dropout(x[0], 0.5); }, "F.dropout(x[0], 0.5)");
  // No golden values: every backend must draw the same mask as naive.
  cases.add("dropout.train", {{8, 33}}, [](X x) { return dropout(x[0], 0.25); });
  cases.add("dropout.image", {{2, 3, 4, 5}}, [](X x) { return dropout(x[0], 0.5); }).keeps_layout();
}

static void add_dropout_variants(CaseList& cases) {
  cases.add("feature_dropout.eval", {{2, 3, 4, 5}}, [](X x) { return feature_dropout(x[0], 0.5, false); },
            "torch.feature_dropout(x[0], 0.5, train=False)");
  cases.add("feature_dropout.p1", {{2, 3, 4}}, [](X x) { return feature_dropout(x[0], 1, true); },
            "torch.feature_dropout(x[0], 1.0, train=True)");
  cases.add("feature_dropout.train", {{4, 5, 2, 3}}, [](X x) { return feature_dropout(x[0], 0.25, true); }).keeps_layout();
  cases.add("dropout2d.eval", {{2, 3, 4, 5}}, [](X x) { return dropout2d(x[0], 0.5, false); },
            "F.dropout2d(x[0], 0.5, training=False)");
  cases.add("dropout2d.p1", {{2, 3, 4}}, [](X x) { return dropout2d(x[0], 1, true); },
            "F.dropout2d(x[0], 1.0, training=True)");
  cases.add("dropout2d.train", {{4, 5, 2, 3}}, [](X x) { return dropout2d(x[0], 0.25, true); }).keeps_layout();
  cases.add("alpha_dropout.eval", {{2, 3, 4, 5}}, [](X x) { return alpha_dropout(x[0], 0.5, false); },
            "torch.alpha_dropout(x[0], 0.5, train=False)");
  cases.add("alpha_dropout.p1", {{2, 3, 4}}, [](X x) { return alpha_dropout(x[0], 1, true); },
            "torch.alpha_dropout(x[0], 1.0, train=True)");
  cases.add("alpha_dropout.train", {{4, 5, 2, 3}}, [](X x) { return alpha_dropout(x[0], 0.25, true); }).keeps_layout();
  cases.add("feature_alpha_dropout.eval", {{2, 3, 4, 5}}, [](X x) { return feature_alpha_dropout(x[0], 0.5, false); },
            "torch.feature_alpha_dropout(x[0], 0.5, train=False)");
  cases.add("feature_alpha_dropout.p1", {{2, 3, 4}}, [](X x) { return feature_alpha_dropout(x[0], 1, true); },
            "torch.feature_alpha_dropout(x[0], 1.0, train=True)");
  cases.add("feature_alpha_dropout.train", {{4, 5, 2, 3}}, [](X x) { return feature_alpha_dropout(x[0], 0.25, true); }).keeps_layout();
  cases.add("dropout_", {{4, 5, 3}}, [](X x) { return dropout_(x[0].clone(), 0.25, true); });
  cases.add("dropout_.p1", {{4, 5, 3}}, [](X x) { return dropout_(x[0].clone(), 1, true); },
            "torch.dropout_(x[0].clone(), 1.0, True)");
  cases.add("feature_dropout_", {{4, 5, 3}}, [](X x) { return feature_dropout_(x[0].clone(), 0.25, true); });
  cases.add("feature_dropout_.p1", {{4, 5, 3}}, [](X x) { return feature_dropout_(x[0].clone(), 1, true); },
            "torch.feature_dropout_(x[0].clone(), 1.0, True)");
  cases.add("alpha_dropout_", {{4, 5, 3}}, [](X x) { return alpha_dropout_(x[0].clone(), 0.25, true); });
  cases.add("alpha_dropout_.p1", {{4, 5, 3}}, [](X x) { return alpha_dropout_(x[0].clone(), 1, true); },
            "torch.alpha_dropout_(x[0].clone(), 1.0, True)");
  cases.add("feature_alpha_dropout_", {{4, 5, 3}}, [](X x) { return feature_alpha_dropout_(x[0].clone(), 0.25, true); });
  cases.add("feature_alpha_dropout_.p1", {{4, 5, 3}}, [](X x) { return feature_alpha_dropout_(x[0].clone(), 1, true); },
            "torch.feature_alpha_dropout_(x[0].clone(), 1.0, True)");
}

void add_image(CaseList& cases) {
  add_max_pool(cases);
  add_dropout(cases);
  add_dropout_variants(cases);
  const char* torch =
      "(0.2989 * x[0].select(-3, 0) + 0.587 * x[0].select(-3, 1) + 0.114 * x[0].select(-3, 2)).unsqueeze(-3)";
  const auto gray = [](X x) { return rgb_to_grayscale(x[0]); };
  cases.add("rgb_to_grayscale", {{2, 3, 4, 5}}, gray, torch);
  cases.add("rgb_to_grayscale.one", {{3, 4, 5}}, gray, torch);
  cases.add("rgb_to_grayscale.clip", {{2, 2, 3, 2, 3}}, gray, torch);
  cases.add("rgb_to_grayscale.empty", {{0, 3, 4, 5}}, gray, torch);
  cases.add("rgb_to_grayscale.large", {{3, 3, 31, 33}}, gray);
}

}  // namespace gradus::op_cases
