// Softmax and classification losses.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_softmax(CaseList& cases) {
  cases.add("softmax", {{3, 5}}, [](X x) { return softmax(x[0], 1); }, "x[0].softmax(1)");
  cases.add("softmax.first", {{3, 2, 4}}, [](X x) { return softmax(x[0], 0); }, "x[0].softmax(0)");
  cases.add("softmax.scalar", {{}}, [](X x) { return softmax(x[0], 0); }, "x[0].softmax(0)");
  cases.add("softmax.empty", {{0, 5}}, [](X x) { return softmax(x[0], 1); }, "x[0].softmax(1)");
  cases.add("softmax.extreme", {ties({3, 5})}, [](X x) { return softmax(500 * x[0], 1); }, "(500 * x[0]).softmax(1)")
      .differentiable(1);
  cases.add("log_softmax", {{3, 5}}, [](X x) { return log_softmax(x[0], -1); }, "x[0].log_softmax(-1)");
  cases.add("softmax.to_double", {{3, 5}}, [](X x) { return softmax(x[0], 1, kDouble); },
            "x[0].softmax(1, dtype=torch.float64)").on(floats | integers).gives(kDouble);
  cases.add("log_softmax.to_double", {{3, 5}}, [](X x) { return x[0].log_softmax(0, kDouble); },
            "x[0].log_softmax(0, dtype=torch.float64)").on(floats | integers).gives(kDouble);
  cases.add("log_softmax.middle", {{3, 4, 2}}, [](X x) { return log_softmax(x[0], 1); }, "x[0].log_softmax(1)");
  cases.add("log_softmax.extreme", {{3, 5}}, [](X x) { return log_softmax(500 * x[0], 1); },
            "(500 * x[0]).log_softmax(1)").differentiable(1);
  cases.add("log_softmax.large", {{64, 1000}}, [](X x) { return log_softmax(x[0], 1); });
}

// Weights 1, 2, 3 for three classes.
static Tensor class_weights(const Tensor& x) { return linspace(1, 3, 3).to(x.device(), x.dtype()); }

static void add_likelihoods(CaseList& cases) {
  cases.add("nll_loss", {{4, 5}, index({4}, 5)}, [](X x) { return nll_loss(x[0], x[1]); }, "F.nll_loss(x[0], x[1])");
  cases.add("nll_loss.sum", {{4, 5}, index({4}, 5)}, [](X x) { return nll_loss(x[0], x[1], {}, Reduction::sum); },
            "F.nll_loss(x[0], x[1], reduction='sum')");
  cases.add("nll_loss.none", {{4, 5}, index({4}, 5)}, [](X x) { return nll_loss(x[0], x[1], {}, Reduction::none); },
            "F.nll_loss(x[0], x[1], reduction='none')");
  cases.add("nll_loss.ignore", {{6, 3}, index({6}, 3)}, [](X x) { return nll_loss(x[0], x[1], {}, Reduction::mean, 1); },
            "F.nll_loss(x[0], x[1], ignore_index=1)");
  cases.add("nll_loss.weight", {{6, 3}, index({6}, 3)},
            [](X x) { return nll_loss(x[0], x[1], class_weights(x[0])); },
            "F.nll_loss(x[0], x[1], torch.linspace(1, 3, 3, dtype=x[0].dtype))");
  cases.add("nll_loss.one", {{5}, index({}, 5)}, [](X x) { return nll_loss(x[0], x[1]); }, "F.nll_loss(x[0], x[1])");
  cases.add("cross_entropy", {{4, 5}, index({4}, 5)}, [](X x) { return cross_entropy(x[0], x[1]); },
            "F.cross_entropy(x[0], x[1])");
  cases.add("cross_entropy.sum", {{4, 5}, index({4}, 5)}, [](X x) { return cross_entropy(x[0], x[1], {}, Reduction::sum); },
            "F.cross_entropy(x[0], x[1], reduction='sum')");
  cases.add("cross_entropy.none", {{4, 5}, index({4}, 5)},
            [](X x) { return cross_entropy(x[0], x[1], {}, Reduction::none); },
            "F.cross_entropy(x[0], x[1], reduction='none')");
  cases.add("cross_entropy.ignore", {{6, 3}, index({6}, 3)},
            [](X x) { return cross_entropy(x[0], x[1], {}, Reduction::mean, 1); },
            "F.cross_entropy(x[0], x[1], ignore_index=1)");
  cases.add("cross_entropy.weight", {{6, 3}, index({6}, 3)},
            [](X x) { return cross_entropy(x[0], x[1], class_weights(x[0]), Reduction::mean, 1); },
            "F.cross_entropy(x[0], x[1], torch.linspace(1, 3, 3, dtype=x[0].dtype), ignore_index=1)");
  cases.add("cross_entropy.one", {{5}, index({}, 5)}, [](X x) { return cross_entropy(x[0], x[1]); },
            "F.cross_entropy(x[0], x[1])");
  cases.add("cross_entropy.all_ignored", {{3, 4}, index({3}, 1)},
            [](X x) { return cross_entropy(x[0], x[1], {}, Reduction::sum, 0); },
            "F.cross_entropy(x[0], x[1], reduction='sum', ignore_index=0)");
  cases.add("cross_entropy.extreme", {{4, 5}, index({4}, 5)}, [](X x) { return cross_entropy(500 * x[0], x[1]); },
            "F.cross_entropy(500 * x[0], x[1])").differentiable(1);
  cases.add("cross_entropy.large", {{128, 1000}, index({128}, 1000)}, [](X x) { return cross_entropy(x[0], x[1]); });
}

