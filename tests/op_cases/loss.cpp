// Softmax and the losses of classification.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

static void add_softmax(CaseList& cases) {
  cases.add("softmax", {{3, 5}}, [](X x) { return softmax(x[0], 1); }, "x[0].softmax(1)");
  cases.add("softmax.first", {{3, 2, 4}}, [](X x) { return softmax(x[0], 0); }, "x[0].softmax(0)");
  cases.add("softmax.scalar", {{}}, [](X x) { return softmax(x[0], 0); }, "x[0].softmax(0)");
  cases.add("softmax.empty", {{0, 5}}, [](X x) { return softmax(x[0], 1); }, "x[0].softmax(1)");
  cases.add("softmax.extreme", {{3, 5}}, [](X x) { return softmax(500 * x[0], 1); }, "(500 * x[0]).softmax(1)")
      .loose(300).differentiable(1);
  cases.add("log_softmax", {{3, 5}}, [](X x) { return log_softmax(x[0], -1); }, "x[0].log_softmax(-1)");
  cases.add("log_softmax.middle", {{3, 4, 2}}, [](X x) { return log_softmax(x[0], 1); }, "x[0].log_softmax(1)");
  cases.add("log_softmax.extreme", {{3, 5}}, [](X x) { return log_softmax(500 * x[0], 1); },
            "(500 * x[0]).log_softmax(1)").loose(300).differentiable(1);
  cases.add("log_softmax.large", {{64, 1000}}, [](X x) { return log_softmax(x[0], 1); });
}

// 1, 2, 3, for three classes.
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
            "F.cross_entropy(500 * x[0], x[1])").loose(300).differentiable(1);
  cases.add("cross_entropy.large", {{128, 1000}, index({128}, 1000)}, [](X x) { return cross_entropy(x[0], x[1]); });
}

void add_loss(CaseList& cases) {
  add_softmax(cases);
  add_likelihoods(cases);
}

}  // namespace gradus::op_cases
