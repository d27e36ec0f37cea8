// Writes the pages that lab_test.py opens in a browser, and what they must show.
//
// usage: lab_pages FOLDER
#include <cmath>
#include <fstream>

#include <gradus/distributed/comm/local/local_group.h>
#include <gradus/gradus.h>
#include <gradus/inspect/lab/lab.h>

using namespace gradus;
using training::LabRecording;

namespace {

void print(std::ostream& out, const char* name, const Tensor& x) {
  const Tensor flat = x.detach().reshape(-1);
  out << name << '\t';
  for (int64_t i = 0; i < flat.numel(); ++i) out << flat[i].item<float>() << ' ';
  out << '\n';
}

// A step that changes nothing, with the numbers that its arrays must have.
void write_step(const std::string& folder) {
  manual_seed(3);
  nn::Sequential net(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 2));
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0));
  const Tensor x = randn({2, 3}), target = zeros({2}, kLong);
  const auto step = [&] {
    sgd.zero_grad();
    cross_entropy(net->forward(x), target).backward();
    sgd.step();
  };
  write_lab(training::record_lab(step, net.ptr().get()), folder + "/step.html", "A net & its step");
  std::ofstream expected(folder + "/expected.txt");
  expected.precision(9);
  print(expected, "x", x);
  print(expected, "logits", net->forward(x));
  print(expected, "loss", cross_entropy(net->forward(x), target));
  for (const auto& item : net->named_parameters()) {
    print(expected, item.key().c_str(), item.value());
    print(expected, ("gradient of " + item.key()).c_str(), item.value().grad());
  }
}

/// Each part of x, of one element for each rank, goes round twice: as partial sums, then as the sum.
void ring_all_reduce(dist::ProcessGroup& group, const Tensor& x) {
  const int n = group.size(), rank = group.rank();
  const auto part = [&](int i) { return x.slice(0, (i + 2 * n) % n, (i + 2 * n) % n + 1); };
  for (int step = 0; step < 2 * n - 2; ++step) {
    const Tensor arrived = empty({1});
    group.send(part(rank - step).array(), (rank + 1) % n);
    group.recv(arrived.array(), (rank + n - 1) % n);
    const Tensor mine = part(rank - step - 1);
    if (step < n - 1) mine.add_(arrived);
    else mine.copy_(arrived);
  }
}

void write_messages(const std::string& path, std::vector<dist::LocalFault> script) {
  const auto ring = [](dist::ProcessGroup& group) {
    ring_all_reduce(group, full({4}, std::pow(10.f, static_cast<float>(group.rank()))));
  };
  write_lab(dist::record_messages(4, ring, std::move(script)), path, "A ring all-reduce of four ranks");
}

/// Calls that nobody made.
LabRecording invented(size_t calls, const std::string& name) {
  LabRecording recording;
  recording.explanation.notes = {name};
  recording.blocks = {{name, "", "", 4, 0, 0}, {"", name, name, 1000, 1, calls + 1}};
  recording.last_tick = calls + 1;
  for (size_t i = 0; i < calls; ++i) {
    training::Explanation::Call& call = recording.explanation.calls.emplace_back();
    call.name = name, call.op = "op" + std::to_string(i), call.origin = {name, name, {name.c_str(), 7}};
    call.backward = i > calls / 2, call.seconds = 1e-6;
    if (i > 0) call.inputs = {i - 1};
    recording.calls.push_back(
        {{{name, 0, DType::f32, {2}, false, "1 " + std::to_string(i)}, {name, 1, DType::f32, {}, true, ""}}, i});
    if (i < calls / 2) recording.saved.push_back({i, 1, {2}, name, 5});
  }
  return recording;
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  write_step(folder);
  write_messages(folder + "/ring.html", {});
  write_messages(folder + "/death.html", {{.rank = 2, .sequence = 3}});
  write_lab(dist::MessageLog(), folder + "/silence.html");
  write_lab(LabRecording(), folder + "/empty.html");
  write_lab(invented(100'000, "relu"), folder + "/huge.html");
  write_lab(invented(1'000'000, "a name of some length, as those of modules are"), folder + "/too_large.html");
  const std::string hostile =
      "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">'\"&\x80<!--";
  write_lab(invented(4, hostile), folder + "/hostile.html", hostile);
}
