// The answers to all exercises for the tests: stubs, solutions and wrong answers.
#pragma once

#include <string>
#include <vector>

namespace exercise {

struct Answer {
  std::string exercise, name;  ///< "01_scalar_engine", "solution"
  void (*check)();
  std::string says;  ///< part of the message that the check must have for a wrong answer

  static std::vector<Answer>& all() {
    static std::vector<Answer> answers;
    return answers;
  }
  struct Add {
    explicit Add(const Answer& answer) { all().push_back(answer); }
  };
};

}  // namespace exercise
