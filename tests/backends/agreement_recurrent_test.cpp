// Steps of recurrent layers: every backend agrees with naive, and default bodies agree with their overrides.
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("an LSTM step and its gradient agree on every backend") {
  Maker make(61);
  const Shape shapes[] = {{0, 3}, {3, 0}, {1, 1}, {2, 7}, {3, 16}, {5, 33}, {40, 100}};  // vectors, tails, chunks
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

TEST_CASE("an LSTM over sequences and its gradient agree on every backend") {
  Maker make(62);
  constexpr bool kBoth[] = {false, true};
  // (L, N, H): hidden sizes for both kernels and their tails, and more sequences than run at the same time.
  const Shape shapes[] = {{1, 1, 1},    {3, 0, 2},   {4, 2, 7},  {3, 3, 64}, {5, 2, 65},
                          {2, 36, 128}, {2, 71, 66}, {2, 71, 3}, {2, 2, 129}};
  for (DType dtype : kFloatingDTypes)
    for (const Shape& shape : shapes)
      for (bool reverse : sample(make, kBoth)) {
        const Layout layout = shape[2] == 7 ? make.choice(kOutputLayouts) : Layout::contiguous;
        const auto some = [&](const Shape& size, double low, double high) {
          return make(size, dtype, layout, low, high);
        };
        const Shape wide = {shape[0], shape[1], 4 * shape[2]}, state = {shape[1], shape[2]};
        const Array w_hh = some({4 * shape[2], shape[2]}, -0.25, 0.25), h0 = some(state, -1, 1),
                    c0 = some(state, -1, 1);
        const Array gates = some(wide, -2, 2), cells = some(shape, -1, 1), hidden = some(shape, -1, 1);
        auto forward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            const LstmArgs args{.gates = out[0],
                                .w_hh = in[0],
                                .h0 = in[1],
                                .c0 = in[2],
                                .reverse = reverse,
                                .cells = out[1],
                                .hidden = out[2]};
            if (defaults) b.Backend::lstm_sequence(args);
            else b.lstm_sequence(args);
          };
        };
        check_agreement("lstm_sequence", {w_hh, h0, c0}, {gates, cells, hidden}, forward(false), forward(true), 8);

        const Array active = some(wide, 0, 1), dhidden = some(shape, -1, 1), dc = some(state, -1, 1);
        const Array dgates = some(wide, -1, 1), dh0 = some(state, -1, 1);
        for (bool with_hidden : sample(make, kBoth)) {
          auto backward = [&](bool defaults) {
            return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
              const LstmBackwardArgs args{.dhidden = with_hidden ? in[0] : Array(),
                                          .gates = in[1],
                                          .w_hh = in[2],
                                          .c0 = in[3],
                                          .cells = in[4],
                                          .reverse = reverse,
                                          .dc = out[0],
                                          .dgates = out[1],
                                          .dh0 = out[2]};
              if (defaults) b.Backend::lstm_sequence_backward(args);
              else b.lstm_sequence_backward(args);
            };
          };
          check_agreement("lstm_sequence_backward", {dhidden, active, w_hh, c0, cells}, {dc, dgates, dh0},
                          backward(false), backward(true), 8);
        }
      }
}

TEST_CASE("saturated LSTM gates give finite states") {
  for (const std::string& name : backend_names()) {
    Backend& b = backend(name);
    if (b.device_type() != DeviceType::cpu) continue;
    const Array gates = array_of({1, 4}, {1000, -1000, -1000, 1000}, DType::f32);
    const Array before = array_of({1, 1}, {0.5}, DType::f32), c = array_of({1, 1}, {0}, DType::f32);
    const Array h = array_of({1, 1}, {0}, DType::f32);
    b.lstm_cell(gates, before, c, h);
    CHECK(values(gates) == std::vector<double>{1, 0, -1, 1});
    CHECK(values(c) == std::vector<double>{-1});
    CHECK(error(values(h), {-0.76159416}) < 1e-6);
  }
}
