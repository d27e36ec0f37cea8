// The answers to all exercises that the tests know: stubs, solutions and wrong ones.
#pragma once

#include <string>
#include <vector>

namespace exercise {

struct Answer {
  std::string exercise, name;  ///< "01_scalar_engine", "solution"
  void (*check)();
  std::string says;  ///< part of what the check must say of a wrong one

  static std::vector<Answer>& all() {
    static std::vector<Answer> answers;
    return answers;
  }
  struct Add {
    explicit Add(const Answer& answer) { all().push_back(answer); }
  };
};

}  // namespace exercise
