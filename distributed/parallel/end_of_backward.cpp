#include <gradus/distributed/parallel/end_of_backward.h>

#include <utility>

#include <gradus/autograd/autograd.h>

namespace gradus::dist {
namespace {

class Pass {
 public:
  Pass(std::shared_ptr<ProcessGroup> group, Device device, std::function<void()> finish, std::function<void()> cancel)
      : group_(std::move(group)), device_(device), finish_(std::move(finish)), cancel_(std::move(cancel)) {}
  ~Pass() {
    if (finished_) return;
    cancel_();
    if (runtime(device_.type()).capturing()) return;
    group_->abort("its backward pass ended by an exception");
  }
  void finish() {
    finish_();
    finished_ = true;
  }

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const Device device_;
  const std::function<void()> finish_, cancel_;
  bool finished_ = false;
};

}  // namespace

void at_end_of_backward(const std::shared_ptr<ProcessGroup>& group, Device device, std::function<void()> finish,
                        std::function<void()> cancel) {
  const auto pass = std::make_shared<Pass>(group, device, std::move(finish), std::move(cancel));
  autograd::queue_callback([pass] { pass->finish(); });
}

}  // namespace gradus::dist
