// Locks for state that several backward passes may access at once: the gradient and the hooks of a leaf, and the hooks
// of a node.
#pragma once

#include <mutex>

namespace gradus::detail {

/// Locks a node or a leaf's AutogradMeta until the end of the scope. Objects have no mutex of their own: a fixed pool
/// of mutexes serves all objects, so two objects may share a mutex. A thread that holds this lock must not lock a
/// second object, call a user's function or destroy a part of a graph.
class ObjectLock {
 public:
  explicit ObjectLock(const void* object);

 private:
  const std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace gradus::detail
