// Losses beyond cross-entropy (see loss.cpp).
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

// Weights 1, 1.5, … 3 for five columns.
static Tensor weights(const Tensor& x) { return linspace(1, 3, 5).to(x.device(), x.dtype()); }

static void add_regression(CaseList& cases) {
  cases.add("mse_loss", {{3, 5}, {3, 5}}, [](X x) { return mse_loss(x[0], x[1]); },
            "F.mse_loss(x[0], x[1])");
  cases.add("mse_loss.none", {{3, 5}, {3, 5}}, [](X x) { return mse_loss(x[0], x[1], Reduction::none); },
            "F.mse_loss(x[0], x[1], reduction='none')").keeps_layout();
  cases.add("mse_loss.sum", {{3, 5}, {3, 5}}, [](X x) { return mse_loss(x[0], x[1], Reduction::sum); },
            "F.mse_loss(x[0], x[1], reduction='sum')");
  cases.add("mse_loss.broadcast", {{3, 5}, {5}}, [](X x) { return mse_loss(x[0], x[1]); },
            "F.mse_loss(x[0], x[1].expand(3, 5))");
  cases.add("mse_loss.empty", {{0, 3}, {0, 3}}, [](X x) { return mse_loss(x[0], x[1], Reduction::sum); },
            "F.mse_loss(x[0], x[1], reduction='sum')");
  cases.add("l1_loss", {{3, 5}, {3, 5}}, [](X x) { return l1_loss(x[0], x[1]); },
            "F.l1_loss(x[0], x[1])");
  cases.add("l1_loss.none", {{3, 5}, {3, 5}}, [](X x) { return l1_loss(x[0], x[1], Reduction::none); },
            "F.l1_loss(x[0], x[1], reduction='none')");
  cases.add("smooth_l1_loss", {{3, 5}, {3, 5}}, [](X x) { return smooth_l1_loss(x[0], x[1]); },
            "F.smooth_l1_loss(x[0], x[1])");
  cases.add("smooth_l1_loss.beta", {{3, 5}, {3, 5}}, [](X x) { return smooth_l1_loss(x[0], x[1], Reduction::sum, 0.7); },
            "F.smooth_l1_loss(x[0], x[1], reduction='sum', beta=0.7)");
  cases.add("smooth_l1_loss.beta0", {{3, 5}, {3, 5}}, [](X x) { return smooth_l1_loss(x[0], x[1], Reduction::sum, 0); },
            "F.smooth_l1_loss(x[0], x[1], reduction='sum', beta=0)");
  cases.add("huber_loss", {{3, 5}, {3, 5}}, [](X x) { return huber_loss(x[0], x[1]); },
            "F.huber_loss(x[0], x[1])");
  cases.add("huber_loss.delta", {{3, 5}, {3, 5}}, [](X x) { return huber_loss(x[0], x[1], Reduction::none, 0.6); },
            "F.huber_loss(x[0], x[1], reduction='none', delta=0.6)");
  cases.add("poisson_nll_loss", {{3, 5}, positive({3, 5})}, [](X x) { return poisson_nll_loss(x[0], x[1]); },
            "F.poisson_nll_loss(x[0], x[1])");
  cases.add("poisson_nll_loss.full", {positive({3, 5}), positive({3, 5})}, [](X x) { return poisson_nll_loss(x[0], x[1], false, true, 1e-4, Reduction::none); },
            "F.poisson_nll_loss(x[0], x[1], log_input=False, full=True, eps=1e-4, reduction='none')");
  cases.add("gaussian_nll_loss", {{3, 5}, {3, 5}, positive({3, 5})}, [](X x) { return gaussian_nll_loss(x[0], x[1], x[2]); },
            "F.gaussian_nll_loss(x[0], x[1], x[2])");
  cases.add("gaussian_nll_loss.full", {{3, 5}, {3, 5}, positive({3})}, [](X x) { return gaussian_nll_loss(x[0], x[1], x[2], true, 1e-6, Reduction::none); },
            "F.gaussian_nll_loss(x[0], x[1], x[2], full=True, reduction='none')");
}

