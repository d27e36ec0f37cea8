// Convolution, plain and fused with ReLU: every geometry for both.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

namespace {

struct Geometry {
  const char* name;
  std::vector<Input> inputs;  // x, w and, if present, bias
  Pair stride, padding, dilation;
  int64_t groups;
  bool golden;
};

std::string python_pair(const Pair& pair) {
  return std::string("(").append(std::to_string(pair.h)).append(", ").append(std::to_string(pair.w)).append(")");
}

}  // namespace

static void add_conv1d(CaseList& cases) {
  cases.add("conv1d", {{2, 3, 7}, {4, 3, 3}, {4}}, [](X x) { return conv1d(x[0], x[1], x[2]); }, "F.conv1d(*x)");
  cases.add("conv1d.options", {{2, 4, 9}, {6, 2, 3}, {6}}, [](X x) { return conv1d(x[0], x[1], x[2], 2, 2, 2, 2); },
            "F.conv1d(*x, stride=2, padding=2, dilation=2, groups=2)");
  cases.add("conv1d.unbatched", {{3, 7}, {4, 3, 3}}, [](X x) { return conv1d(x[0], x[1]); }, "F.conv1d(*x)");
  cases.add("conv1d.same", {{2, 2, 6}, {3, 2, 4}, {3}}, [](X x) { return conv1d(x[0], x[1], x[2], 1, kSame); },
            "F.conv1d(*x, padding='same')");
  cases.add("conv1d.stride_beyond", {{2, 3, 7}, {4, 3, 3}, {4}}, [](X x) { return conv1d(x[0], x[1], x[2], 1 << 30); },
            "F.conv1d(*x, stride=2**30)");
  cases.add("conv2d.stride_beyond", {{1, 2, 6, 7}, {3, 2, 3, 2}, {3}},
            [](X x) { return conv2d(x[0], x[1], x[2], {9, 4}, {1, 0}); },
            "F.conv2d(*x, stride=(9, 4), padding=(1, 0))").is_image();
  cases.add("conv2d.same", {{2, 2, 5, 4}, {3, 2, 3, 2}, {3}}, [](X x) { return conv2d(x[0], x[1], x[2], 1, kSame, {2, 1}); },
            "F.conv2d(*x, padding='same', dilation=(2, 1))").is_image();
  cases.add("conv2d.valid", {{2, 2, 5, 4}, {3, 2, 3, 2}, {3}}, [](X x) { return conv2d(x[0], x[1], x[2], 2, kValid); },
            "F.conv2d(*x, padding='valid', stride=2)").is_image();
}

static void add_conv_transpose(CaseList& cases) {
  cases.add("conv_transpose2d", {{2, 3, 3, 4}, {3, 4, 3, 3}, {4}},
            [](X x) { return conv_transpose2d(x[0], x[1], x[2]); }, "F.conv_transpose2d(*x)").is_image();
  cases.add("conv_transpose2d.stride", {{1, 2, 3, 3}, {2, 3, 3, 3}, {3}},
            [](X x) { return conv_transpose2d(x[0], x[1], x[2], 2, 1, 1); },
            "F.conv_transpose2d(*x, stride=2, padding=1, output_padding=1)").is_image();
  cases.add("conv_transpose2d.uneven", {{2, 2, 3, 4}, {2, 2, 3, 2}, {2}},
            [](X x) { return conv_transpose2d(x[0], x[1], x[2], {2, 3}, {1, 0}, {0, 2}, 1, {1, 2}); },
            "F.conv_transpose2d(*x, stride=(2, 3), padding=(1, 0), output_padding=(0, 2), dilation=(1, 2))")
      .is_image();
  cases.add("conv_transpose2d.groups", {{2, 4, 3, 3}, {4, 3, 2, 2}, {6}},
            [](X x) { return conv_transpose2d(x[0], x[1], x[2], 2, 0, 0, 2); },
            "F.conv_transpose2d(*x, stride=2, groups=2)").is_image();
  cases.add("conv_transpose2d.unbatched", {{3, 3, 4}, {3, 2, 3, 3}},
            [](X x) { return conv_transpose2d(x[0], x[1]); }, "F.conv_transpose2d(*x)");
  cases.add("conv_transpose2d.no_images", {{0, 3, 3, 4}, {3, 4, 3, 3}, {4}},
            [](X x) { return conv_transpose2d(x[0], x[1], x[2]); }, "F.conv_transpose2d(*x)");
  // output_padding that includes pixels of further windows of the convolution whose gradient this is.
  cases.add("conv_transpose2d.beyond_stride", {{2, 2, 3, 3}, {2, 3, 2, 2}, {3}},
            [](X x) { return conv_transpose2d(x[0], x[1], x[2], {1, 2}, {1, 0}, {2, 3}, 1, {3, 4}); },
            "F.conv_transpose2d(*x, stride=(1, 2), padding=(1, 0), output_padding=(2, 3), dilation=(3, 4))").is_image();
  cases.add("conv_transpose2d.beyond_stride_groups", {{1, 4, 2, 3}, {4, 1, 3, 2}},
            [](X x) { return conv_transpose2d(x[0], x[1], {}, 1, 2, 1, 2, 2); },
            "F.conv_transpose2d(*x, stride=1, padding=2, output_padding=1, groups=2, dilation=2)").is_image();
  cases.add("conv_transpose1d.beyond_stride", {{2, 3, 4}, {3, 2, 3}, {2}},
            [](X x) { return conv_transpose1d(x[0], x[1], x[2], 1, 0, 1, 1, 2); },
            "F.conv_transpose1d(*x, stride=1, output_padding=1, dilation=2)");
  cases.add("conv_transpose2d.large", {{2, 20, 9, 9}, {20, 17, 4, 4}, {17}},
            [](X x) { return conv_transpose2d(x[0], x[1], x[2], 2, 1); }).is_image();
  cases.add("conv_transpose1d", {{2, 3, 5}, {3, 4, 3}, {4}},
            [](X x) { return conv_transpose1d(x[0], x[1], x[2], 2, 1, 1, 1, 2); },
            "F.conv_transpose1d(*x, stride=2, padding=1, output_padding=1, dilation=2)");
  cases.add("conv_transpose1d.unbatched", {{3, 5}, {3, 4, 3}},
            [](X x) { return conv_transpose1d(x[0], x[1]); }, "F.conv_transpose1d(*x)");
}

