// Ends processes that ranks have left behind.
#pragma once

#include <sys/types.h>

#include <set>

namespace gradus::dist {

/// The processes that a job starts in sessions of their own (setsid) and leaves behind. After the construction of this
/// object, such a process becomes a child of this one, not of init, when its parent ends (PR_SET_CHILD_SUBREAPER).
class Orphans {
 public:
  /// Children that this process has already, from the program that called exec, do not count.
  Orphans();

  /// Call this when any child of this process has been waited for, because its number may soon be reused.
  void forget(pid_t child) { others_.erase(child); }
  /// Kills the orphans. Returns false if there are none. When they have died, their children become orphans too.
  bool kill_all() const;

 private:
  std::set<pid_t> others_;
};

}  // namespace gradus::dist
