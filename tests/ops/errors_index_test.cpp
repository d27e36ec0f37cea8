// Wrong calls of the operators of shapes, indices, linear algebra and attention.
#include "wrong_calls.h"

using namespace gradus;
using namespace gradus::op_testing;

namespace {

Tensor index(std::initializer_list<int64_t> numbers) { return tensor(std::vector<int64_t>(numbers)); }
Tensor yes(IntArrayRef size) { return ones(size, kBool); }

}  // namespace

// Tables: one call a line.
// clang-format off
TEST_CASE("wrong shapes of indexing and joining are ShapeErrors") {
  check_calls<ShapeError>({
      {"index", {"(2,)", "(3,)"}, [] { f({4, 4}).index({index({0, 1}), index({0, 1, 2})}); }},
      {"index_put_", {"(2,)", "(3, 4)"}, [] { f({5, 4}).index_put_({index({0, 1, 2})}, f({2})); }},
      {"index_put_", {"(3,)", "(2,)"}, [] { f({2}).index_put_({yes({2})}, f({3})); }},
      {"index_select", {"(1, 2)"}, [] { f({3, 2}).index_select(0, i({1, 2})); }},
      {"index_select", {"(2,)"}, [] { f({}).index_select(0, index({0, 0})); }},
      {"index_add", {"(3, 2)", "(2, 2)"}, [] { f({3, 2}).index_add(0, index({0, 1}), f({3, 2})); }},
      {"index_add_", {"(3,)", "(2, 2)"}, [] { f({3, 2}).index_add_(0, index({0, 1}), f({3})); }},
      {"index_copy", {"(3, 2)", "(1, 2)"}, [] { index_copy(f({3, 2}), 0, index({0, 1}), f({1, 2})); }},
      {"gather", {"(2,)", "(3, 2)"}, [] { f({3, 2}).gather(0, index({0, 1})); }},
      {"gather", {"(1, 3)", "(3, 2)"}, [] { f({3, 2}).gather(0, i({1, 3})); }},
      {"scatter", {"(2,)", "(2, 2)"}, [] { f({3, 2}).scatter(0, i({2, 2}), f({2})); }},
      {"scatter_add", {"(2, 2)", "(1, 2)"}, [] { f({3, 2}).scatter_add(0, i({2, 2}), f({1, 2})); }},
      {"scatter_", {"(2, 3)", "(3, 2)"}, [] { f({3, 2}).scatter_(0, i({2, 3}), 1); }},
      {"take_along_dim", {"(3, 2)", "(2,)"}, [] { take_along_dim(f({3, 2}), index({0, 1}), 0); }},
      {"masked_fill", {"(3, 2)", "(3,)"}, [] { f({3, 2}).masked_fill(yes({3}), 0); }},
      {"masked_fill", {"(2,)"}, [] { f({3, 2}).masked_fill(yes({2}), f({2})); }},
      {"masked_fill_", {"(2,)", "(3, 2)"}, [] { f({2}).masked_fill_(yes({3, 2}), 0); }},
      {"masked_select", {"(3, 2)", "(3,)"}, [] { f({3, 2}).masked_select(yes({3})); }},
      {"meshgrid", {"(2, 2)"}, [] { meshgrid({f({2, 2})}); }},
      {"split", {"(2, 3)", "(4, 2)"}, [] { f({4, 2}).split({2, 3}); }},
      {"split", {"scalar"}, [] { f({}).split(1); }},
      {"unbind", {"scalar"}, [] { f({}).unbind(); }},
      {"unflatten", {"(3, 2)", "4"}, [] { f({4, 2}).unflatten(0, {3, 2}); }},
      {"diagonal", {"(3,)"}, [] { f({3}).diagonal(); }},
      {"diag", {"(2, 2, 2)"}, [] { f({2, 2, 2}).diag(); }},
      {"tril", {"(3,)"}, [] { f({3}).tril(); }},
      {"triu", {"(3,)"}, [] { f({3}).triu(); }},
      {"repeat", {}, [] { f({4}).repeat({int64_t{1} << 62}); }},
      {"repeat", {"(2,)", "(3, 2)"}, [] { f({3, 2}).repeat({2}); }},
      {"roll", {"scalar"}, [] { f({}).roll({1}, {0}); }},
      {"fliplr", {"(3,)"}, [] { fliplr(f({3})); }},
      {"movedim", {"(0, 1)", "(0,)"}, [] { movedim(f({2, 3}), {0, 1}, {0}); }},
      {"broadcast_tensors", {"(2,)", "(3,)"}, [] { broadcast_tensors({f({2}), f({3})}); }},
      {"hstack", {"(2, 1)", "(3, 1)"}, [] { hstack({f({2, 1}), f({3, 1})}); }},
      {"vstack", {"(1, 2)", "(1, 3)"}, [] { vstack({f({2}), f({3})}); }},
  });
}

