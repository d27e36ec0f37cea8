// 1. Tensors: arrays of numbers with a shape.
//
// Read the examples in the order of their numbers. Names and rules are those of PyTorch.
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

int main() {
  // Makes a tensor of given numbers, with braces around each row. Integers give an int64 tensor, other numbers a
  // float32 tensor.
  const Tensor a = tensor({{1., 2., 3.}, {4., 5., 6.}});  // (2, 3)
  std::cout << "a =\n" << a << "\n\n";

  // Makes a tensor of random numbers. The same seed gives the same numbers on every machine and every backend.
  manual_seed(0);
  const Tensor b = randn({2, 3}), c = zeros({2, 3}, kDouble), d = arange(6);
  std::cout << "random " << b.sizes() << ", zeros of " << c.dtype() << ", a range of " << d.dtype() << "\n\n";

  // Arithmetic works element by element. Shapes may differ if they can be broadcast: a row of 3 elements is added to
  // every row of a.
  const Tensor row = tensor({10., 20., 30.});  // (3)
  std::cout << "a + row =\n" << a + row << "\n\n";

  // A matrix product, a sum over all elements, and a sum along one dimension.
  std::cout << "a times its transpose =\n" << a.matmul(a.t()) << "\n\n";
  std::cout << "sum " << a.sum().item<float>() << ", of columns " << a.sum({0}).sizes() << ", mean "
            << a.mean().item<float>() << "\n\n";

  // Indexing returns a view, which shares memory with a: writing to the view changes a.
  const Tensor last_column = a.index({Slice(), -1});  // (2)
  last_column.fill_(0);
  std::cout << "a without its last column =\n" << a << "\n\n";
  std::cout << "as three rows =\n" << a.reshape({3, 2}) << "\n\n";

  // A Tensor is a handle: copying it does not copy the numbers, but clone() does.
  const Tensor same = a, copy = a.clone();
  a.zero_();
  std::cout << "the handle sees the change: " << same.sum().item<float>()
            << "; the clone does not: " << copy.sum().item<float>() << "\n\n";

  // An error message names the operator, the shapes that do not fit, and the line of the program.
  try {
    std::cout << a + zeros({4});
  } catch (const ShapeError& error) { std::cout << error.what() << '\n'; }
}
