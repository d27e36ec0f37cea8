// x[…] with random lists of integers, slices, None, Ellipsis, index tensors and masks against the elements that they
// name one by one.
#include <algorithm>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

namespace indexing_test {

using namespace gradus;

/// A dimension of the view that integers and slices leave: x's elements start + i step along `of_x`, which is -1 for
/// None.
struct Basic {
  int of_x;
  int64_t size, start, step;
};

/// What one index tensor or one dimension of a mask selects: elements of dimension `of_x`, in the broadcast shape.
struct Selected {
  int of_x;
  Tensor places;
};

struct Problem {
  std::vector<TensorIndex> indices;
  std::string text;
  std::vector<int64_t> fixed;        // the element that an integer selects along each dimension of x; -1: none
  std::vector<Basic> before, after;  // the dimensions before and after the selected ones
  std::vector<Selected> selected;
  bool apart = false;  // a slice or None is between two index tensors, so that their dimensions come first
};

class Draw {
 public:
  uint32_t operator()(uint32_t n) { return state_ = state_ * 1664525u + 1013904223u, (state_ >> 16) % n; }

 private:
  uint32_t state_ = 3;
};

Problem make_problem(const Shape& shape, Draw& draw) {
  Problem problem;
  problem.fixed.assign(static_cast<size_t>(shape.size()), -1);
  bool closed = false;  // a basic dimension followed the selected ones
  const auto add_basic = [&](const Basic& dimension) {
    closed = closed || !problem.selected.empty();
    (problem.selected.empty() ? problem.before : problem.after).push_back(dimension);
  };
  const auto add_selected = [&](int of_x, const Tensor& places) {
    problem.apart = problem.apart || closed;
    problem.selected.push_back({of_x, places});
  };
  int skipped =
      draw(3) == 0 ? static_cast<int>(draw(static_cast<uint32_t>(shape.size()))) : -1;  // dimensions of Ellipsis
  const int in_ellipsis = skipped < 0 ? 0 : skipped;
  const int ellipsis_at = static_cast<int>(draw(static_cast<uint32_t>(shape.size() - in_ellipsis) + 1));
  int given = 0;
  for (int dimension = 0; dimension < shape.size();) {
    if (skipped >= 0 && given == ellipsis_at) {
      problem.indices.emplace_back(Ellipsis), problem.text += "..., ";
      for (int i = 0; i < in_ellipsis; ++i, ++dimension) add_basic({dimension, shape[dimension], 0, 1});
      skipped = -1, ++given;
      continue;
    }
    const int64_t size = shape[dimension];
    const int left = shape.size() - dimension - (skipped >= 0 ? in_ellipsis : 0);
    if (left == 0) {
      given = ellipsis_at;
      continue;
    }
    switch (draw(7)) {
      case 0:
        problem.indices.emplace_back(None), problem.text += "None, ";
        add_basic({-1, 1, 0, 1});
        break;
      case 1: {
        const int64_t at = static_cast<int64_t>(draw(static_cast<uint32_t>(size)));
        const bool from_end = draw(2) == 0;
        problem.indices.emplace_back(from_end ? at - size : at), problem.text += "integer, ";
        problem.fixed[static_cast<size_t>(dimension++)] = at, ++given;
        break;
      }
      case 2:
      case 3: {
        const int64_t start = draw(3), step = 1 + draw(2), end = size - static_cast<int64_t>(draw(2));
        problem.indices.emplace_back(Slice(start, end, step)), problem.text += "slice, ";
        add_basic({dimension++, end > start ? (end - start + step - 1) / step : 0, start, step});
        ++given;
        break;
      }
      case 4:
      case 5: {
        const Shape shapes[] = {{3}, {2, 3}, {1}, {2, 1}};
        const Tensor places = randint(-size, size, shapes[draw(4)]);
        problem.indices.emplace_back(draw(2) == 0 ? places.to(kInt) : places), problem.text += "places, ";
        add_selected(dimension++, where(places < 0, places + size, places));
        ++given;
        break;
      }
      default: {
        const int span = left > 1 && draw(2) == 0 ? 2 : 1;
        Shape of_mask;
        for (int i = 0; i < span; ++i) of_mask.push_back(shape[dimension + i]);
        if (numel_of(of_mask) < 3) break;
        const Tensor mask = zeros(of_mask, kBool);  // with three elements
        mask.flatten().index_fill_(0, randperm(mask.numel()).slice(0, 0, 3), true);
        problem.indices.emplace_back(draw(2) == 0 ? mask.to(kByte) : mask), problem.text += "mask, ";
        const Tensor places = nonzero(mask);
        for (int i = 0; i < span; ++i) add_selected(dimension++, places.select(1, i));
        given += span;
      }
    }
  }
  // Trailing slices of whole dimensions may be left out.
  while (!problem.indices.empty() && problem.indices.back().kind == TensorIndex::Kind::slice &&
         problem.indices.back().slice.step == 1 && draw(2) == 0 &&
         (problem.after.empty() ? problem.before : problem.after).back().size == shape[shape.size() - 1] &&
         (problem.after.empty() ? problem.before : problem.after).back().of_x == shape.size() - 1) {
    problem.indices.pop_back();
    break;
  }
  return problem;
}

TEST_CASE("an index names the elements that its parts name, for reading and writing, and gradients go back there") {
  manual_seed(21);
  Draw draw;
  const Shape shapes[] = {{4}, {4, 3}, {4, 3, 5}, {2, 4, 3, 5}, {3, 2, 4, 2, 3}};
  for (int round = 0; round < 400; ++round) {
    const Shape& shape = shapes[draw(5)];
    const Problem problem = make_problem(shape, draw);
    if (problem.indices.empty()) continue;
    INFO(to_string(shape) << "[" << problem.text << "]");
    Shape chosen;  // the shape of the index tensors, broadcast
    for (const Selected& one : problem.selected) chosen = broadcast_shapes(chosen, one.places.sizes());
    std::vector<Basic> basic = problem.before;
    basic.insert(basic.end(), problem.after.begin(), problem.after.end());
    const size_t first = problem.apart ? 0 : problem.before.size();  // of the selected dimensions
    Shape wanted_shape;
    for (size_t i = 0; i < first; ++i) wanted_shape.push_back(basic[i].size);
    for (const int64_t size : chosen) wanted_shape.push_back(size);
    for (size_t i = first; i < basic.size(); ++i) wanted_shape.push_back(basic[i].size);
    if (wanted_shape.size() > 7) continue;

    const Tensor x = arange(1, 1 + numel_of(shape), dtype(kDouble)).reshape(shape).requires_grad_(true);
    const Tensor y = x.index(problem.indices);
    REQUIRE(y.sizes() == wanted_shape);
    const Tensor wanted = zeros(wanted_shape, kDouble), dx = zeros(shape, kDouble), put = x.detach().clone(),
                 assigned = put.clone();
    const Tensor dy = arange(1, 1 + y.numel(), kDouble).reshape(wanted_shape).square();
    std::vector<Tensor> places;
    for (const Selected& one : problem.selected) places.push_back(one.places.expand(chosen).contiguous());
    for (int64_t count = 0; count < y.numel(); ++count) {
      std::vector<int64_t> at(static_cast<size_t>(shape.size()), 0), index(static_cast<size_t>(wanted_shape.size()));
      int64_t rest = count;
      for (int i = wanted_shape.size() - 1; i >= 0; rest /= wanted_shape[i--])
        index[static_cast<size_t>(i)] = rest % wanted_shape[i];
      for (size_t d = 0; d < at.size(); ++d) at[d] = std::max<int64_t>(problem.fixed[d], 0);
      for (size_t i = 0; i < basic.size(); ++i) {
        const size_t of_y = i < first ? i : i + static_cast<size_t>(chosen.size());
        if (basic[i].of_x >= 0) at[static_cast<size_t>(basic[i].of_x)] = basic[i].start + basic[i].step * index[of_y];
      }
      int64_t in_chosen = 0;
      for (int i = 0; i < chosen.size(); ++i) in_chosen = in_chosen * chosen[i] + index[first + static_cast<size_t>(i)];
      for (size_t i = 0; i < places.size(); ++i)
        at[static_cast<size_t>(problem.selected[i].of_x)] = places[i].data_ptr<int64_t>()[in_chosen];
      int64_t place = 0;
      for (int d = 0; d < shape.size(); ++d) place = place * shape[d] + at[static_cast<size_t>(d)];
      wanted.data_ptr<double>()[count] = static_cast<double>(place + 1);
      dx.data_ptr<double>()[place] += dy.data_ptr<double>()[count];
      put.data_ptr<double>()[place] = -7;
      assigned.data_ptr<double>()[place] = dy.data_ptr<double>()[count];  // of equal places the last one wins
    }
    CHECK(y.detach().equal(wanted));
    if (y.numel() > 0) CHECK(autograd::grad({y}, {x}, {dy})[0].equal(dx));
    const Tensor written = x.detach().clone();
    written.index_put_(problem.indices, -7.0);
    CHECK(written.equal(put));
    written.index_put_(problem.indices,
                       y.dim() < 8 ? dy.unsqueeze(0) : dy);  // a leading dimension of size 1 is dropped
    CHECK(written.equal(assigned));
    const Tensor sums = zeros(shape, kDouble);
    sums.index_put_(problem.indices, dy, /*accumulate=*/true);
    CHECK(sums.equal(dx));
  }
}

}  // namespace indexing_test