static void add_probabilities(CaseList& cases) {
  const test::Tolerance near_poles{.f64 = 1e-10};  // PyTorch's gradients have 1e-12 in their denominators
  cases.add("binary_cross_entropy", {unit({3, 5}), unit({3, 5})}, [](X x) { return binary_cross_entropy(x[0], x[1]); },
            "F.binary_cross_entropy(x[0], x[1])").tolerance(near_poles);
  cases.add("binary_cross_entropy.weight", {unit({3, 5}), unit({3, 5})},
            [](X x) { return binary_cross_entropy(x[0], x[1], weights(x[0]), Reduction::none); },
            "F.binary_cross_entropy(x[0], x[1], torch.linspace(1, 3, 5, dtype=x[0].dtype), reduction='none')")
      .tolerance(near_poles);
  cases.add("binary_cross_entropy.edges", {ties({3, 5}), unit({3, 5})},
            [](X x) { return binary_cross_entropy(relu(x[0]), x[1], {}, Reduction::sum); },
            "F.binary_cross_entropy(x[0].relu(), x[1], reduction='sum')").differentiable(0);
  cases.add("binary_cross_entropy.sure", {ties({3, 5})},
            [](X x) { return binary_cross_entropy(relu(x[0]), relu(x[0]).detach(), {}, Reduction::sum); },
            "F.binary_cross_entropy(x[0].relu(), x[0].relu().detach(), reduction='sum')").differentiable(1);
  cases.add("binary_cross_entropy_with_logits", {{3, 5}, unit({3, 5})}, [](X x) { return binary_cross_entropy_with_logits(x[0], x[1]); },
            "F.binary_cross_entropy_with_logits(x[0], x[1])");
  cases.add("binary_cross_entropy_with_logits.weights", {{3, 5}, unit({3, 5})}, [](X x) {
    return binary_cross_entropy_with_logits(x[0], x[1], weights(x[0]), weights(x[0]) * 0.5, Reduction::none);
  }, "F.binary_cross_entropy_with_logits(x[0], x[1], torch.linspace(1, 3, 5, dtype=x[0].dtype), "
     "pos_weight=torch.linspace(0.5, 1.5, 5, dtype=x[0].dtype), reduction='none')").differentiable(1);
  cases.add("binary_cross_entropy_with_logits.large", {{3, 5}, unit({3, 5})}, [](X x) { return binary_cross_entropy_with_logits(x[0] * 500, x[1], {}, {}, Reduction::none); },
            "F.binary_cross_entropy_with_logits(x[0] * 500, x[1], reduction='none')").differentiable(1);
  cases.add("kl_div", {{3, 5}, positive({3, 5})}, [](X x) { return kl_div(x[0], x[1], kBatchMean); },
            "F.kl_div(x[0], x[1], reduction='batchmean')");
  cases.add("kl_div.none", {{3, 5}, positive({3, 5})}, [](X x) { return kl_div(x[0], x[1], Reduction::none); },
            "F.kl_div(x[0], x[1], reduction='none')");
  cases.add("kl_div.log_target", {{3, 5}, {3, 5}}, [](X x) { return kl_div(x[0], x[1], Reduction::mean, true); },
            "F.kl_div(x[0], x[1], log_target=True)");
  cases.add("kl_div.zeros", {{3, 5}, ties({3, 5})}, [](X x) { return kl_div(x[0], relu(x[1]).detach(), Reduction::sum); },
            "F.kl_div(x[0], x[1].relu().detach(), reduction='sum')");
  cases.add("soft_margin_loss", {{3, 5}, {3, 5}}, [](X x) { return soft_margin_loss(x[0], sign(x[1]).detach()); },
            "F.soft_margin_loss(x[0], x[1].sign().detach())");
  cases.add("multilabel_soft_margin_loss", {{3, 5}, unit({3, 5}), positive({5})}, [](X x) { return multilabel_soft_margin_loss(x[0], x[1], x[2]); },
            "F.multilabel_soft_margin_loss(x[0], x[1], x[2])");
  cases.add("multilabel_soft_margin_loss.none", {{3, 5}, unit({3, 5})}, [](X x) { return multilabel_soft_margin_loss(x[0], x[1], {}, Reduction::none); },
            "F.multilabel_soft_margin_loss(x[0], x[1], reduction='none')");
}

static void add_margins(CaseList& cases) {
  cases.add("hinge_embedding_loss", {{3, 5}, {3, 5}}, [](X x) { return hinge_embedding_loss(x[0], sign(x[1]).detach()); },
            "F.hinge_embedding_loss(x[0], x[1].sign().detach())");
  cases.add("hinge_embedding_loss.none", {{3, 5}, {3, 5}}, [](X x) { return hinge_embedding_loss(x[0], sign(x[1]).detach(), 0.3, Reduction::none); },
            "F.hinge_embedding_loss(x[0], x[1].sign().detach(), margin=0.3, reduction='none')");
  cases.add("margin_ranking_loss", {{7}, {7}, {7}}, [](X x) { return margin_ranking_loss(x[0], x[1], sign(x[2]).detach(), 0.3); },
            "F.margin_ranking_loss(x[0], x[1], x[2].sign().detach(), margin=0.3)");
  cases.add("triplet_margin_loss", {{3, 5}, {3, 5}, {3, 5}}, [](X x) { return triplet_margin_loss(x[0], x[1], x[2]); },
            "F.triplet_margin_loss(x[0], x[1], x[2])");
  cases.add("triplet_margin_loss.swap", {{4, 5}, {4, 5}, {4, 5}}, [](X x) { return triplet_margin_loss(x[0], x[1], x[2], 2, 3, 1e-6, true, Reduction::none); },
            "F.triplet_margin_loss(x[0], x[1], x[2], margin=2, p=3, swap=True, reduction='none')");
  cases.add("cosine_embedding_loss", {{4, 5}, {4, 5}, {4}}, [](X x) { return cosine_embedding_loss(x[0], x[1], sign(x[2]).detach()); },
            "F.cosine_embedding_loss(x[0], x[1], x[2].sign().detach())");
  cases.add("cosine_embedding_loss.one", {{5}, {5}}, [](X x) { return cosine_embedding_loss(x[0], x[1], ones({}, x[0].options()), 0.2); },
            "F.cosine_embedding_loss(x[0], x[1], torch.ones((), dtype=x[0].dtype), 0.2)");
  cases.add("multi_margin_loss", {{4, 5}, index({4}, 5)}, [](X x) { return multi_margin_loss(x[0], x[1]); },
            "F.multi_margin_loss(x[0], x[1])").differentiable(1);
  cases.add("multi_margin_loss.options", {{4, 3}, index({4}, 3)}, [](X x) { return multi_margin_loss(x[0], x[1], 2, 0.7, linspace(1, 3, 3).to(x[0].device(), x[0].dtype()), Reduction::none); },
            "F.multi_margin_loss(x[0], x[1], 2, 0.7, torch.linspace(1, 3, 3, dtype=x[0].dtype), reduction='none')").differentiable(1);
  cases.add("multi_margin_loss.one", {{5}, index({}, 5)}, [](X x) { return multi_margin_loss(x[0], x[1]); },
            "F.multi_margin_loss(x[0], x[1])").differentiable(1);
}

void add_losses(CaseList& cases) {
  add_regression(cases);
  add_probabilities(cases);
  add_margins(cases);
}

}  // namespace gradus::op_cases
