// Of every exercise: the stub fails at its first hole, the solution passes, and wrong answers are told what is wrong.
// Each answer runs in a process of its own: wrong ones may crash or hang, and some start processes themselves.
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"
#include "exercise.h"

namespace {

constexpr unsigned kSeconds = 120;  // that an answer may take

/// What is not as it should be; empty if nothing is.
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

/// Whether the answer is as it should be; the child says so if not.
bool passes(const exercise::Answer& answer) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSeconds);
    const std::string problem = problem_with(answer);
    if (!problem.empty()) std::cout << answer.exercise << "/" << answer.name << ": " << problem << std::endl;
    _exit(problem.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    std::cout << answer.exercise << "/" << answer.name << ": signal " << WTERMSIG(status) << std::endl;
  return status == 0;
}

}  // namespace

int main() {
  const std::vector<exercise::Answer>& answers = exercise::Answer::all();
  const auto right = std::count_if(answers.begin(), answers.end(), passes);
  std::cout << right << " of " << answers.size() << " answers are as they should be\n";
  return right > 0 && right == std::ssize(answers) ? 0 : 1;
}
