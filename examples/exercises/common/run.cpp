// Runs the check of one exercise and prints what is missing or wrong. CMake defines the exercise's folder and the
// answer to check.
#include <cstdlib>
#include <iostream>

#include EXERCISE_ANSWER
#include EXERCISE_CHECK

int main() {
  try {
    check();
    std::cout << "All right: the exercise is solved.\n";
    return 0;
  } catch (const exercise::Todo& hole) {
    std::cout << "Still to do: " << hole.what() << "\n";
  } catch (const exercise::Missing& missing) {
    std::cout << "Cannot be checked here for want of " << missing.what() << "\n";
  } catch (const exercise::Wrong& wrong) {
    std::cout << "Not yet: " << wrong.what() << "\n";
  } catch (const std::exception& error) {
    std::cout << "Not yet: the check got an exception: " << error.what() << "\n";
  }
  std::cout.flush();
  std::_Exit(1);  // because exit() would wait for a kernel that does not end
}
