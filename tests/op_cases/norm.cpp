// Normalisation.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

// Running statistics of `count` channels, from `first` to `first` + 2.
static Tensor numbers(const Tensor& like, double first, int64_t count) {
  return linspace(first, first + 2, count).to(like.device(), like.dtype());
}

// Running statistics that are not shared between cases. Their new values are the second and third result.
static TensorList trained_batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, double momentum) {
  const Tensor running_mean = mean.detach().clone(), running_var = var.detach().clone();
  const Tensor y = batch_norm(x, running_mean, running_var, {}, {}, true, momentum);
  return {y, running_mean, running_var};
}

static void add_batch_norm(CaseList& cases) {
  const auto train = [](X x) { return batch_norm(x[0], {}, {}, x[1], x[2], true); };
  const char* torch = "F.batch_norm(x[0], None, None, x[1], x[2], True)";
  cases.add("batch_norm", {{3, 2, 3, 4}, {2}, {2}}, train, torch).keeps_layout();
  cases.add("batch_norm.vectors", {{6, 4}, {4}, {4}}, train, torch).keeps_layout();
  cases.add("batch_norm.sequence", {{3, 2, 5}, {2}, {2}}, train, torch).keeps_layout();
  cases.add("batch_norm.volume", {{2, 2, 2, 3, 2}, {2}, {2}}, train, torch);
  cases.add("batch_norm.channels", {{2, 9, 3, 3}, {9}, {9}}, train, torch).keeps_layout();
  cases.add("batch_norm.plain", {{3, 2, 3, 4}}, [](X x) { return batch_norm(x[0], {}, {}, {}, {}, true, 0.1, 1e-3); },
            "F.batch_norm(x[0], None, None, training=True, eps=1e-3)");
  cases.add("batch_norm.bias_only", {{3, 2, 3, 4}, {2}}, [](X x) { return batch_norm(x[0], {}, {}, {}, x[1], true); },
            "F.batch_norm(x[0], None, None, torch.ones(2, dtype=x[0].dtype), x[1], True)");
  cases.add("batch_norm.eval", {{3, 2, 3, 4}, {2}, {2}},
            [](X x) { return batch_norm(x[0], numbers(x[0], -1, 2), numbers(x[0], 0.5, 2), x[1], x[2]); },
            "F.batch_norm(x[0], torch.linspace(-1, 1, 2, dtype=x[0].dtype), "
            "torch.linspace(0.5, 2.5, 2, dtype=x[0].dtype), x[1], x[2])").keeps_layout();
  cases.add("batch_norm.running", {{3, 2, 3, 4}, {2}, positive({2})},
            [](X x) { return trained_batch_norm(x[0], x[1], x[2], 0.3); },
            "(lambda m, v: (F.batch_norm(x[0], m, v, training=True, momentum=0.3), m, v))"
            "(x[1].detach().clone(), x[2].detach().clone())").gives_states();
  cases.add("batch_norm.no_images", {{0, 2, 3, 4}, {2}, {2}}, train, torch);
  cases.add("batch_norm.large", {{8, 20, 14, 14}, {20}, {20}}, train).keeps_layout();
  cases.add("batch_norm.few_channels", {{16, 3, 40, 40}, {3}, {3}}, train);
  cases.add("batch_norm.many_channels", {{2, 300, 2, 2}, {300}, {300}}, train);
}