static void add_smoothed(CaseList& cases) {
  cases.add("cross_entropy.smoothing", {{4, 5}, index({4}, 5)}, [](X x) { return cross_entropy(x[0], x[1], {}, Reduction::mean, -100, 0.2); },
            "F.cross_entropy(x[0], x[1], label_smoothing=0.2)");
  cases.add("cross_entropy.smoothing_ignore", {{6, 3}, index({6}, 3)}, [](X x) { return cross_entropy(x[0], x[1], {}, Reduction::mean, 1, 0.2); },
            "F.cross_entropy(x[0], x[1], ignore_index=1, label_smoothing=0.2)");
  cases.add("cross_entropy.smoothing_weight", {{5, 3}, index({5}, 3)}, [](X x) { return cross_entropy(x[0], x[1], class_weights(x[0]), Reduction::mean, -100, 0.2); },
            "F.cross_entropy(x[0], x[1], torch.linspace(1, 3, 3, dtype=x[0].dtype), label_smoothing=0.2)");
  cases.add("cross_entropy.smoothing_none", {{6, 3}, index({6}, 3)}, [](X x) { return cross_entropy(x[0], x[1], class_weights(x[0]), Reduction::none, 2, 0.2); },
            "F.cross_entropy(x[0], x[1], torch.linspace(1, 3, 3, dtype=x[0].dtype), reduction='none', ignore_index=2, label_smoothing=0.2)");
  cases.add("cross_entropy.probabilities", {{4, 3}, unit({4, 3})}, [](X x) { return cross_entropy(x[0], x[1]); },
            "F.cross_entropy(x[0], x[1])");
  cases.add("cross_entropy.probabilities_weight", {{4, 3}, unit({4, 3})}, [](X x) { return cross_entropy(x[0], x[1], class_weights(x[0]), Reduction::none, -100, 0.1); },
            "F.cross_entropy(x[0], x[1], torch.linspace(1, 3, 3, dtype=x[0].dtype), reduction='none', label_smoothing=0.1)");
  cases.add("cross_entropy.probabilities_image", {{2, 3, 2, 2}, unit({2, 3, 2, 2})}, [](X x) { return cross_entropy(x[0], x[1]); },
            "F.cross_entropy(x[0], x[1])");
  cases.add("cross_entropy.probabilities_one", {{5}, unit({5})}, [](X x) { return cross_entropy(x[0], x[1]); },
            "F.cross_entropy(x[0], x[1])");
  cases.add("cross_entropy.image", {{2, 3, 2, 4}, index({2, 2, 4}, 3)}, [](X x) { return cross_entropy(x[0], x[1]); },
            "F.cross_entropy(x[0], x[1])");
  cases.add("cross_entropy.sequence", {{2, 3, 4}, index({2, 4}, 3)}, [](X x) { return cross_entropy(x[0], x[1], class_weights(x[0]), Reduction::none, 0); },
            "F.cross_entropy(x[0], x[1], torch.linspace(1, 3, 3, dtype=x[0].dtype), reduction='none', ignore_index=0)");
  cases.add("nll_loss.image", {{2, 3, 2, 4}, index({2, 2, 4}, 3)}, [](X x) { return nll_loss(x[0], x[1], class_weights(x[0])); },
            "F.nll_loss(x[0], x[1], torch.linspace(1, 3, 3, dtype=x[0].dtype))");
  cases.add("nll_loss.image_none", {{2, 3, 2, 4}, index({2, 2, 4}, 3)}, [](X x) { return nll_loss(x[0], x[1], {}, Reduction::none, 2); },
            "F.nll_loss(x[0], x[1], reduction='none', ignore_index=2)");
}

void add_loss(CaseList& cases) {
  add_softmax(cases);
  add_likelihoods(cases);
  add_smoothed(cases);
}

}  // namespace gradus::op_cases
