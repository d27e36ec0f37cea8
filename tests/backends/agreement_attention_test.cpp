// Attention and its gradient agree with naive on every backend, and default bodies agree with their overrides.
#include <cmath>
#include <limits>

#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

// Sizes: images, heads, queries, keys, columns of q and k, columns of v.
struct Sizes {
  int64_t N, H, L, S, E, V;
};
constexpr Sizes kSizes[] = {{1, 1, 1, 1, 1, 1},     {2, 0, 3, 3, 4, 4},    {1, 2, 3, 0, 2, 2},
                            {1, 2, 0, 3, 2, 2},     {2, 3, 5, 7, 8, 6},    {1, 2, 17, 65, 32, 32},
                            {1, 1, 70, 16, 40, 64}, {1, 2, 20, 33, 90, 9}, {1, 1, 3, 2, 129, 4}};

}  // namespace

TEST_CASE("attention and its gradient agree on every backend") {
  Maker make(71);
  for (DType dtype : kFloatingDTypes)
    for (const Sizes& size : kSizes)
      for (int variant = 0; variant < 4; ++variant) {
        const auto some = [&](const Shape& shape, double most) {
          return make(shape, dtype, size.L == 5 ? make.choice(kOutputLayouts) : Layout::contiguous, -most, most);
        };
        const Shape weights_shape = {size.N, size.H, size.L, size.S};
        const Array q = some({size.N, size.H, size.L, size.E}, 1), k = some({size.N, size.H, size.S, size.E}, 1);
        const Array v = some({size.N, size.H, size.S, size.V}, 2), dy = some({size.N, size.H, size.L, size.V}, 1);
        const Array weights = make(weights_shape, dtype), y = some({size.N, size.H, size.L, size.V}, 1);
        const Array kept = make(weights_shape, DType::boolean, Layout::contiguous, 0, 1);
        const Array mask = variant == 1 ? make(weights_shape, dtype, Layout::broadcast, -1, 1)
                                        : make(weights_shape, DType::boolean, make.choice(kInputLayouts), 0, 1);
        AttentionRule rule;
        rule.scale = 0.5, rule.causal = variant == 2;
        if (variant >= 2) rule.dropout = 0.25, rule.random = {11, 5};
        const bool masked = variant == 1, drops = rule.dropout > 0;
        auto forward = [&](bool defaults) {
          return [=](Backend& b, const Arrays& in, const Arrays& out) {
            const AttentionArgs args{.q = in[0],
                                     .k = in[1],
                                     .v = in[2],
                                     .mask = masked ? in[3] : Array(),
                                     .rule = rule,
                                     .weights = out[0],
                                     .kept = drops ? out[1] : Array(),
                                     .y = out[2]};
            if (defaults) b.Backend::attention(args);
            else b.attention(args);
          };
        };
        check_agreement("attention", {q, k, v, mask}, {weights, kept, y}, forward(false), forward(true), 8);

        // y is computed from the other operands, because a backend may compute the gradient from y.
        forward(false)(backend("naive"), {q, k, v, mask}, {weights, kept, y});
        const Array dq = some(q.shape(), 1), dk = some(k.shape(), 1), dv = some(v.shape(), 1);
        auto backward = [&](bool defaults) {
          return [=](Backend& b, const Arrays& in, const Arrays& out) {
            const AttentionBackwardArgs args{.dy = in[0],
                                             .q = in[1],
                                             .k = in[2],
                                             .v = in[3],
                                             .weights = in[4],
                                             .kept = drops ? in[5] : Array(),
                                             .y = in[6],
                                             .rule = rule,
                                             .dq = out[0],
                                             .dk = out[1],
                                             .dv = out[2]};
            if (defaults) b.Backend::attention_backward(args);
            else b.attention_backward(args);
          };
        };
        check_agreement("attention_backward", {dy, q, k, v, weights, kept, y}, {dq, dk, dv}, backward(false),
                        backward(true), 8);
      }
}

TEST_CASE("attention ignores keys where a boolean mask is false") {
  for (const std::string& name : backend_names()) {
    Backend& b = backend(name);
    if (b.device_type() != DeviceType::cpu) continue;
    const Array q = array_of({1, 1, 1, 1}, {1}), k = array_of({1, 1, 2, 1}, {3, 100}),
                v = array_of({1, 1, 2, 1}, {5, 7});
    const Array weights = array_of({1, 1, 1, 2}, {0, 0}), y = array_of({1, 1, 1, 1}, {0});
    const Array seen = array_of({1, 1, 1, 2}, {1, 0}, DType::boolean);
    b.attention({.q = q, .k = k, .v = v, .mask = seen, .weights = weights, .y = y});
    CHECK(values(weights) == std::vector<double>{1, 0});
    CHECK(values(y) == std::vector<double>{5});
  }
}

TEST_CASE("attention gives 0 in rows without keys on every backend, and NaN in rows with a NaN") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::string& name : backend_names())
    for (const DType dtype : kFloatingDTypes)
      for (const bool boolean : {false, true}) {
        Backend& b = backend(name);
        const Device device(b.device_type());
        CAPTURE(name, dtype, boolean);
        const auto there = [&](const Shape& shape, const std::vector<double>& numbers, DType type) {
          return copy_to(array_of(shape, numbers, type), device);
        };
        const auto here = [](const Array& x) { return values(copy_to(x, kCPU)); };
        const Array k = there({1, 1, 2, 1}, {3, 3}, dtype), v = there({1, 1, 2, 1}, {5, 7}, dtype);
        const Array mask = boolean ? there({1, 1, 2, 2}, {1, 1, 0, 0}, DType::boolean)
                                   : there({1, 1, 2, 2}, {0, 0, -infinity, -infinity}, dtype);
        const Array weights = Array::empty({1, 1, 2, 2}, dtype, device), y = Array::empty({1, 1, 2, 1}, dtype, device);
        const auto attend = [&](double first_query) {
          const Array q = there({1, 1, 2, 1}, {first_query, 1}, dtype);
          b.attention({.q = q, .k = k, .v = v, .mask = mask, .weights = weights, .y = y});
          return q;
        };
        attend(nan);
        CHECK(std::isnan(here(y)[0]));
        CHECK(here(y)[1] == 0);

        const Array q = attend(1), dy = there({1, 1, 2, 1}, {1, 1}, dtype);
        CHECK(here(y) == std::vector<double>{6, 0});
        CHECK(here(weights) == std::vector<double>{0.5, 0.5, 0, 0});
        const Array dq = Array::empty(q.shape(), dtype, device), dk = Array::empty(k.shape(), dtype, device);
        const Array dv = Array::empty(v.shape(), dtype, device);
        b.attention_backward(
            {.dy = dy, .q = q, .k = k, .v = v, .weights = weights, .y = y, .dq = dq, .dk = dk, .dv = dv});
        CHECK(here(dq) == std::vector<double>{0, 0});
        CHECK(here(dk) == std::vector<double>{-0.5, 0.5});
        CHECK(here(dv) == std::vector<double>{0.5, 0.5});
      }
}
