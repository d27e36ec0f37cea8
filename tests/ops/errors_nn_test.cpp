// Wrong calls of convolution, pooling, resampling, padding, normalisation, losses and dropout.
#include "wrong_calls.h"

using namespace gradus;
using namespace gradus::op_testing;

// Tables: one call a line.
// clang-format off
TEST_CASE("wrong shapes of convolution, pooling, normalisation and losses are ShapeErrors") {
  check_calls<ShapeError>({
      {"conv1d", {"(2, 3, 4, 5)"}, [] { conv1d(f({2, 3, 4, 5}), f({4, 3, 3})); }},
      {"conv1d", {"(4, 3, 3, 3)"}, [] { conv1d(f({2, 3, 4}), f({4, 3, 3, 3})); }},
      {"conv1d", {"5", "3"}, [] { conv1d(f({2, 3, 8}), f({4, 5, 3})); }},
      {"conv_transpose2d", {"4", "(2, 3, 5, 5)"}, [] { conv_transpose2d(f({2, 3, 5, 5}), f({4, 3, 3, 3})); }},
      {"conv_transpose2d", {"(5,)", "(6,)"}, [] { conv_transpose2d(f({2, 3, 5, 5}), f({3, 6, 3, 3}), f({5})); }},
      {"conv_transpose2d", {"padding", "4"}, [] { conv_transpose2d(f({1, 1, 2, 2}), f({1, 1, 3, 3}), {}, 1, 4); }},
      {"conv_transpose2d", {"(3, 3)"}, [] { conv_transpose2d(f({3, 3}), f({1, 1, 3, 3})); }},
      {"conv_transpose1d", {"(3,)"}, [] { conv_transpose1d(f({3}), f({1, 1, 3})); }},
      {"avg_pool2d", {"(3, 3)"}, [] { avg_pool2d(f({3, 3}), 2); }},
      {"avg_pool2d", {"5", "(1, 1, 3, 3)"}, [] { avg_pool2d(f({1, 1, 3, 3}), 5); }},
      {"avg_pool1d", {"(1, 1, 3, 3)"}, [] { avg_pool1d(f({1, 1, 3, 3}), 2); }},
      {"max_pool1d", {"(1, 1, 3, 3)"}, [] { max_pool1d(f({1, 1, 3, 3}), 2); }},
      {"adaptive_avg_pool2d", {"(1, 2, 0, 3)"}, [] { adaptive_avg_pool2d(f({1, 2, 0, 3}), 2); }},
      {"adaptive_max_pool2d", {"(4, 4)"}, [] { adaptive_max_pool2d(f({4, 4}), 2); }},
      {"interpolate", {"bilinear", "(2, 3, 4)"}, [] { interpolate(f({2, 3, 4}), IntArrayRef{2}, {}, kBilinear); }},
      {"interpolate", {"linear", "(1, 2, 3, 4)"}, [] { interpolate(f({1, 2, 3, 4}), IntArrayRef{2}, {}, InterpolateMode::linear); }},
      {"interpolate", {"3", "(1, 2, 3, 4)"}, [] { interpolate(f({1, 2, 3, 4}), IntArrayRef{2, 2, 2}); }},
      {"interpolate", {"0", "(1, 2, 3, 4)"}, [] { interpolate(f({1, 2, 3, 4}), IntArrayRef{0, 2}); }},
      {"pad", {"(1, 2, 3)", "(2, 3)"}, [] { pad(f({2, 3}), {1, 2, 3}); }},
      {"pad", {"(1, 1, 1, 1)", "(3,)"}, [] { pad(f({3}), {1, 1, 1, 1}); }},
      {"pad", {"-4", "(2, 3)"}, [] { pad(f({2, 3}), {-4, 2}); }},
      {"pad", {"3", "(1, 2, 3)"}, [] { pad(f({1, 2, 3}), {3, 0}, kReflect); }},
      {"pad", {"4", "(1, 2, 3)"}, [] { pad(f({1, 2, 3}), {4, 0}, kCircular); }},
      {"pad", {"(1, 1)", "(3,)"}, [] { pad(f({3}), {1, 1}, kReflect); }},
      {"interpolate", {"too long"}, [] { interpolate(f({1, 1, 2, 2}), {}, std::vector<double>{1e9}); }},
      {"adaptive_avg_pool2d", {"too long"}, [] { adaptive_avg_pool2d(f({1, 1, 2, 2}), int64_t{1} << 40); }},
      {"pad", {"1099511627776"}, [] { pad(f({1, 1, 3}), {int64_t{1} << 40, 0}, kReplicate); }},
      {"unfold", {"(2, 3)"}, [] { unfold(f({2, 3}), 2); }},
      {"unfold", {"(5, 5)", "3 x 3"}, [] { unfold(f({1, 1, 3, 3}), 5); }},
      {"fold", {"(1, 5, 4)", "4"}, [] { fold(f({1, 5, 4}), 3, 2); }},
      {"fold", {"(1, 4, 5)", "2 x 2"}, [] { fold(f({1, 4, 5}), 3, 2); }},
      {"pixel_shuffle", {"(1, 3, 2, 2)", "4"}, [] { pixel_shuffle(f({1, 3, 2, 2}), 2); }},
      {"pixel_unshuffle", {"(1, 3, 3, 2)", "2"}, [] { pixel_unshuffle(f({1, 3, 3, 2}), 2); }},
      {"channel_shuffle", {"(1, 3, 2, 2)", "2"}, [] { channel_shuffle(f({1, 3, 2, 2}), 2); }},
      {"batch_norm", {"(3,)", "(2, 4)"}, [] { batch_norm(f({2, 4}), f({3}), f({4})); }},
      {"batch_norm", {"weight", "(3,)"}, [] { batch_norm(f({2, 4}), {}, {}, f({3}), {}, true); }},
      {"batch_norm", {"more than 1", "(1, 4)"}, [] { batch_norm(f({1, 4}), {}, {}, {}, {}, true); }},
      {"batch_norm", {"(4,)"}, [] { batch_norm(f({4}), {}, {}, {}, {}, true); }},
      {"layer_norm", {"(3,)", "(2, 4)"}, [] { layer_norm(f({2, 4}), {3}); }},
      {"layer_norm", {"weight", "(4,)", "(2, 4)"}, [] { layer_norm(f({2, 4}), {2, 4}, f({4})); }},
      {"group_norm", {"(2, 5, 3)", "2"}, [] { group_norm(f({2, 5, 3}), 2); }},
      {"group_norm", {"bias", "(3,)"}, [] { group_norm(f({2, 4, 3}), 2, {}, f({3})); }},
      {"instance_norm", {"(2, 3)"}, [] { instance_norm(f({2, 3})); }},
      {"local_response_norm", {"(2, 3)"}, [] { local_response_norm(f({2, 3}), 3); }},
      {"mse_loss", {"(2, 3)", "(4,)"}, [] { mse_loss(f({2, 3}), f({4})); }},
      {"l1_loss", {"(2, 3)", "(3, 2)"}, [] { l1_loss(f({2, 3}), f({3, 2})); }},
      {"smooth_l1_loss", {"(2,)", "(3,)"}, [] { smooth_l1_loss(f({2}), f({3})); }},
      {"huber_loss", {"(2,)", "(3,)"}, [] { huber_loss(f({2}), f({3})); }},
      {"binary_cross_entropy", {"(2, 3)", "(3,)"}, [] { binary_cross_entropy(f({2, 3}), f({3})); }},
      {"binary_cross_entropy_with_logits", {"(2, 3)", "(2, 1)"}, [] { binary_cross_entropy_with_logits(f({2, 3}), f({2, 1})); }},
      {"binary_cross_entropy_with_logits", {"pos_weight", "(2,)"}, [] { binary_cross_entropy_with_logits(f({2, 3}), f({2, 3}), {}, f({2})); }},
      {"kl_div", {"(2, 3)", "(4,)"}, [] { kl_div(f({2, 3}), f({4})); }},
      {"nll_loss", {"(2, 3, 4)", "(2, 3)"}, [] { nll_loss(f({2, 3, 4}), i({2, 3})); }},
      {"nll_loss", {"(2, 3)", "(2,)"}, [] { nll_loss(f({2, 3}), i({2}), f({2})); }},
      {"cross_entropy", {"(2, 3, 4, 5)", "(2, 5, 4)"}, [] { cross_entropy(f({2, 3, 4, 5}), i({2, 5, 4})); }},
      {"cross_entropy", {"(2, 3)", "(4,)"}, [] { cross_entropy(f({2, 3}), f({2, 3}), f({4})); }},
      {"margin_ranking_loss", {"(2,)", "(3,)"}, [] { margin_ranking_loss(f({2}), f({3}), f({2})); }},
      {"triplet_margin_loss", {"negative", "(2, 4)"}, [] { triplet_margin_loss(f({2, 3}), f({2, 3}), f({2, 4})); }},
      {"cosine_embedding_loss", {"(2, 3)", "(3,)"}, [] { cosine_embedding_loss(f({2, 3}), f({2, 3}), f({3})); }},
      {"multi_margin_loss", {"(2, 3)", "(3,)"}, [] { multi_margin_loss(f({2, 3}), i({3})); }},
      {"dropout2d", {"(3,)"}, [] { dropout2d(f({3})); }},
  });
}