static void add_batch_norm_relu(CaseList& cases) {
  const auto plain = [](X x) { return batch_norm_relu(x[0], {}, {}, x[1], x[2], true); };
  const char* torch = "F.relu(F.batch_norm(x[0], None, None, x[1], x[2], True))";
  cases.add("batch_norm_relu", {{3, 2, 3, 4}, {2}, {2}}, plain, torch).keeps_layout();
  cases.add("batch_norm_relu.vectors", {{6, 4}, {4}, {4}}, plain, torch).keeps_layout();
  cases.add("batch_norm_relu.no_images", {{0, 2, 3, 4}, {2}, {2}}, plain, torch);
  const auto sum = [](X x) { return batch_norm_relu(x[0], {}, {}, x[1], x[2], true, 0.1, 1e-5, x[3]); };
  const char* torch_sum = "F.relu(F.batch_norm(x[0], None, None, x[1], x[2], True) + x[3])";
  cases.add("batch_norm_relu.residual", {{3, 2, 3, 4}, {2}, {2}, {3, 2, 3, 4}}, sum, torch_sum).keeps_layout();
  cases.add("batch_norm_relu.channels", {{2, 10, 3, 2}, {10}, {10}, {2, 10, 3, 2}}, sum, torch_sum).keeps_layout();
  cases.add("batch_norm_relu.itself", {{3, 2, 2, 3}},
            [](X x) { return batch_norm_relu(x[0], {}, {}, {}, {}, true, 0.1, 1e-3, x[0]); },
            "F.relu(F.batch_norm(x[0], None, None, training=True, eps=1e-3) + x[0])");
  cases.add("batch_norm_relu.eval", {{3, 2, 3, 4}, {2}, {2}, {3, 2, 3, 4}},
            [](X x) {
              return batch_norm_relu(x[0], numbers(x[0], -1, 2), numbers(x[0], 0.5, 2), x[1], x[2], false, 0.1, 1e-5,
                                     x[3]);
            },
            "F.relu(F.batch_norm(x[0], torch.linspace(-1, 1, 2, dtype=x[0].dtype), "
            "torch.linspace(0.5, 2.5, 2, dtype=x[0].dtype), x[1], x[2]) + x[3])").keeps_layout();
  // With thousands of sums, some would be rounded to the other side of ReLU's kink. The residual is chosen so that it
  // determines the sign.
  cases.add("batch_norm_relu.large", {{8, 20, 14, 14}, {20}, {20}, {8, 20, 14, 14}}, [](X x) {
    return batch_norm_relu(x[0], {}, {}, x[1], x[2], true, 0.1, 1e-5, x[3] + 8 * sign(x[3]).detach());
  }).keeps_layout();
}

static void add_layer_norm(CaseList& cases) {
  cases.add("layer_norm", {{3, 5}, {5}, {5}}, [](X x) { return layer_norm(x[0], {5}, x[1], x[2]); },
            "F.layer_norm(x[0], (5,), x[1], x[2])").keeps_layout();
  cases.add("layer_norm.plain", {{2, 3, 4}}, [](X x) { return layer_norm(x[0], {4}, {}, {}, 1e-3); },
            "F.layer_norm(x[0], (4,), eps=1e-3)");
  cases.add("layer_norm.several", {{2, 3, 4}, {3, 4}, {3, 4}},
            [](X x) { return layer_norm(x[0], {3, 4}, x[1], x[2]); }, "F.layer_norm(x[0], (3, 4), x[1], x[2])");
  cases.add("layer_norm.bias_only", {{4, 5}, {5}}, [](X x) { return layer_norm(x[0], {5}, {}, x[1]); },
            "F.layer_norm(x[0], (5,), torch.ones(5, dtype=x[0].dtype), x[1])");
  cases.add("layer_norm.image", {{2, 3, 2, 4}, {3, 2, 4}, {3, 2, 4}},
            [](X x) { return layer_norm(x[0], {3, 2, 4}, x[1], x[2]); }, "F.layer_norm(x[0], (3, 2, 4), x[1], x[2])")
      .keeps_layout();
  cases.add("layer_norm.whole", {{6}, {6}, {6}}, [](X x) { return layer_norm(x[0], {6}, x[1], x[2]); },
            "F.layer_norm(x[0], (6,), x[1], x[2])");
  cases.add("layer_norm.empty", {{0, 5}, {5}, {5}}, [](X x) { return layer_norm(x[0], {5}, x[1], x[2]); },
            "F.layer_norm(x[0], (5,), x[1], x[2])");
  cases.add("layer_norm.large", {{150, 130}, {130}, {130}}, [](X x) { return layer_norm(x[0], {130}, x[1], x[2]); });
  cases.add("layer_norm.long", {{2, 40000}, {40000}, {40000}},
            [](X x) { return layer_norm(x[0], {40000}, x[1], x[2]); });
}

