// The default bodies of Backend::lstm_sequence and its gradient: each step is a product and a cell.
#include <gradus/core/backend.h>

namespace gradus {
namespace {

// What step t has of (L, N, …).
template <class AnyView>
AnyView at_step(const AnyView& view, int64_t t) {
  AnyView step = narrow(view, 0, t, 1);
  step.shape.erase(0), step.strides.erase(0);
  return step;
}

// The steps in the order in which they are computed.
struct Steps {
  int64_t count;
  bool reverse;
  int64_t operator[](int64_t i) const { return reverse ? count - 1 - i : i; }
};

// State before computed step i, of those after each step.
View before(const View& initial, const View& states, const Steps& steps, int64_t i) {
  return i == 0 ? initial : at_step(states, steps[i - 1]);
}

}  // namespace

void Backend::lstm_sequence(const MutableView& gates, const View& w_hh, const View& h0, const View& c0, bool reverse,
                            const MutableView& cells, const MutableView& hidden) {
  View transposed = w_hh;
  std::swap(transposed.shape[0], transposed.shape[1]), std::swap(transposed.strides[0], transposed.strides[1]);
  const Array w = Array::empty(transposed.shape, w_hh.dtype, w_hh.device);  // products read its rows as they are
  copy(transposed, w);
  const Steps steps{gates.shape[0], reverse};
  for (int64_t i = 0; i < steps.count; ++i) {
    const MutableView sums = at_step(gates, steps[i]);
    matmul(before(h0, hidden, steps, i), w, sums, /*accumulate=*/true);
    lstm_cell(sums, before(c0, cells, steps, i), at_step(cells, steps[i]), at_step(hidden, steps[i]));
  }
}

void Backend::lstm_sequence_backward(const View* dhidden, const View& gates, const View& w_hh, const View& c0,
                                     const View& cells, bool reverse, const MutableView& dc, const MutableView& dgates,
                                     const MutableView& dh0) {
  const Steps steps{gates.shape[0], reverse};
  // Of the states after each step; where none is given, one place serves all.
  Array sums;
  if (dhidden) {
    sums = Array::empty(dhidden->shape, dhidden->dtype, dhidden->device);
    copy(*dhidden, sums);
  } else {
    fill(dh0, 0);
  }
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    const int64_t t = steps[i];
    const MutableView dh = dhidden ? at_step(MutableView(sums), t) : dh0;
    if (i + 1 < steps.count) matmul(at_step(View(dgates), steps[i + 1]), w_hh, dh, /*accumulate=*/dhidden != nullptr);
    lstm_cell_backward(dh, at_step(gates, t), before(c0, cells, steps, i), at_step(cells, t), dc, at_step(dgates, t));
  }
  matmul(at_step(View(dgates), steps[0]), w_hh, dh0, /*accumulate=*/false);
}

}  // namespace gradus
