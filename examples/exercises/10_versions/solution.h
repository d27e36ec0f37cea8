#include "../common/exercise.h"

using gradus::Tensor;

enum Answer { fine, raises };

struct Program {
  const char* text;
  void (*run)(Tensor x);  // x of shape (3), a leaf that requires gradients
};

inline const Program programs[] = {
    {"1: a leaf is written", [](Tensor x) { x.add_(1); }},
    {"2: a leaf is written under NoGradGuard",
     [](Tensor x) {
       const gradus::NoGradGuard guard;
       x.add_(1);
     }},
    {"3: what square was given is written",
     [](Tensor x) {
       Tensor y = x * 2, z = y.square();
       y.add_(1);
       z.sum().backward();
     }},
    {"4: what exp was given is written",
     [](Tensor x) {
       Tensor y = x * 2, z = y.exp();
       y.add_(1);
       z.sum().backward();
     }},
    {"5: what exp returned is written",
     [](Tensor x) {
       Tensor z = x.exp();
       z.add_(1);
       z.sum().backward();
     }},
    {"6: what a sum was given is written",
     [](Tensor x) {
       Tensor y = x * 2, z = y + 1;
       y.mul_(3);
       z.sum().backward();
     }},
    {"7: backward runs twice",
     [](Tensor x) {
       Tensor z = x.square().sum();
       z.backward();
       z.backward();
     }},
    {"8: a view is written, before square is called",
     [](Tensor x) {
       Tensor y = x * 2;
       y.select(0, 0).fill_(5);
       y.square().sum().backward();
     }},
    {"9: a view is written, after square was called",
     [](Tensor x) {
       Tensor y = x * 2, z = y.square();
       y.select(0, 0).fill_(5);
       z.sum().backward();
     }},
    {"10: a detached tensor is written, after square was called",
     [](Tensor x) {
       Tensor y = x * 2, z = y.square();
       y.detach().fill_(5);
       z.sum().backward();
     }},
};

/// Returns the answer for each program, in order.
inline std::array<Answer, 10> answers() {
  // [hole] answers: is each of the ten programs fine, or does it raise? return {fine, raises, …};
  return {
      raises,  // 1
      fine,    // 2
      raises,  // 3
      fine,    // 4
      raises,  // 5
      fine,    // 6
      raises,  // 7
      fine,    // 8
      raises,  // 9
      raises,  // 10
  };
  // [end]
}
