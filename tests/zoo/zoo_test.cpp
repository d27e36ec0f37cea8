// Each net of benchmarks/zoo trains: one step with a tiny batch. zoo.py compares the nets with PyTorch's.
#include <cmath>
#include <set>

#include <gradus/benchmarks/zoo/zoo.h>
#include <gradus/tests/catch.h>

using namespace gradus;

TEST_CASE("each net of the zoo has a finite loss, and gradients of all parameters that a phase trains") {
  for (const zoo::Entry& entry : zoo::entries()) {
    DYNAMIC_SECTION(entry.name) {
      manual_seed(0);
      const zoo::Net net = entry.make();
      TensorList batch;
      for (const zoo::Input& input : entry.inputs(2)) batch.push_back(input.draw());
      for (const zoo::Phase& phase : net.phases) {
        optim::SGD optimizer(phase.trained->parameters(), optim::SGDOptions(1e-3));
        net.module->zero_grad();
        const Tensor loss = phase.loss(batch);
        REQUIRE(std::isfinite(loss.item<float>()));
        loss.backward();
        for (const auto& item : phase.trained->named_parameters()) {
          INFO(item.key());
          REQUIRE(item.value().grad().defined());
          CHECK(item.value().grad().isfinite().all().item<bool>());
        }
        optimizer.step();
      }
    }
  }
}

TEST_CASE("names of the zoo are unique, and about half of the nets are frozen") {
  std::set<std::string> names;
  int frozen = 0;
  for (const zoo::Entry& entry : zoo::entries()) {
    CHECK(names.insert(entry.name).second);
    frozen += zoo::is_frozen(entry.name);
  }
  CHECK(std::abs(2 * frozen - static_cast<int>(names.size())) <= 2);
}
