// 1. Tensors: numbers in a block with a shape.
//
// The examples are numbered in the order in which they are best read. Names and rules are those of PyTorch.
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

int main() {
  // From numbers. Rows in braces; the type follows from what is written: integers are int64, others float32.
  const Tensor a = tensor({{1., 2., 3.}, {4., 5., 6.}});  // (2, 3)
  std::cout << "a =\n" << a << "\n\n";

  // From nothing. The same seed gives the same random numbers on every machine and every backend.
  manual_seed(0);
  const Tensor b = randn({2, 3}), c = zeros({2, 3}, kDouble), d = arange(6);
  std::cout << "random " << b.sizes() << ", zeros of " << c.dtype() << ", a range of " << d.dtype() << "\n\n";

  // Arithmetic goes element by element. Shapes need not be the same, only fit: a row of 3 is added to every row of a.
  const Tensor row = tensor({10., 20., 30.});  // (3)
  std::cout << "a + row =\n" << a + row << "\n\n";

  // A matrix product; sums over everything and along one dimension.
  std::cout << "a times its transpose =\n" << a.matmul(a.t()) << "\n\n";
  std::cout << "sum " << a.sum().item<float>() << ", of columns " << a.sum({0}).sizes() << ", mean "
            << a.mean().item<float>() << "\n\n";

  // Pieces. A view shares memory with what it was cut from: writing it writes a.
  const Tensor last_column = a.index({Slice(), -1});  // (2)
  last_column.fill_(0);
  std::cout << "a without its last column =\n" << a << "\n\n";
  std::cout << "as three rows =\n" << a.reshape({3, 2}) << "\n\n";

  // A Tensor is a handle: copying it copies no numbers. clone() does.
  const Tensor same = a, copy = a.clone();
  a.zero_();
  std::cout << "the handle sees the change: " << same.sum().item<float>()
            << "; the clone does not: " << copy.sum().item<float>() << "\n\n";

  // A mistake says who found it, what disagrees, and where it was written.
  try {
    std::cout << a + zeros({4});
  } catch (const ShapeError& error) { std::cout << error.what() << '\n'; }
}