TEST_CASE("wrong element types of pooling, normalisation and losses are DTypeErrors") {
  check_calls<DTypeError>({
      {"conv_transpose2d", {"float32", "float64"}, [] { conv_transpose2d(f({1, 1, 3, 3}), ones({1, 1, 3, 3}, kDouble)); }},
      {"avg_pool2d", {"int64"}, [] { avg_pool2d(i({1, 1, 4, 4}), 2); }},
      {"adaptive_avg_pool2d", {"int64"}, [] { adaptive_avg_pool2d(i({1, 1, 4, 4}), 2); }},
      {"interpolate", {"uint8"}, [] { interpolate(ones({1, 1, 4, 4}, kByte), IntArrayRef{2}); }},
      {"pad", {"int64"}, [] { pad(i({1, 1, 4}), {1, 1}, kReflect); }},
      {"batch_norm", {"int64"}, [] { batch_norm(i({2, 4}), {}, {}, {}, {}, true); }},
      {"batch_norm", {"float32", "float64"}, [] { batch_norm(f({2, 4}), {}, {}, ones({4}, kDouble), {}, true); }},
      {"layer_norm", {"float64", "float32"}, [] { layer_norm(ones({2, 4}, kDouble), {4}, f({4})); }},
      {"mse_loss", {"int64"}, [] { mse_loss(i({2}), i({2})); }},
      {"binary_cross_entropy", {"int64"}, [] { binary_cross_entropy(i({2}), i({2})); }},
      {"cross_entropy", {"int32"}, [] { cross_entropy(f({2, 3}), ones({2}, kInt)); }},
      {"alpha_dropout", {"int64"}, [] { alpha_dropout(i({3}), 0.5, true); }},
  });
}