void add_conv(CaseList& cases) {
  add_conv1d(cases);
  add_conv_transpose(cases);
  const Geometry geometries[] = {
      {"", {{2, 3, 5, 6}, {4, 3, 3, 3}, {4}}, 1, 0, 1, 1, true},
      {".no_bias", {{2, 3, 5, 5}, {2, 3, 3, 3}}, 1, 0, 1, 1, true},
      {".padding", {{2, 2, 4, 5}, {3, 2, 3, 3}, {3}}, 1, 1, 1, 1, true},
      {".stride", {{1, 2, 7, 6}, {3, 2, 3, 3}, {3}}, 2, 1, 1, 1, true},
      {".dilation", {{1, 2, 7, 8}, {2, 2, 3, 3}, {2}}, 1, 2, 2, 1, true},
      {".uneven", {{2, 2, 7, 5}, {2, 2, 3, 2}, {2}}, {2, 1}, {0, 1}, {1, 2}, 1, true},
      {".groups", {{2, 4, 4, 4}, {6, 2, 3, 3}, {6}}, 1, 1, 1, 2, true},
      {".depthwise", {{1, 4, 5, 5}, {4, 1, 3, 3}, {4}}, 1, 1, 1, 4, true},
      {".pointwise", {{2, 3, 3, 4}, {5, 3, 1, 1}, {5}}, 1, 0, 1, 1, true},
      {".one_channel", {{2, 1, 6, 6}, {3, 1, 5, 5}, {3}}, 1, 2, 1, 1, true},
      {".whole_image", {{2, 3, 4, 4}, {4, 3, 4, 4}, {4}}, 1, 0, 1, 1, true},
      {".unread_edge", {{2, 1, 6, 6}, {1, 1, 2, 2}, {1}}, 3, 0, 1, 1, true},  // no output reads columns 2 and 5
      {".unbatched", {{3, 5, 6}, {4, 3, 3, 3}, {4}}, 1, 0, 1, 1, true},
      {".no_images", {{0, 3, 5, 6}, {4, 3, 3, 3}, {4}}, 1, 0, 1, 1, true},
      {".lenet1", {{4, 1, 28, 28}, {6, 1, 5, 5}, {6}}, 1, 2, 1, 1, false},
      {".lenet2", {{4, 6, 14, 14}, {16, 6, 5, 5}, {16}}, 1, 0, 1, 1, false},
      {".few_channels", {{2, 3, 5, 6}, {8, 3, 3, 3}, {8}}, 1, 1, 1, 1, false},
      {".channels", {{2, 20, 11, 9}, {35, 20, 3, 3}, {35}}, 1, 1, 1, 1, false},
      {".strided_channels", {{2, 17, 12, 13}, {19, 17, 3, 3}, {19}}, 2, 1, 1, 1, false},
      {".grouped_channels", {{2, 12, 9, 9}, {18, 4, 3, 3}, {18}}, 1, 1, 1, 3, false},
      {".depthwise_stride", {{2, 16, 9, 8}, {16, 1, 3, 3}, {16}}, 2, 1, 1, 16, false},
      {".depthwise_dilation", {{1, 8, 9, 12}, {8, 1, 3, 3}, {8}}, {1, 2}, 2, 2, 8, false},
      {".depthwise_5x5", {{2, 8, 8, 7}, {8, 1, 5, 5}, {8}}, 1, 2, 1, 8, false},
      {".depthwise_7x7", {{1, 5, 9, 8}, {5, 1, 7, 7}, {5}}, 2, 3, 1, 5, false},
      {".depthwise_multiplier", {{2, 3, 6, 7}, {6, 1, 3, 3}, {6}}, 2, 1, 1, 3, false},
  };
  for (const Geometry& g : geometries) {
    for (const bool fused : {false, true}) {
      const auto run = [fused, stride = g.stride, padding = g.padding, dilation = g.dilation, groups = g.groups](X x) {
        const Tensor bias = x.size() > 2 ? x[2] : Tensor();
        return TensorList{fused ? conv2d_relu(x[0], x[1], bias, stride, padding, dilation, groups)
                                : conv2d(x[0], x[1], bias, stride, padding, dilation, groups)};
      };
      const std::string torch = std::string(fused ? "F.relu(" : "(") + "F.conv2d(*x, stride=" + python_pair(g.stride) +
                                ", padding=" + python_pair(g.padding) + ", dilation=" + python_pair(g.dilation) +
                                ", groups=" + std::to_string(g.groups) + "))";
      std::vector<Input> inputs = g.inputs;
      // Half types represent these sums exactly. With other inputs, some of thousands of sums would be rounded to the
      // other side of ReLU's kink.
      if (fused && !g.golden) inputs[0].fill = inputs[1].fill = Fill::ties;
      cases.add((fused ? "conv2d_relu" : "conv2d") + std::string(g.name), inputs, run, g.golden ? torch : "").is_image();
    }
  }
}

}  // namespace gradus::op_cases
