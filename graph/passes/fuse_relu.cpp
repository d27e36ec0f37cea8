// Merges a convolution or a normalisation and the ReLU after it into one call, for nets that do not use the fused
// layers (nn::ConvReLU2d, nn::BNReLU2d). In the backward pass, merges the gradient of a ReLU, which multiplies dy by
// the mask y > 0, with the gradient of the convolution or normalisation.
#include <algorithm>

#include <gradus/core/op_lists.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/graph/recorded_call.h>

namespace gradus::graph {
namespace {

using Relu = detail::RecordedCall<UnaryOp, const View&, const MutableView&, const UnaryArgs&>;
using ReluBackward = detail::RecordedCall<UnaryOp, const View&, const View&, const MutableView&, const UnaryArgs&>;

/// Makes a call of the method of `one`, with the arguments `args`, that replaces the calls `one` and `other`. Each
/// operand of the new call is a copy of the operand of `one` or `other` that has the same address and layout.
template <class Args>
std::unique_ptr<Call> merged(const Args& args, detail::RecordedCall<const Args&>& one, Call& other) {
  std::unique_ptr<Call> call = detail::make_call(one.method(), args);
  call->name = one.name, call->origin = one.origin, call->number = one.number;
  for_each_operand(args, [&](const auto& view) {
    const Operand* found = nullptr;
    for (Call* from : {static_cast<Call*>(&one), &other}) {
      auto operand = from->operands.begin();
      for_each_view(*from, [&](const auto& before, bool) {
        if (!found && before.data == view.data && is_same(operand->layout, view)) found = &*operand;
        ++operand;
      });
    }
    call->operands.push_back(*found);
    call->operands.back().is_written = std::is_same_v<decltype(view), const MutableView&>;
  });
  return call;
}

/// Takes the calls out of a graph, merges some of them and gives the calls back.
class Fusion {
 public:
  explicit Fusion(Graph& graph) : graph_(graph), inner_(graph.inner()), calls_(graph.take_calls()) {}
  void run() {
    for (size_t i = 0; i < calls_.size(); ++i)
      if (const auto* const relu = relu_at<Relu>(i, &Backend::unary)) fuse_forward(i, *relu);
      else if (const auto* const mask = relu_at<ReluBackward>(i, &Backend::unary_backward)) fuse_backward(i, *mask);
    std::erase(calls_, nullptr);
    graph_.set_calls(std::move(calls_));
  }

 private:
  template <class Recorded>
  const Recorded* relu_at(size_t i, typename Recorded::Method method) const {
    const auto* const call = dynamic_cast<const Recorded*>(calls_[i].get());
    return call && call->method() == method && std::get<0>(call->arguments()) == UnaryOp::relu ? call : nullptr;
  }
  bool uses(size_t call, int buffer, bool writes = false) const {
    return calls_[call] &&
           std::any_of(calls_[call]->operands.begin(), calls_[call]->operands.end(),
                       [&](const Operand& one) { return one.buffer == buffer && (one.is_written || !writes); });
  }
  std::vector<size_t> users_of(int buffer) const {
    std::vector<size_t> users;
    for (size_t i = 0; i < calls_.size(); ++i)
      if (uses(i, buffer)) users.push_back(i);
    return users;
  }
  bool is_inner(int buffer) const { return buffer >= 0 && inner_[static_cast<size_t>(buffer)]; }

  /// Merges call `at` into call `into` if `into` has arguments of type Args and edit() can change them so that it also
  /// computes what `at` computes. edit() returns false if it cannot.
  template <class Args, class Edit>
  void fuse(size_t into, size_t at, const Edit& edit) {
    auto* const recorded = dynamic_cast<detail::RecordedCall<const Args&>*>(calls_[into].get());
    if (!recorded) return;
    Args fused = std::get<0>(recorded->arguments());
    if (!edit(fused)) return;
    calls_[into] = merged(fused, *recorded, *calls_[at]);
    calls_[at] = nullptr;
  }

  /// If call `at`, a ReLU, is the only reader of a call's result, makes this call compute the ReLU as well.
  void fuse_forward(size_t at, const Relu& relu) {
    const View& x = std::get<1>(relu.arguments());
    const MutableView& y = std::get<2>(relu.arguments());
    if (!is_inner(relu.operands[0].buffer) || !is_same(x, y)) return;
    const std::vector<size_t> users = users_of(relu.operands[0].buffer);
    const auto place = std::ranges::find(users, at);
    const size_t writer = *std::prev(place);  // there is one, because a buffer of the step is written before it is read
    if (x.data != y.data && (place + 1 != users.end() || users_of(relu.operands[1].buffer)[0] != at)) return;
    const auto add_relu = [&](auto& args) {
      if (args.y.data != x.data || !is_same(args.y, x)) return false;
      args.relu = true, args.y = y;
      return true;
    };
    fuse<Conv2dArgs>(writer, at, add_relu);
    fuse<NormalizeArgs>(writer, at, add_relu);
  }

  /// If a single call reads the gradient that call `at`, the backward pass of a ReLU, writes, makes this call apply the
  /// mask of the ReLU as well.
  void fuse_backward(size_t at, const ReluBackward& mask) {
    const View &dy = std::get<1>(mask.arguments()), &saved = std::get<2>(mask.arguments());
    const MutableView& dx = std::get<3>(mask.arguments());
    if (!is_inner(mask.operands[2].buffer) || !is_same(dy, dx) || !is_same(saved, dx)) return;
    const std::vector<size_t> users = users_of(mask.operands[2].buffer);
    if (users.size() != 2) return;
    const size_t reader = users[1];
    for (size_t i = at + 1; i <= reader; ++i)
      if (uses(i, mask.operands[0].buffer, true) || uses(i, mask.operands[1].buffer, true)) return;
    const auto add_mask = [&](auto& args) {
      if (args.y || args.dy.data != dx.data || !is_same(args.dy, dx)) return false;
      args.dy = dy, args.y = saved;
      return true;
    };
    fuse<Conv2dBackwardArgs>(reader, at, add_mask);
    fuse<NormalizeBackwardArgs>(reader, at, add_mask);
  }

  Graph& graph_;
  const std::vector<bool> inner_;
  Calls calls_;
};

}  // namespace

void fuse_relu(Graph& graph) { Fusion(graph).run(); }

}  // namespace gradus::graph
