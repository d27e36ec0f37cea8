// Every backend gives naive's results for the steps of recurrent layers, and their default bodies give their overrides'.
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("an LSTM's step and its gradient agree on every backend") {
  Maker make(61);
  const Shape shapes[] = {{0, 3}, {3, 0}, {1, 1}, {2, 7}, {3, 16}, {5, 33}, {40, 100}};  // vectors, their ends, chunks
  for (DType dtype : kFloatingDTypes)
    for (const Shape& shape : shapes)
      for (Layout layout : kOutputLayouts) {
        const Shape wide = {shape[0], 4 * shape[1]};
        const Array sums = make(wide, dtype, layout), c_before = make(shape, dtype, make.choice(kInputLayouts));
        const Array c = make(shape, dtype, layout), h = make(shape, dtype, make.choice(kOutputLayouts));
        auto forward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            if (defaults) b.Backend::lstm_cell(out[0], in[0], out[1], out[2]);
            else b.lstm_cell(out[0], in[0], out[1], out[2]);
          };
        };
        check_agreement("lstm_cell", {c_before}, {sums, c, h}, forward(false), forward(true), 4);

        const Array gates = make(wide, dtype, layout, 0, 1), dh = make(shape, dtype, make.choice(kInputLayouts));
        const Array dc = make(shape, dtype, layout), dgates = make(wide, dtype, make.choice(kOutputLayouts));
        auto backward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            if (defaults) b.Backend::lstm_cell_backward(in[0], in[1], in[2], in[3], out[0], out[1]);
            else b.lstm_cell_backward(in[0], in[1], in[2], in[3], out[0], out[1]);
          };
        };
        check_agreement("lstm_cell_backward", {dh, gates, c_before, c}, {dc, dgates}, backward(false), backward(true),
                        4);
      }
}

TEST_CASE("gates that are saturated stay numbers") {
  for (const std::string& name : backend_names()) {
    Backend& b = backend(name);
    if (b.device_type() != DeviceType::cpu) continue;
    const Array gates = array_of({1, 4}, {1000, -1000, -1000, 1000}, DType::f32);
    const Array before = array_of({1, 1}, {0.5}, DType::f32), c = array_of({1, 1}, {0}, DType::f32);
    const Array h = array_of({1, 1}, {0}, DType::f32);
    b.lstm_cell(gates, before, c, h);
    CHECK(values(gates) == std::vector<double>{1, 0, -1, 1});
    CHECK(values(c) == std::vector<double>{-1});
    CHECK(close(values(h), {-0.76159416}, 1e-6));
  }
}
