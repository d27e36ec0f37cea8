// Matrix products.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_matmul(CaseList& cases) {
  const auto add = [&](const char* name, std::vector<Input> inputs, const char* torch = "torch.matmul(x[0], x[1])") {
    cases.add(name, std::move(inputs), [](X x) { return matmul(x[0], x[1]); }, torch);
  };
  add("matmul", {{3, 4}, {4, 5}});
  add("matmul.vectors", {{7}, {7}});
  add("matmul.matrix_vector", {{3, 4}, {4}});
  add("matmul.vector_matrix", {{3}, {3, 4}});
  add("matmul.batch", {{2, 3, 4}, {2, 4, 3}});
  add("matmul.batch_of_one", {{1, 3, 4}, {5, 4, 2}});
  add("matmul.broadcast_batch", {{2, 1, 3, 4}, {3, 4, 2}});
  add("matmul.batch_matrix", {{2, 3, 4}, {4, 5}});
  add("matmul.batch_vector", {{2, 3, 4}, {4}});
  add("matmul.vector_batch", {{3}, {2, 3, 4}});
  add("matmul.no_rows", {{0, 4}, {4, 5}});
  add("matmul.no_inner", {{3, 0}, {0, 5}});
  add("matmul.no_inner_batches", {{2, 3, 0}, {2, 0, 5}});
  add("matmul.no_inner_batch_matrix", {{2, 3, 0}, {0, 5}});
  add("matmul.no_inner_batch_vector", {{2, 3, 0}, {0}});
  add("matmul.no_columns", {{2, 3, 4}, {4, 0}});
  add("matmul.no_batch", {{0, 3, 4}, {4, 5}});
  add("matmul.outer", {{5, 1}, {1, 4}});
  // Larger than the blocks and register tiles of a fast kernel, with remainders in every direction.
  add("matmul.large", {{133, 67}, {67, 149}}, "");
  add("matmul.deep", {{5, 1031}, {1031, 9}}, "");
  add("matmul.wide_batch", {{3, 17, 35}, {3, 35, 33}}, "");

  cases.add("matmul.squared", {{4, 4}}, [](X x) { return matmul(x[0], x[0]); }, "x[0] @ x[0]");
  cases.add("matmul.integer", {{3, 4}, {4, 5}}, [](X x) { return matmul(x[0], x[1]); }, "x[0] @ x[1]").on(integers);
  cases.add("mm", {{3, 4}, {4, 5}}, [](X x) { return mm(x[0], x[1]); }, "x[0].mm(x[1])");

  const char* torch = "F.linear(x[0], x[1], x[2])";
  cases.add("linear", {{3, 4}, {5, 4}, {5}}, [](X x) { return linear(x[0], x[1], x[2]); }, torch);
  cases.add("linear.no_bias", {{3, 4}, {5, 4}}, [](X x) { return linear(x[0], x[1]); }, "F.linear(x[0], x[1])");
  cases.add("linear.vector", {{4}, {5, 4}, {5}}, [](X x) { return linear(x[0], x[1], x[2]); }, torch);
  cases.add("linear.sequence", {{2, 3, 4}, {5, 4}, {5}}, [](X x) { return linear(x[0], x[1], x[2]); }, torch);
  cases.add("linear.empty", {{0, 4}, {5, 4}, {5}}, [](X x) { return linear(x[0], x[1], x[2]); }, torch);
  cases.add("linear.no_inputs", {{2, 0}, {5, 0}, {5}}, [](X x) { return linear(x[0], x[1], x[2]); }, torch);
  cases.add("linear.no_inputs_sequence", {{2, 3, 0}, {5, 0}}, [](X x) { return linear(x[0], x[1]); }, "F.linear(*x)");
  cases.add("linear.no_outputs", {{2, 3, 4}, {0, 4}, {0}}, [](X x) { return linear(x[0], x[1], x[2]); }, torch);
  cases.add("linear.large", {{64, 400}, {120, 400}, {120}}, [](X x) { return linear(x[0], x[1], x[2]); });
}

}  // namespace gradus::op_cases
