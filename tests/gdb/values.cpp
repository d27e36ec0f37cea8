// A program for gdb to stop in: gdb_test.py prints the variables of main() with the printers of scripts/gdb/gradus.py.
#include <cstring>

#include <gradus/autograd/node.h>
#include <gradus/gradus.h>

using namespace gradus;

extern "C" __attribute__((noinline)) void all_values_are_made() { asm volatile(""); }

int main() {
  const Shape shape{2, 3};
  const Shape no_dimensions;
  [[maybe_unused]] const Device cpu, second_gpu("cuda:1");
  [[maybe_unused]] const DType dtype = DType::bf16;
  [[maybe_unused]] const Half half(1.5f);
  [[maybe_unused]] const BFloat16 bfloat16(-0.25f);

  const Tensor undefined;
  const Tensor scalar = tensor(2.5);
  const Tensor matrix = arange(6, kFloat).view({2, 3});
  const Tensor transposed = matrix.transpose(0, 1);
  const Tensor row = matrix.select(0, 1);
  const Tensor empty = zeros({0, 3});
  const Tensor integers = matrix.to(kLong);
  const Tensor bits = matrix > 2;
  const Tensor halves = matrix.to(kHalf) / 2, bfloat16s = matrix.to(kBFloat16) / 2;
  const Tensor doubles = matrix.to(kDouble) / 10;
  const Tensor many = arange(1000);
  const Tensor leaf = zeros({2}).requires_grad_();
  const Tensor result = leaf * 2;
  const Array array = matrix.array();

  alignas(Shape) unsigned char bytes[sizeof(Shape)];
  std::memset(bytes, 0xff, sizeof bytes);
  const Shape* const not_made = reinterpret_cast<const Shape*>(bytes);

  all_values_are_made();
  // Uses what a Tensor points to, so that its debug information is there even if the library has none.
  return not_made != nullptr && leaf.impl()->meta->requires_grad ? 0 : 1;
}
