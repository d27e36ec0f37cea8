// Of every exercise: the stub fails at its first hole, the solution passes, and wrong answers are told what is wrong.
#include "answers.h"
#include "exercise.h"

namespace {

/// What went wrong with an answer; empty if nothing did.
std::string problem_with(const exercise::Answer& answer) {
  try {
    answer.check();
    return answer.name == "solution" ? "" : "it passes";
  } catch (const exercise::Todo& hole) {
    return answer.name == "stub" ? "" : std::string("it has a hole: ") + hole.what();
  } catch (const std::exception& error) {
    if (answer.name == "solution" || answer.name == "stub") return error.what();
    if (std::string(error.what()).find(answer.says) != std::string::npos) return "";
    return "expected '" + answer.says + "', got '" + error.what() + "'";
  }
}

}  // namespace

int main() {
  int wrong = 0;
  for (const exercise::Answer& answer : exercise::Answer::all()) {
    const std::string problem = problem_with(answer);
    if (problem.empty()) continue;
    std::cout << answer.exercise << "/" << answer.name << ": " << problem << "\n";
    ++wrong;
  }
  std::cout << exercise::Answer::all().size() << " answers, " << wrong << " not as they should be\n";
  return wrong == 0 && !exercise::Answer::all().empty() ? 0 : 1;
}
