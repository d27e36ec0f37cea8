// Tests every exercise: the stub must fail at its first hole, the solution must pass, and the check must say what is
// wrong with each wrong answer. Each answer runs in a separate process, because wrong answers may crash or hang, and
// some answers start processes.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "answers.h"
#include "require.h"

namespace {

constexpr unsigned kSeconds = 120;  // time limit for an answer
enum Outcome { kRight, kNotAsItShouldBe, kSkipped };

/// Returns what is wrong with the check's result for this answer, or "" if it is right.
std::string problem_with(const exercise::Answer& answer) {
  try {
    answer.check();
    return answer.name == "solution" ? "" : "it passes";
  } catch (const exercise::Todo& hole) {
    return answer.name == "stub" ? "" : std::string("it has a hole: ") + hole.what();
  } catch (const exercise::Missing&) { throw; } catch (const std::exception& error) {
    if (answer.name == "solution" || answer.name == "stub") return error.what();
    if (std::string(error.what()).find(answer.says) != std::string::npos) return "";
    return "expected '" + answer.says + "', got '" + error.what() + "'";
  }
}

/// Checks an answer in a child process. If the result is wrong, the child prints why.
int outcome_of(const exercise::Answer& answer) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSeconds);
    int outcome = kRight;
    try {
      const std::string problem = problem_with(answer);
      if (!problem.empty()) outcome = kNotAsItShouldBe;
      if (!problem.empty()) std::cout << answer.exercise << "/" << answer.name << ": " << problem << std::endl;
    } catch (const exercise::Missing& missing) {
      outcome = kSkipped;
      std::cout << "skipped for want of " << missing.what() << std::endl;
    }
    _exit(outcome);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    std::cout << answer.exercise << "/" << answer.name << ": signal " << WTERMSIG(status) << std::endl;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kNotAsItShouldBe;
}

}  // namespace

int main() {
  const std::vector<exercise::Answer>& answers = exercise::Answer::all();
  std::vector<int> outcomes(answers.size());
  std::transform(answers.begin(), answers.end(), outcomes.begin(), outcome_of);
  const auto right = std::count(outcomes.begin(), outcomes.end(), kRight),
             skipped = std::count(outcomes.begin(), outcomes.end(), kSkipped),
             wrong = std::ssize(answers) - right - skipped;
  std::cout << "cases: " << right << " passed, " << wrong << " failed, " << skipped << " skipped\n";
  return !answers.empty() && wrong == 0 ? 0 : 1;
}