TEST_CASE("wrong shapes of products and attention are ShapeErrors") {
  check_calls<ShapeError>({
      {"matmul", {"(2, 3, 4)", "(5, 4, 6)"}, [] { matmul(f({2, 3, 4}), f({5, 4, 6})); }},
      {"matmul", {"(2, 1, 3, 4)", "(3, 2, 4, 6)"}, [] { matmul(f({2, 1, 3, 4}), f({3, 2, 4, 6})); }},
      {"bmm", {"(2, 3, 4)", "(3, 4, 5)"}, [] { bmm(f({2, 3, 4}), f({3, 4, 5})); }},
      {"bmm", {"(2, 3, 4)", "(2, 5, 4)"}, [] { bmm(f({2, 3, 4}), f({2, 5, 4})); }},
      {"bmm", {"(3, 4)"}, [] { bmm(f({3, 4}), f({2, 4, 5})); }},
      {"mv", {"(2, 3)", "(2,)"}, [] { mv(f({2, 3}), f({2})); }},
      {"mv", {"(3,)"}, [] { mv(f({3}), f({3})); }},
      {"dot", {"(3,)", "(4,)"}, [] { dot(f({3}), f({4})); }},
      {"dot", {"(3, 1)"}, [] { dot(f({3, 1}), f({3})); }},
      {"outer", {"(3, 1)"}, [] { outer(f({3, 1}), f({3})); }},
      {"addmm", {"(4,)", "(2, 5)"}, [] { addmm(f({4}), f({2, 3}), f({3, 5})); }},
      {"addmm", {"(2, 3)", "(4, 5)"}, [] { addmm(f({5}), f({2, 3}), f({4, 5})); }},
      {"addmm", {"(3,)"}, [] { addmm(f({5}), f({3}), f({3, 5})); }},
      {"addmv", {"(3,)", "(2,)"}, [] { addmv(f({3}), f({2, 4}), f({4})); }},
      {"baddbmm", {"(2, 3, 4)", "(1, 4, 5)"}, [] { baddbmm(f({5}), f({2, 3, 4}), f({1, 4, 5})); }},
      {"trace", {"(2, 2, 2)"}, [] { trace(f({2, 2, 2})); }},
      {"cross", {"(2, 3)", "(3, 3)"}, [] { cross(f({2, 3}), f({3, 3})); }},
      {"cross", {"3", "(2, 4)"}, [] { cross(f({2, 4}), f({2, 4})); }},
      {"tensordot", {"(2, 3)", "(4, 3)"}, [] { tensordot(f({2, 3}), f({4, 3}), {1}, {0}); }},
      {"tensordot", {"(0, 1)", "(0,)"}, [] { tensordot(f({2, 3}), f({4, 3}), {0, 1}, {0}); }},
      {"einsum", {"ij,jk->ik", "j", "(2, 3)", "(4, 5)"}, [] { einsum("ij,jk->ik", {f({2, 3}), f({4, 5})}); }},
      {"einsum", {"operand 1", "(4, 5)"}, [] { einsum("ij,j", {f({2, 3}), f({4, 5})}); }},
      {"einsum", {"ii", "(2, 3)"}, [] { einsum("ii", {f({2, 3})}); }},
      {"einsum", {"...", "(2, 3)", "(4, 3)"}, [] { einsum("...i,...i->...", {f({2, 3}), f({4, 3})}); }},
      {"cosine_similarity", {"(2, 3)", "(2, 4)"}, [] { cosine_similarity(f({2, 3}), f({2, 4})); }},
      {"pairwise_distance", {"(2, 3)", "(2, 4)"}, [] { pairwise_distance(f({2, 3}), f({2, 4})); }},
      {"embedding", {"(3,)"}, [] { embedding(f({3}), i({2})); }},
      {"scaled_dot_product_attention", {"(2, 4)", "(2, 5)"}, [] { scaled_dot_product_attention(f({2, 4}), f({2, 5}), f({2, 4})); }},
      {"scaled_dot_product_attention", {"(3, 4)", "(2, 4)"}, [] { scaled_dot_product_attention(f({2, 4}), f({3, 4}), f({2, 4})); }},
      {"scaled_dot_product_attention", {"(4,)"}, [] { scaled_dot_product_attention(f({4}), f({3, 4}), f({3, 4})); }},
      {"scaled_dot_product_attention", {"(2, 3)", "(2, 2)"}, [] { scaled_dot_product_attention(f({2, 4}), f({3, 4}), f({3, 4}), f({2, 2})); }},
  });
}

