inline void compare_bytes(const char* what, int64_t n, int64_t got, int64_t right) {
  require(std::abs(got - right) <= 64, what, " with ", n, " images: got ", got, " bytes, the planner says ", right);
}

inline void check() {
  const gradus::BackendGuard naive("naive");
  gradus::nn::Sequential net(gradus::nn::Linear(784, 100), gradus::nn::ReLU(), gradus::nn::Linear(100, 10));
  gradus::optim::Adam optimizer(net->parameters(), 1e-3);
  for (const int64_t n : {1, 32, 128}) {
    const gradus::MemoryReport report = gradus::plan(net, {n, 784}, optimizer);
    compare_bytes("parameters", n, parameter_bytes(), report.parameters);
    compare_bytes("gradients", n, gradient_bytes(), report.gradients);
    compare_bytes("the optimizer's state", n, optimizer_bytes(), report.optimizer_state);
    compare_bytes("inputs", n, input_bytes(n), report.inputs);
    compare_bytes("activations", n, activation_bytes(n), report.activations);
  }
}
