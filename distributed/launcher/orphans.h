// Processes that nobody waits for any more.
#pragma once

#include <sys/types.h>

#include <set>

namespace gradus::dist {

/// What the processes of a job start in sessions of their own (setsid) and leave behind. From the construction of this
/// object on such a process becomes a child of this one, not of init, when its parent ends (PR_SET_CHILD_SUBREAPER).
class Orphans {
 public:
  /// The children that this process has now, of whoever called exec, do not count.
  Orphans();

  /// A child of this process, of whatever kind, has been waited for: its number may soon be another's.
  void forget(pid_t child) { others_.erase(child); }
  /// Kills the children of this process; false if there are none. When they have died, their children are orphans too.
  bool kill_all() const;

 private:
  std::set<pid_t> others_;
};

}  // namespace gradus::dist