TEST_CASE("indices outside their dimension are IndexErrors that say where") {
  check_calls<IndexError>({
      {"index", {"index 5", "position (1,)", "dimension 0", "size 3"}, [] { f({3, 2}).index({index({0, 5})}); }},
      {"index", {"index -4", "position (0,)", "size 3"}, [] { f({3, 2}).index({index({-4, 1})}); }},
      {"index", {"index 2", "position (1, 0)", "dimension 1", "size 2"}, [] { f({3, 2}).index({Slice(), tensor({{0, 1}, {2, 0}})}); }},
      {"index", {"index 9", "dimension 2", "size 4"}, [] { f({3, 2, 4}).index({0, Slice(), index({9})}); }},
      {"index", {"(3,)", "dimension 2", "(3, 2, 4)"}, [] { f({3, 2, 4}).index({None, 0, Ellipsis, yes({3})}); }},
      {"index", {"index 7", "dimension 1"}, [] { f({3, 2}).index({index({0}), index({7})}); }},
      {"index", {"(2, 3)", "(3, 2)"}, [] { f({3, 2}).index({yes({2, 3})}); }},
      {"index", {"3 indices", "(3, 2)"}, [] { f({3, 2}).index({yes({3, 2}), 0}); }},
      {"index", {"Ellipsis"}, [] { f({3, 2}).index({Ellipsis, Ellipsis}); }},
      {"index_put_", {"index 3", "size 3"}, [] { f({3, 2}).index_put_({index({3})}, 0); }},
      {"index_put_", {"(2,)", "dimension 0", "(3, 2)"}, [] { f({3, 2}).index_put_({yes({2})}, 0); }},
      {"index_select", {"index 3", "position (1,)", "dimension 0", "size 3"}, [] { f({3, 2}).index_select(0, index({0, 3})); }},
      {"index_select", {"index -1", "position (0,)"}, [] { f({3, 2}).index_select(1, index({-1})); }},
      {"index_select", {"2"}, [] { f({3, 2}).index_select(2, index({0})); }},
      {"index_add_", {"index 9", "size 3"}, [] { f({3, 2}).index_add_(0, index({9}), f({1, 2})); }},
      {"index_fill_", {"index -2", "size 3"}, [] { f({3, 2}).index_fill_(0, index({-2}), 1); }},
      {"gather", {"index 2", "position (0, 1)", "dimension 1", "size 2"}, [] { f({3, 2}).gather(1, tensor({{0, 2}})); }},
      {"scatter_", {"index 3", "position (1, 0)", "dimension 0", "size 3"}, [] { f({3, 2}).scatter_(0, tensor({{0}, {3}}), 1); }},
      {"scatter_add_", {"index -1", "size 3"}, [] { f({3, 2}).scatter_add_(0, tensor({{-1}}), f({1, 1})); }},
      {"one_hot", {"index 5", "position (1,", "size 3"}, [] { one_hot(index({0, 5}), 3); }},
      {"one_hot", {"index -1"}, [] { one_hot(index({0, -1})); }},
      {"embedding", {"index 4", "position (1, 0)", "size 4"}, [] { embedding(f({4, 2}), tensor({{0, 1}, {4, 3}})); }},
      {"embedding", {"padding_idx 4", "(4, 2)"}, [] { embedding(f({4, 2}), index({0}), 4); }},
      {"diagonal", {"1"}, [] { f({2, 3}).diagonal(0, 1, -1); }},
      {"flip", {"2"}, [] { f({2, 3}).flip({2}); }},
      {"roll", {"2"}, [] { f({2, 3}).roll({1}, {2}); }},
      {"split", {"2"}, [] { f({2, 3}).split(1, 2); }},
      {"cosine_similarity", {"2"}, [] { cosine_similarity(f({2, 3}), f({2, 3}), 2); }},
  });
}

TEST_CASE("wrong types of indices and operands are DTypeErrors") {
  check_calls<DTypeError>({
      {"index", {"float32"}, [] { f({3}).index({f({2})}); }},
      {"index", {"uint8", "kBool"}, [] { f({3}).index({ones({3}, kByte)}); }},
      {"index_put_", {"float32", "float64"}, [] { f({3}).index_put_({index({0})}, ones({1}, kDouble)); }},
      {"index_select", {"bool"}, [] { f({3}).index_select(0, yes({3})); }},
      {"index_add", {"float32", "int64"}, [] { f({3}).index_add(0, index({0}), i({1})); }},
      {"gather", {"float32"}, [] { f({3}).gather(0, f({3})); }},
      {"scatter", {"float32", "int64"}, [] { f({3}).scatter(0, index({0}), i({1})); }},
      {"masked_fill", {"float32"}, [] { f({3}).masked_fill(f({3}), 0); }},
      {"masked_select", {"int64"}, [] { f({3}).masked_select(i({3})); }},
      {"one_hot", {"float32"}, [] { one_hot(f({3})); }},
      {"embedding", {"float32", "weight"}, [] { embedding(i({3, 2}), f({3, 2})); }},
      {"cosine_similarity", {"int64"}, [] { cosine_similarity(i({2, 3}), i({2, 3})); }},
      {"bmm", {"float32", "int64"}, [] { bmm(f({1, 2, 2}), i({1, 2, 2})); }},
      {"logspace", {"int64"}, [] { logspace(0, 1, 3, 10, kLong); }},
  });
}

