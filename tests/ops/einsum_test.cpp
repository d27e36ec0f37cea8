// einsum of random equations against the sum over all indices that it stands for.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/diagnosis.h>
#include <gradus/tests/catch.h>

namespace einsum_test {

using namespace gradus;

/// An equation whose terms have the digits 0, 1, … for the dimensions of their ellipsis, and its operands.
struct Problem {
  std::vector<std::string> terms;
  std::string output;
  TensorList operands;
  std::map<char, int64_t> sizes;  // of each label
};

// "a01b" as einsum reads it: "a...b".
std::string spelled(const std::string& term) {
  std::string text;
  for (const char label : term)
    if (label < '0' || label > '9') text += label;
    else if (text.find('.') == std::string::npos) text += "...";
  return text;
}

Tensor summed(const Problem& problem) {
  std::string labels;
  for (const auto& size : problem.sizes) labels += size.first;
  Shape shape;
  for (const char label : problem.output) shape.push_back(problem.sizes.at(label));
  const Tensor y = zeros(shape, kDouble);
  int64_t combinations = 1;
  for (const auto& size : problem.sizes) combinations *= size.second;
  for (int64_t count = 0; count < combinations; ++count) {
    std::map<char, int64_t> at;
    int64_t rest = count;
    for (const char label : labels) at[label] = rest % problem.sizes.at(label), rest /= problem.sizes.at(label);
    double product = 1;
    for (size_t i = 0; i < problem.terms.size(); ++i) {
      const Tensor& x = problem.operands[i];
      int64_t place = 0;
      for (size_t k = 0; k < problem.terms[i].size(); ++k)
        if (x.size(static_cast<int64_t>(k)) > 1) place += at[problem.terms[i][k]] * x.stride(static_cast<int64_t>(k));
      product *= x.data_ptr<double>()[place];
    }
    int64_t to = 0;
    for (const char label : problem.output) to = to * problem.sizes.at(label) + at[label];
    y.data_ptr<double>()[to] += product;
  }
  return y;
}

TEST_CASE("einsum sums products over all indices that the result does not have") {
  uint32_t state = 9;
  const auto draw = [&](uint32_t n) { return state = state * 1664525u + 1013904223u, (state >> 16) % n; };
  const std::string letters = "abcdE";
  const int64_t sizes[] = {2, 3, 4, 5, 2};
  int differentiated = 0;
  for (int round = 0; round < 300; ++round) {
    Problem problem;
    const uint32_t dots = draw(3) == 0 ? 1 + draw(2) : 0;  // dimensions of the ellipsis
    std::map<char, bool> is_one;                           // labels of which some operand has size 1
    for (uint32_t count = 1 + draw(3); count > 0; --count) {
      std::string term;
      for (uint32_t left = draw(4); left > 0; --left) term += letters[draw(5)];
      // An ellipsis may stand for fewer dimensions, which are the last ones.
      const uint32_t own = dots == 0 ? 0 : draw(dots + 1);
      const size_t where = term.empty() ? 0 : draw(static_cast<uint32_t>(term.size()) + 1);
      if (dots > 0 && (own > 0 || draw(2) == 0)) {
        std::string ellipsis;
        for (uint32_t i = dots - own; i < dots; ++i) ellipsis += static_cast<char>('0' + i);
        term.insert(where, ellipsis);
      }
      problem.terms.push_back(term);
    }
    for (const std::string& term : problem.terms)
      for (const char label : term)
        problem.sizes[label] = label <= '9' ? 2 + (label - '0') : sizes[letters.find(label)];
    for (const std::string& term : problem.terms) {
      Shape shape;
      std::map<char, int64_t> of_term;  // equal labels of a term have one size
      for (const char label : term) {
        const bool shrinks = draw(6) == 0 && problem.terms.size() > 1;
        of_term.emplace(label, shrinks ? 1 : problem.sizes.at(label));
        shape.push_back(of_term.at(label));
      }
      const Tensor x = (arange(1, 1 + numel_of(shape), kDouble) * (1.1 + round)).sin().reshape(shape);
      problem.operands.push_back(x.requires_grad_(true));
    }
    // A label that has size 1 in all operands has size 1.
    for (auto& size : problem.sizes) {
      int64_t largest = 1;
      for (size_t i = 0; i < problem.terms.size(); ++i)
        for (size_t k = 0; k < problem.terms[i].size(); ++k)
          if (problem.terms[i][k] == size.first)
            largest = std::max(largest, problem.operands[i].size(static_cast<int64_t>(k)));
      size.second = largest;
    }
    std::string equation, used;
    for (size_t i = 0; i < problem.terms.size(); ++i) equation += (i > 0 ? "," : "") + spelled(problem.terms[i]);
    for (const auto& size : problem.sizes) used += size.first;
    std::string digits, others;
    for (const char label : used) (label <= '9' ? digits : others) += label;
    std::string all;
    for (const std::string& term : problem.terms) all += term;
    if (draw(3) == 0) {  // an implicit result: the ellipsis, then the letters that occur once, in order
      problem.output = digits;
      for (const char label : others)
        if (std::ranges::count(all, label) == 1) problem.output += label;
    } else {
      for (const char label : others)
        if (draw(2) == 0)
          problem.output.insert(problem.output.empty() ? 0 : draw(static_cast<uint32_t>(problem.output.size()) + 1), 1,
                                label);
      std::string spelled_output = problem.output;
      if (!digits.empty()) {
        const size_t where = draw(static_cast<uint32_t>(problem.output.size()) + 1);
        problem.output.insert(where, digits);
        spelled_output.insert(where, "...");
      }
      equation += (draw(2) == 0 ? "->" : " -> ") + spelled_output;
    }
    if (problem.terms.size() == 1 && problem.terms[0].empty()) continue;
    INFO(equation);
    const Tensor y = einsum(equation, problem.operands), wanted = summed(problem);
    REQUIRE(y.sizes() == wanted.sizes());
    CHECK(y.detach().allclose(wanted, 1e-10, 1e-10));
    int64_t elements = 0;
    for (const Tensor& x : problem.operands) elements += x.numel();
    if (round % 4 != 0 || elements > 60) continue;
    ++differentiated;
    const auto run = [&](const TensorList& x) { return TensorList{einsum(equation, x)}; };
    CHECK(autograd::gradcheck(run, problem.operands, 1e-6, 1e-6, 1e-5, false));
  }
  CHECK(differentiated > 20);
}

}  // namespace einsum_test
