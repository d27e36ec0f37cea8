#include <gradus/backends/naive/naive.h>

#include "../common/exercise.h"

/// Naive, and how many products it was left.
class Counting : public gradus::NaiveBackend {
 public:
  void matmul(const gradus::View& a, const gradus::View& b, const gradus::MutableView& y, bool accumulate) override {
    ++products_of_naive;
    NaiveBackend::matmul(a, b, y, accumulate);
  }
  int products_of_naive = 0;
};

class MyBackend : public Counting {
 public:
  std::string_view name() const override { todo("name: any but those of gradus::backend_names()"); }

  /// y = a b, or y += a b with accumulate: a (M, K), b (K, N), y (M, N), or with further dimensions in front. Float32
  /// matrices are multiplied here, all else is left to Counting::matmul.
  void matmul(const gradus::View& a, const gradus::View& b, const gradus::MutableView& y, bool accumulate) override {
    todo("matmul: loops over a.shape[0], b.shape[1] and a.shape[1]");
  }
};