static void add_group_norm(CaseList& cases) {
  cases.add("group_norm", {{2, 4, 2, 3}, {4}, {4}}, [](X x) { return group_norm(x[0], 2, x[1], x[2]); },
            "F.group_norm(x[0], 2, x[1], x[2])").keeps_layout();
  cases.add("group_norm.one_group", {{3, 4, 3}, {4}, {4}}, [](X x) { return group_norm(x[0], 1, x[1], x[2]); },
            "F.group_norm(x[0], 1, x[1], x[2])");
  cases.add("group_norm.plain", {{3, 6}}, [](X x) { return group_norm(x[0], 3, {}, {}, 1e-3); },
            "F.group_norm(x[0], 3, eps=1e-3)");
  cases.add("group_norm.large", {{3, 32, 9, 9}, {32}, {32}}, [](X x) { return group_norm(x[0], 8, x[1], x[2]); })
      .keeps_layout();
  cases.add("group_norm.no_images", {{0, 4, 2, 3}, {4}, {4}}, [](X x) { return group_norm(x[0], 2, x[1], x[2]); });
  cases.add("instance_norm", {{2, 3, 3, 2}, {3}, {3}}, [](X x) { return instance_norm(x[0], {}, {}, x[1], x[2]); },
            "F.instance_norm(x[0], None, None, x[1], x[2])").keeps_layout();
  cases.add("instance_norm.plain", {{2, 3, 5}}, [](X x) { return instance_norm(x[0]); }, "F.instance_norm(x[0])");
  cases.add("instance_norm.running", {{2, 3, 5}, {3}, positive({3})}, [](X x) {
    const Tensor mean = x[1].detach().clone(), var = x[2].detach().clone();
    const Tensor y = instance_norm(x[0], mean, var, {}, {}, true, 0.3);
    return TensorList{y, mean, var};
  }, "(lambda m, v: (F.instance_norm(x[0], m, v, momentum=0.3), m, v))"
     "(x[1].detach().clone(), x[2].detach().clone())").gives_states();
  cases.add("instance_norm.eval", {{2, 3, 5}},
            [](X x) { return instance_norm(x[0], numbers(x[0], -1, 3), numbers(x[0], 0.5, 3), {}, {}, false); },
            "F.instance_norm(x[0], torch.linspace(-1, 1, 3, dtype=x[0].dtype), "
            "torch.linspace(0.5, 2.5, 3, dtype=x[0].dtype), use_input_stats=False)");
}

static void add_scaling(CaseList& cases) {
  cases.add("normalize", {{3, 4}}, [](X x) { return normalize(x[0]); }, "F.normalize(x[0])");
  cases.add("normalize.first", {{3, 4, 2}}, [](X x) { return normalize(x[0], 1, 0); }, "F.normalize(x[0], p=1, dim=0)");
  cases.add("normalize.zeros", {{2, 3}}, [](X x) { return normalize(x[0] * 0, 2, 1, 0.5); },
            "F.normalize(x[0] * 0, eps=0.5)")
      .differentiable(1);
  cases.add("local_response_norm", {{2, 5, 3}}, [](X x) { return local_response_norm(x[0], 3, 0.5); },
            "F.local_response_norm(x[0], 3, 0.5)");
  cases.add("local_response_norm.image", {{1, 4, 2, 3}},
            [](X x) { return local_response_norm(x[0], 2, 0.5, 0.6, 1.5); },
            "F.local_response_norm(x[0], 2, 0.5, 0.6, 1.5)");
}

void add_norm(CaseList& cases) {
  add_batch_norm(cases);
  add_batch_norm_relu(cases);
  add_layer_norm(cases);
  add_group_norm(cases);
  add_scaling(cases);
}

}  // namespace gradus::op_cases
