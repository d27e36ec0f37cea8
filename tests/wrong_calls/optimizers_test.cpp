// Wrong calls: Optimizers and schedules.
#include <gradus/tests/wrong_calls/wrong_calls.h>

using namespace gradus;
using namespace gradus::test;

namespace {

std::vector<Tensor> weights() { return {ones({2, 3}, requires_grad())}; }

// clang-format off
const WrongCalls optimizers("optimizers", {
    wrong<ValueError>("SGDOptions", {"lr", "-0.1"}, [] { optim::SGD(weights(), -0.1); }).found_outside_of_operators(),
    wrong<ValueError>("SGDOptions", {"momentum", "-1"}, [] { optim::SGD(weights(), optim::SGDOptions(0.1).momentum(-1)); }).found_outside_of_operators(),
    wrong<ValueError>("SGDOptions", {"weight_decay", "-0.5"}, [] { optim::SGD(weights(), optim::SGDOptions(0.1).weight_decay(-0.5)); }).found_outside_of_operators(),
    wrong<ValueError>("SGDOptions", {"nesterov", "momentum 0"}, [] { optim::SGD(weights(), optim::SGDOptions(0.1).nesterov(true)); }).found_outside_of_operators(),
    wrong<ValueError>("AdamOptions", {"lr", "-1"}, [] { optim::Adam(weights(), -1); }).found_outside_of_operators(),
    wrong<ValueError>("AdamOptions", {"betas[0]", "1.5"}, [] { optim::Adam(weights(), optim::AdamOptions().betas({1.5, 0.9})); }).found_outside_of_operators(),
    wrong<ValueError>("AdamOptions", {"eps", "-1"}, [] { optim::Adam(weights(), optim::AdamOptions().eps(-1)); }).found_outside_of_operators(),
    wrong<ValueError>("", {"no parameters"}, [] { optim::Adam(std::vector<Tensor>{}); }),
    wrong<ValueError>("", {"parameter 0", "undefined"}, [] { optim::SGD({Tensor()}, 0.1); }),
    wrong<ValueError>("", {"parameter 0", "(2, 3)", "leaves"}, [] { optim::SGD({weights()[0] * 2}, 0.1); }),
    wrong<ValueError>("", {"parameter 1", "(2, 3)", "already"}, [] { const Tensor w = weights()[0]; optim::SGD({w, w}, 0.1); }),
    wrong<IndexError>("", {"group 3", "1"}, [] { optim::SGD sgd(weights(), 0.1); sgd.set_lr(3, 0.1); }),
    wrong<ValueError>("", {"learning rate", "-2"}, [] { optim::SGD sgd(weights(), 0.1); sgd.set_lr(0, -2); }),
    wrong<ValueError>("", {"SGD", "SGDOptions"}, [] { optim::SGD sgd(weights(), 0.1); sgd.add_param_group({weights(), std::make_unique<optim::AdamOptions>()}); }),
    wrong<Error>("", {"param_groups.0.lr"}, [] { optim::SGD sgd(weights(), 0.1); sgd.load_state_dict(optim::Optimizer::StateDict()); }),
    wrong<ShapeError>("", {"(2, 3)", "(4,)"}, [] { optim::Adam adam({ones({4}, requires_grad())}), other(weights()); for (auto* a : {&adam, &other}) { a->parameters()[0].sum().backward(); a->step(); } other.load_state_dict(adam.state_dict()); }),
    wrong<ValueError>("", {"StepLR", "step_size", "0"}, [] { optim::SGD sgd(weights(), 0.1); optim::StepLR(sgd, 0); }),
    wrong<ValueError>("", {"CosineAnnealingLR", "T_max", "-3"}, [] { optim::SGD sgd(weights(), 0.1); optim::CosineAnnealingLR(sgd, -3); }),
});
// clang-format on

}  // namespace