TEST_CASE("wrong options of rearranging and products are ValueErrors") {
  check_calls<ValueError>({
      {"index", {"undefined"}, [] { f({3}).index({Tensor()}); }},
      {"scatter", {"mean"}, [] { scatter(f({3}), 0, index({0}), 1, "mean"); }},
      {"one_hot", {"-2"}, [] { one_hot(index({0}), -2); }},
      {"one_hot", {"number of classes"}, [] { one_hot(index({})); }},
      {"meshgrid", {"yx"}, [] { meshgrid({f({2})}, "yx"); }},
      {"split", {"0"}, [] { f({3}).split(0); }},
      {"split", {"-1"}, [] { f({3}).split({4, -1}); }},
      {"chunk", {"0"}, [] { f({3}).chunk(0); }},
      {"repeat", {"-1"}, [] { f({3}).repeat({-1}); }},
      {"repeat_interleave", {"-2"}, [] { f({3}).repeat_interleave(-2); }},
      {"roll", {"(1, 2)"}, [] { f({3}).roll({1, 2}); }},
      {"roll", {"(1, 2)", "(0,)"}, [] { f({3}).roll({1, 2}, {0}); }},
      {"einsum", {"'1'"}, [] { einsum("i1", {f({2, 2})}); }},
      {"einsum", {"more operands", "1"}, [] { einsum("i,i", {f({2})}); }},
      {"einsum", {"1"}, [] { einsum("i", {f({2}), f({2})}); }},
      {"einsum", {"'k'"}, [] { einsum("ij->ik", {f({2, 2})}); }},
      {"einsum", {"'i'"}, [] { einsum("ij->ii", {f({2, 2})}); }},
      {"einsum", {"..", "point"}, [] { einsum("..i", {f({2, 2})}); }},
      {"scaled_dot_product_attention", {"is_causal"}, [] { scaled_dot_product_attention(f({2, 4}), f({2, 4}), f({2, 4}), f({2, 2}), 0, true); }},
      {"diag", {"9223372036854775807"}, [] { f({3}).diag(INT64_MAX); }},
      {"eye", {"-1"}, [] { eye(2, -1); }},
      {"tril_indices", {"-1"}, [] { tril_indices(-1, 2); }},
  });
}

// clang-format on
TEST_CASE("a bad index writes nothing") {
  for (const std::string& backend_name : backend_names()) {
    if (!device_of(backend_name).is_cpu()) continue;
    const BackendGuard guard(backend_name);
    const Tensor x = zeros({3, 2});
    CHECK_THROWS_AS(x.index_add_(0, index({0, 3}), f({2, 2})), IndexError);
    CHECK_THROWS_AS(x.scatter_(0, tensor({{0, 1}, {-1, 0}}), 1), IndexError);
    CHECK_THROWS_AS(x.index_put_({index({0, 3})}, 1), IndexError);
    CHECK(x.equal(zeros({3, 2})));
  }
}

TEST_CASE("indexed writes follow the rules of in-place operators") {
  const Tensor leaf = ones({3, 2}, requires_grad());
  CHECK_THROWS_AS(leaf.index_put_({index({0})}, 1), AutogradError);
  CHECK_THROWS_AS(leaf.masked_fill_(yes({3, 2}), 1), AutogradError);
  CHECK_THROWS_AS(leaf.index_add_(0, index({0}), f({1, 2})), AutogradError);
  CHECK_THROWS_AS(leaf[0].scatter_(0, index({0}), 1), AutogradError);
  CHECK_THROWS_AS(f({1, 2}).expand({3, 2}).index_put_({index({0})}, 1), ShapeError);
  {
    const NoGradGuard no_grad;
    leaf.index_put_({index({0})}, 5);
  }
  CHECK(leaf.detach().equal(tensor({{5., 5.}, {1., 1.}, {1., 1.}})));
  const Tensor saved = exp(leaf), loss = saved.sum();
  saved.index_put_({index({1})}, 0);
  CHECK_THROWS_AS(loss.backward(), AutogradError);
}
