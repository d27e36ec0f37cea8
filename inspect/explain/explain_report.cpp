// Formats explanations as text tables and as an HTML page.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include <explain_page.h>  // made by CMake of explain.html

#include <gradus/core/platform/file.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/inspect/explain/explain_parts.h>

namespace gradus::training {
namespace {

using detail::print_to;

/// The texts of a list's elements, one after the other.
template <class List, class F>
std::string text_of(const List& list, F text_of_element, const char* separator = "") {
  std::string text;
  for (const auto& element : list) text += (text.empty() ? "" : separator) + text_of_element(element);
  return text;
}

std::string joined(const std::vector<std::string>& names) { return text_of(names, std::identity(), ", "); }

std::string number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string figure_of(const Explanation::Proposal& proposal) {
  return proposal.bytes > 0 ? format_bytes(proposal.bytes) : number("%.3f ms", 1e3 * proposal.seconds);
}

/// Indices of the `rows` most costly kernels, in the order in which they ran.
std::vector<size_t> most_costly(const std::vector<Explanation::Kernel>& kernels, size_t rows) {
  std::vector<size_t> numbers(kernels.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  std::ranges::stable_sort(numbers, [&](size_t a, size_t b) { return kernels[a].seconds > kernels[b].seconds; });
  numbers.resize(std::min(rows, numbers.size()));
  std::ranges::sort(numbers);
  return numbers;
}

std::string summary_of(const Explanation& e) {
  std::string text;
  const double sum = e.kernel_seconds() + e.between_seconds;
  print_to(text, "a step: %.3f ms; %zu kernels: %.3f ms; between kernels: %.3f ms; sum: %.1f %% of the step\n",
           1e3 * e.step_seconds, e.kernels.size(), 1e3 * e.kernel_seconds(), 1e3 * e.between_seconds,
           100 * sum / e.step_seconds);
  print_to(text, "this machine: %.0f GFLOP/s", e.roofline.peak / 1e9);
  for (const Roofline::Level& level : e.roofline.levels)
    print_to(text, ", %.0f GB/s from %s", level.bandwidth / 1e9, format_bytes(level.bytes).c_str());
  return text + "\n";
}

using detail::escaped;

// ---- The page -------------------------------------------------------------------------------------------------------

/// A box of the drawing: consecutive calls of the forward pass that belong to the same layer, or to the same operator
/// outside layers.
struct Box {
  std::string key, title;
  Shape result;
  double forward = 0, backward = 0;
  std::set<size_t> inputs;
  size_t rank = 0, column = 0;
};

/// Maps the names of an operator and of its node to the same text: cross_entropy and CrossEntropy to "crossentropy".
std::string plain_name(const std::string& name) {
  std::string text;
  for (const char c : name)
    if (c != '_') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string key_of(const Explanation::Call& call) {
  return call.origin.module.empty() ? plain_name(call.op) : "layer " + call.origin.module;
}

std::vector<Box> boxes_of(const Explanation& explanation, std::vector<size_t>& box_of) {
  std::vector<Box> boxes;
  std::map<std::string, std::vector<size_t>> of_key;
  box_of.assign(explanation.calls.size(), SIZE_MAX);
  size_t at = 0;
  for (; at < explanation.calls.size() && !explanation.calls[at].backward; ++at) {
    const Explanation::Call& call = explanation.calls[at];
    if (boxes.empty() || boxes.back().key != key_of(call)) {
      const std::string& module = call.origin.module;
      boxes.emplace_back();
      boxes.back().key = key_of(call), boxes.back().title = module.empty() ? call.op : module + ": " + call.op;
      of_key[key_of(call)].push_back(boxes.size() - 1);
    }
    Box& box = boxes.back();
    box_of[at] = boxes.size() - 1;
    box.forward += call.seconds, box.result = call.result;
    for (const size_t input : call.inputs)
      if (box_of[input] != boxes.size() - 1) box.inputs.insert(box_of[input]);
  }
  std::string last;
  // If a layer has several boxes, the backward pass reaches its last box first.
  for (; at < explanation.calls.size() && explanation.calls[at].backward; ++at) {
    const std::string key = key_of(explanation.calls[at]);
    std::vector<size_t>& list = of_key[key];
    if (key != last && !last.empty() && of_key[last].size() > 1) of_key[last].pop_back();
    if (!list.empty()) box_of[at] = list.back(), boxes[list.back()].backward += explanation.calls[at].seconds;
    last = key;
  }
  std::map<size_t, size_t> columns;
  for (Box& box : boxes) {
    for (const size_t input : box.inputs) box.rank = std::max(box.rank, boxes[input].rank + 1);
    box.column = columns[box.rank]++;
  }
  return boxes;
}

std::string row_of(const std::vector<std::string>& cells) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) row += "<td>" + escaped(cell) + "</td>";
  return row + "</tr>\n";
}

}  // namespace

std::string detail::filled(std::string_view page, const std::vector<std::string>& contents) {
  std::string text;
  for (const std::string& content : contents) {
    const size_t begin = page.find("{{"), end = page.find("}}", begin);
    text.append(page.substr(0, begin)).append(content);
    page.remove_prefix(end + 2);
  }
  return text.append(page);
}

std::string detail::escaped(const std::string& text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  return result;
}

// Draws each box below all boxes whose results it reads, and lines from these boxes to it. The redder a box, the larger
// its share of the step's time.
std::string detail::picture_of(const Explanation& explanation, std::vector<size_t>* box_of) {
  const auto fitting = [](const std::string& title) {  // cuts the beginning, because the end is more specific
    constexpr size_t kMost = 44;
    return escaped(title.size() > kMost ? "\u2026" + title.substr(title.size() - kMost + 1) : title);
  };
  constexpr size_t kWidth = 330, kHeight = 40, kStepX = 350, kStepY = 62, kMargin = 90, kMostBoxes = 1000;
  std::vector<size_t> own;
  const std::vector<Box> boxes = boxes_of(explanation, box_of ? *box_of : own);
  if (boxes.size() > kMostBoxes) return "";
  size_t ranks = 0, columns = 0;
  double most = 0;
  for (const Box& box : boxes) {
    ranks = std::max(ranks, box.rank + 1), columns = std::max(columns, box.column + 1);
    most = std::max(most, box.forward + box.backward);
  }
  std::string svg;
  print_to(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\">\n", kMargin + columns * kStepX,
           ranks * kStepY);
  for (const Box& box : boxes)
    for (const size_t input : box.inputs) {
      const Box& from = boxes[input];
      const size_t x0 = kMargin + from.column * kStepX, y0 = from.rank * kStepY + kHeight;
      const size_t x1 = kMargin + box.column * kStepX, y1 = box.rank * kStepY;
      if (box.rank == from.rank + 1)
        print_to(svg, "<path d=\"M%zu %zu L%zu %zu\"/>\n", x0 + kWidth / 2, y0, x1 + kWidth / 2, y1);
      else  // draws a curve to the left, around the boxes between the two
        print_to(svg, "<path d=\"M%zu %zu C%zu %zu %zu %zu %zu %zu\"/>\n", x0, y0 - kHeight / 2, x0 - kMargin,
                 y0 + kStepY / 2, x1 - kMargin, y1 - kStepY / 2, x1, y1 + kHeight / 2);
    }
  for (const Box& box : boxes) {
    const size_t x = kMargin + box.column * kStepX, y = box.rank * kStepY;
    print_to(
        svg,
        "<rect data-box=\"%zu\" x=\"%zu\" y=\"%zu\" width=\"%zu\" height=\"%zu\" rx=\"4\" fill-opacity=\"%.2f\"/>\n",
        static_cast<size_t>(&box - boxes.data()), x, y, kWidth, kHeight,
        most > 0 ? (box.forward + box.backward) / most : 0);
    print_to(svg,
             "<text x=\"%zu\" y=\"%zu\">%s</text><text x=\"%zu\" y=\"%zu\" class=\"small\">%s, %.3f + %.3f ms</text>\n",
             x + 8, y + 17, fitting(box.title).c_str(), x + 8, y + 33, to_string(box.result).c_str(), 1e3 * box.forward,
             1e3 * box.backward);
  }
  return svg + "</svg>\n";
}

std::string Explanation::str(size_t rows) const {
  std::string text = summary_of(*this);
  print_to(text, "\n%4s %-4s %-18s %-20s %-46s %10s %8s %9s %8s  %s\n", "", "", "operator", "module",
           "kernel: implementation", "bytes", "MFLOP", "ms", "roofline", "reason");
  for (const size_t i : most_costly(kernels, rows)) {
    const Kernel& kernel = kernels[i];
    print_to(text, "%4zu %-4s %-18s %-20s %-46s %10s %8.2f %9.4f %6.0f %%  %s\n", i, kernel.backward ? "back" : "",
             kernel.op.c_str(), kernel.module.c_str(),
             (kernel.name + ": " + kernel.backend + "/" + kernel.implementation).c_str(),
             format_bytes(kernel.bytes).c_str(), static_cast<double>(kernel.flops) / 1e6, 1e3 * kernel.seconds,
             100 * kernel.roofline, kernel.reason.c_str());
  }
  if (kernels.size() > rows) print_to(text, "and %zu cheaper ones\n", kernels.size() - rows);
  print_to(text, "     between kernels %.4f ms\n", 1e3 * between_seconds);

  int64_t bytes = 0;
  for (const Saved& one : saved) bytes += one.bytes;
  print_to(text, "\nmost memory: %s beyond what was allocated before, in call %zu; saved for the backward pass: %s\n",
           format_bytes(peak_bytes).c_str(), peak_call, format_bytes(bytes).c_str());
  for (size_t i = 0; i < std::min<size_t>(saved.size(), 20); ++i)
    print_to(text, "  %10s %-22s of %s; kept by %s; until %s%s\n", format_bytes(saved[i].bytes).c_str(),
             to_string(saved[i].shape).c_str(), saved[i].made_by.c_str(), joined(saved[i].kept_by).c_str(),
             saved[i].until.c_str(), saved[i].at_peak ? "; at the peak" : "");
  if (saved.size() > 20) print_to(text, "  and %zu smaller ones\n", saved.size() - 20);
  for (const Leak& leak : leaks)
    print_to(text, "kept from step to step: %s %s, made by %s\n", format_bytes(leak.bytes).c_str(),
             to_string(leak.shape).c_str(), leak.made_by.c_str());

  for (const auto* list : {&faster, &smaller}) {
    print_to(text, list == &faster ? "\nwhat would save time:\n" : "\nwhat would save memory:\n");
    for (const Proposal& proposal : *list)
      print_to(text, "  %s: %s (%s)\n", proposal.change.c_str(), figure_of(proposal).c_str(), proposal.basis.c_str());
    if (list->empty()) text += "  nothing found\n";
  }
  for (const std::string& note : notes) text += "note: " + note + "\n";
  return text;
}

std::string Explanation::html(const std::string& title) const {
  const auto kernel_row = [&](const Kernel& kernel) {
    return row_of({std::to_string(&kernel - kernels.data()), kernel.backward ? "backward" : "forward", kernel.op,
                   kernel.module, kernel.name, kernel.backend + ": " + kernel.implementation, kernel.reason,
                   text_of(
                       kernel.shapes, [](const Shape& shape) { return to_string(shape); }, " "),
                   format_bytes(kernel.bytes), number("%.2f", static_cast<double>(kernel.flops) / 1e6),
                   number("%.4f", 1e3 * kernel.seconds), number("%.0f", 100 * kernel.roofline)});
  };
  const auto saved_row = [](const Saved& one) {
    return row_of({format_bytes(one.bytes), to_string(one.shape), one.made_by, joined(one.kept_by), one.until,
                   one.at_peak ? "yes" : ""});
  };
  const auto leak_row = [](const Leak& leak) {
    return row_of({format_bytes(leak.bytes), to_string(leak.shape), leak.made_by});
  };
  const auto proposal_row = [](const Proposal& one) { return row_of({one.change, figure_of(one), one.basis}); };
  const auto paragraph = [](const std::string& note) { return "<p>" + escaped(note) + "</p>\n"; };
  const std::string gaps = number("%.4f", 1e3 * between_seconds);
  return detail::filled(
      kExplainPage,
      {escaped(title), escaped(title), escaped(summary_of(*this)), text_of(faster, proposal_row),
       text_of(smaller, proposal_row), text_of(notes, paragraph), detail::picture_of(*this),
       text_of(kernels, kernel_row), row_of({"", "", "between kernels", "", "", "", "", "", "", "", gaps, ""}),
       format_bytes(peak_bytes), std::to_string(peak_call), text_of(saved, saved_row),
       leaks.empty() ? "" : "<h2>Kept from step to step</h2>\n<table>" + text_of(leaks, leak_row) + "</table>\n"});
}

void Explanation::save_html(const std::string& path, const std::string& title) const {
  io::write_file(path, html(title));
}

}  // namespace gradus::training