TEST_CASE("wrong options of convolution, pooling, normalisation and losses are ValueErrors") {
  check_calls<ValueError>({
      {"conv2d", {"same", "2"}, [] { conv2d(f({1, 1, 4, 4}), f({1, 1, 3, 3}), {}, 2, kSame); }},
      {"conv_transpose2d", {"output_padding", "2"}, [] { conv_transpose2d(f({1, 1, 4, 4}), f({1, 1, 3, 3}), {}, 2, 0, 2); }},
      {"conv_transpose2d", {"stride", "0"}, [] { conv_transpose2d(f({1, 1, 4, 4}), f({1, 1, 3, 3}), {}, 0); }},
      {"avg_pool2d", {"kernel", "0"}, [] { avg_pool2d(f({1, 1, 4, 4}), 0); }},
      {"avg_pool2d", {"padding", "2"}, [] { avg_pool2d(f({1, 1, 4, 4}), 2, 2, 2); }},
      {"avg_pool2d", {"divisor"}, [] { avg_pool2d(f({1, 1, 4, 4}), 2, 2, 0, false, true, 0); }},
      {"adaptive_avg_pool2d", {"-1"}, [] { adaptive_avg_pool2d(f({1, 1, 4, 4}), -1); }},
      {"interpolate", {"either"}, [] { interpolate(f({1, 1, 4, 4}), {}); }},
      {"interpolate", {"both"}, [] { interpolate(f({1, 1, 4, 4}), IntArrayRef{2}, std::vector<double>{2}); }},
      {"interpolate", {"align_corners", "nearest"}, [] { interpolate(f({1, 1, 4, 4}), IntArrayRef{2}, {}, kNearest, true); }},
      {"interpolate", {"scale_factor", "-1"}, [] { interpolate(f({1, 1, 4, 4}), {}, std::vector<double>{-1}); }},
      {"unfold", {"stride", "0"}, [] { unfold(f({1, 1, 4, 4}), 2, 1, 0, 0); }},
      {"pixel_shuffle", {"0"}, [] { pixel_shuffle(f({1, 4, 2, 2}), 0); }},
      {"batch_norm", {"running_mean"}, [] { batch_norm(f({2, 4}), {}, {}); }},
      {"batch_norm", {"eps", "-1"}, [] { batch_norm(f({2, 4}), {}, {}, {}, {}, true, 0.1, -1); }},
      {"group_norm", {"0"}, [] { group_norm(f({2, 4}), 0); }},
      {"instance_norm", {"use_input_stats"}, [] { instance_norm(f({2, 4, 3}), {}, {}, {}, {}, false); }},
      {"smooth_l1_loss", {"-1"}, [] { smooth_l1_loss(f({2}), f({2}), Reduction::mean, -1); }},
      {"huber_loss", {"0"}, [] { huber_loss(f({2}), f({2}), Reduction::mean, 0); }},
      {"binary_cross_entropy", {"2", "between 0 and 1"}, [] { binary_cross_entropy(f({2}) * 2, f({2})); }},
      {"gaussian_nll_loss", {"-1"}, [] { gaussian_nll_loss(f({2}), f({2}), -f({2})); }},
      {"multi_margin_loss", {"3"}, [] { multi_margin_loss(f({2, 3}), i({2}), 3); }},
      {"cross_entropy", {"1.5"}, [] { cross_entropy(f({2, 3}), i({2}), {}, Reduction::mean, -100, 1.5); }},
      {"dropout2d", {"1.5"}, [] { dropout2d(f({2, 3}), 1.5); }},
      {"alpha_dropout", {"-1"}, [] { alpha_dropout(f({2, 3}), -1, true); }},
      {"dropout_", {"2"}, [] { dropout_(f({2, 3}), 2); }},
  });
}

TEST_CASE("classes that do not exist are IndexErrors in every form of cross-entropy") {
  check_calls<IndexError>({
      {"cross_entropy", {"7", "3"}, [] { cross_entropy(f({2, 3, 2}), full({2, 2}, 7)); }},
      {"cross_entropy", {"7", "3"}, [] { cross_entropy(f({2, 3}), full({2}, 7), {}, Reduction::mean, -100, 0.1); }},
      {"multi_margin_loss", {"-1", "3"}, [] { multi_margin_loss(f({2, 3}), full({2}, -1)); }},
  });
}
// clang-format on
