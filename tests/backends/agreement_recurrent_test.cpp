// Steps of recurrent layers: every backend agrees with naive, and default bodies agree with their overrides.
#include <gradus/core/kernel_choice.h>
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {
constexpr RecurrentCell kCells[] = {RecurrentCell::rnn_tanh, RecurrentCell::rnn_relu, RecurrentCell::lstm,
                                    RecurrentCell::gru};
}  // namespace

TEST_CASE("a step of a recurrent cell and its gradient agree on every backend") {
  Maker make(61);
  // Vectors, tails, chunks.
  const Shape shapes[] = {{0, 3}, {3, 0}, {1, 1}, {2, 3}, {2, 7}, {3, 16}, {5, 33}, {3, 64}, {40, 130}, {2, 257}};
  for (DType dtype : kFloatingDTypes)
    for (const Shape& shape : shapes)
      for (RecurrentCell cell : kCells) {
        const Layout layout = make.choice(kOutputLayouts);
        const Shape wide = {shape[0], sums_of(cell) * shape[1]};
        const Array sums = make(wide, dtype, layout), c_before = make(shape, dtype, make.choice(kInputLayouts));
        const Array c = make(shape, dtype, layout), h = make(shape, dtype, make.choice(kOutputLayouts));
        const auto forward = [&](Backend& b, const Arrays& in, const Arrays& out) {
          b.recurrent_cell(cell, out[0], in[0], out[1], out[2]);
        };
        check_agreement("recurrent_cell", {c_before}, {sums, c, h}, forward, forward, 4);

        const Array gates = make(wide, dtype, layout, 0, 1), dh = make(shape, dtype, make.choice(kInputLayouts));
        const Array dc = make(shape, dtype, layout), dgates = make(wide, dtype, make.choice(kOutputLayouts));
        const auto backward = [&](Backend& b, const Arrays& in, const Arrays& out) {
          b.recurrent_cell_backward(cell, in[0], in[1], in[2], in[3], out[0], out[1]);
        };
        check_agreement("recurrent_cell_backward", {dh, gates, c_before, c}, {dc, dgates}, backward, backward, 4);
      }
}

TEST_CASE("recurrent layers over sequences and their gradients agree on every backend") {
  Maker make(62);
  constexpr bool kBoth[] = {false, true};
  // (L, N, H): hidden sizes for all kernels and their tails, and more sequences than run at the same time.
  const Shape shapes[] = {{1, 1, 1},   {3, 0, 2},  {4, 2, 7},   {3, 3, 64},   {5, 2, 65}, {2, 36, 128},
                          {2, 71, 66}, {2, 71, 3}, {4, 3, 130}, {2, 37, 256}, {2, 2, 257}};
  struct Kind {
    RecurrentCell cell;
    bool projected;
  };
  const Kind kinds[] = {{RecurrentCell::rnn_tanh, false},
                        {RecurrentCell::rnn_relu, false},
                        {RecurrentCell::lstm, false},
                        {RecurrentCell::lstm, true},
                        {RecurrentCell::gru, false}};
  for (DType dtype : kFloatingDTypes)
    for (const Shape& shape : shapes)
      for (const Kind& kind : kinds) {
        const RecurrentCell cell = kind.cell;
        const bool is_lstm = cell == RecurrentCell::lstm, is_rnn = sums_of(cell) == 1, reverse = make.choice(kBoth);
        const Layout layout = shape[2] == 7 ? make.choice(kOutputLayouts) : Layout::contiguous;
        const auto some = [&](const Shape& size, double low, double high) {
          return make(size, dtype, layout, low, high);
        };
        const int64_t L = shape[0], N = shape[1], H = shape[2], P = kind.projected ? (H + 1) / 2 : H;
        const Shape wide = {L, N, sums_of(cell) * H};
        const Array w_hh = some({gates_of(cell) * H, P}, -0.25, 0.25), w_hr = some({P, H}, -0.25, 0.25);
        const Array h0 = some({N, P}, -1, 1), c0 = some({N, H}, -1, 1);
        const Array gates = some(wide, -2, 2), cells = some(shape, -1, 1), outputs = some(shape, -1, 1);
        const Array hidden = some({L, N, P}, -1, 1);
        auto forward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            const Array& states = is_rnn ? out[0] : out[3];
            const RecurrentArgs args{.cell = cell,
                                     .gates = out[0],
                                     .w_hh = in[0],
                                     .w_hr = kind.projected ? in[3] : Array(),
                                     .h0 = in[1],
                                     .c0 = is_lstm ? in[2] : in[1],
                                     .reverse = reverse,
                                     .cells = is_lstm ? out[1] : states,
                                     .outputs = kind.projected ? out[2] : states,
                                     .hidden = states};
            const ForcedAlgorithm forced("clusters");
            if (defaults) b.Backend::recurrent_sequence(args);
            else b.recurrent_sequence(args);
          };
        };
        check_agreement("recurrent_sequence", {w_hh, h0, c0, w_hr}, {gates, cells, outputs, hidden}, forward(false),
                        forward(true), 8);

        const Array active = some(wide, 0, 1), dc = some({N, H}, -1, 1);
        const Array dhidden = make({L, N, P}, dtype, make.choice(kInputLayouts), -1, 1);
        const Array dgates = some(wide, -1, 1), dprojected = some({L, N, P}, -1, 1), dh0 = some({N, P}, -1, 1);
        const bool with_hidden = make.choice(kBoth);
        auto backward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            const RecurrentBackwardArgs args{.cell = cell,
                                             .dhidden = with_hidden ? in[0] : Array(),
                                             .gates = in[1],
                                             .w_hh = in[2],
                                             .w_hr = kind.projected ? in[5] : Array(),
                                             .c0 = is_lstm ? in[3] : in[6],
                                             .cells = in[4],
                                             .reverse = reverse,
                                             .dc = out[0],
                                             .dgates = out[1],
                                             .dprojected = kind.projected ? out[3] : Array(),
                                             .dh0 = out[2]};
            const ForcedAlgorithm forced("clusters");
            if (defaults) b.Backend::recurrent_sequence_backward(args);
            else b.recurrent_sequence_backward(args);
          };
        };
        check_agreement("recurrent_sequence_backward", {dhidden, active, w_hh, c0, cells, w_hr, h0},
                        {dc, dgates, dh0, dprojected}, backward(false), backward(true), 8);
      }
}

TEST_CASE("saturated gates give finite states") {
  for (const std::string& name : backend_names()) {
    Backend& b = backend(name);
    if (b.device_type() != DeviceType::cpu) continue;
    const Array gates = array_of({1, 4}, {1000, -1000, -1000, 1000}, DType::f32);
    const Array before = array_of({1, 1}, {0.5}, DType::f32), c = array_of({1, 1}, {0}, DType::f32);
    const Array h = array_of({1, 1}, {0}, DType::f32);
    b.recurrent_cell(RecurrentCell::lstm, gates, before, c, h);
    CHECK(values(gates) == std::vector<double>{1, 0, -1, 1});
    CHECK(values(c) == std::vector<double>{-1});
    CHECK(error(values(h), {-0.76159416}) < 1e-6);
  }
}
