// Interpolation, padding, and rearrangement of pixels.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

namespace {

struct Mode {
  const char* name;
  const char* torch;
  InterpolateMode mode;
  std::optional<bool> align_corners;
};

}  // namespace

static void add_interpolate(CaseList& cases) {
  const Mode modes[] = {
      {"nearest", "'nearest'", kNearest, {}},
      {"nearest_exact", "'nearest-exact'", kNearestExact, {}},
      {"bilinear", "'bilinear'", kBilinear, {}},
      {"bilinear_corners", "'bilinear', align_corners=True", kBilinear, true},
      {"bicubic", "'bicubic'", kBicubic, false},
      {"bicubic_corners", "'bicubic', align_corners=True", kBicubic, true},
      {"area", "'area'", kArea, {}},
  };
  for (const Mode& m : modes) {
    const auto add = [&](const std::string& name, const std::string& torch, auto size, auto scale) {
      const auto run = [m, size, scale](X x) {
        return TensorList{interpolate(x[0], size, scale, m.mode, m.align_corners, {}, Loc{})};
      };
      cases.add("interpolate." + std::string(m.name) + name, {{1, 2, 4, 5}}, run,
                "F.interpolate(x[0], " + torch + ", mode=" + m.torch + ")").is_image();
    };
    using Size = std::optional<IntArrayRef>;
    using Scale = std::optional<std::vector<double>>;
    add("", "(7, 3)", Size({7, 3}), Scale());
    add("_double", "scale_factor=2", Size(), Scale(std::vector<double>{2}));
    add("_odd_scale", "scale_factor=(1.3, 0.7)", Size(), Scale(std::vector<double>{1.3, 0.7}));
  }
  cases.add("interpolate.linear", {{2, 3, 5}},
            [](X x) { return interpolate(x[0], IntArrayRef{8}, {}, InterpolateMode::linear); },
            "F.interpolate(x[0], 8, mode='linear')");
  cases.add("interpolate.linear_corners", {{2, 3, 5}},
            [](X x) { return interpolate(x[0], {}, std::vector<double>{1.7}, InterpolateMode::linear, true); },
            "F.interpolate(x[0], scale_factor=1.7, mode='linear', align_corners=True)");
  cases.add("interpolate.sequence", {{2, 3, 5}}, [](X x) { return interpolate(x[0], IntArrayRef{9}); },
            "F.interpolate(x[0], 9)");
  cases.add("interpolate.recompute", {{1, 2, 5, 5}},
            [](X x) { return interpolate(x[0], {}, std::vector<double>{1.5}, kBilinear, false, true); },
            "F.interpolate(x[0], scale_factor=1.5, mode='bilinear', align_corners=False, recompute_scale_factor=True)")
      .is_image();
  cases.add("interpolate.one_pixel", {{1, 2, 1, 1}},
            [](X x) { return interpolate(x[0], IntArrayRef{3, 2}, {}, kBilinear, true); },
            "F.interpolate(x[0], (3, 2), mode='bilinear', align_corners=True)");
  cases.add("interpolate.large", {{2, 8, 17, 19}},
            [](X x) { return interpolate(x[0], {}, std::vector<double>{2}, kBilinear); }).is_image();
}

static void add_pad(CaseList& cases) {
  cases.add("pad", {{2, 3, 4, 5}}, [](X x) { return pad(x[0], {1, 2, 3, 0}); },
            "F.pad(x[0], (1, 2, 3, 0,))").on(all_types).is_image();
  cases.add("pad.value", {{3, 4}}, [](X x) { return pad(x[0], {1, 1}, kConstant, 2.5); },
            "F.pad(x[0], (1, 1,), value=2.5)");
  cases.add("pad.integer_value", {{3, 4}}, [](X x) { return pad(x[0], {0, 1, 2, 0}, kConstant, 3); },
            "F.pad(x[0], (0, 1, 2, 0,), value=3)").on(all_types);
  cases.add("pad.crop", {{2, 5, 6}}, [](X x) { return pad(x[0], {-1, 2, 1, -2}, kConstant, 1.5); },
            "F.pad(x[0], (-1, 2, 1, -2,), value=1.5)");
  cases.add("pad.all_axes", {{2, 3}}, [](X x) { return pad(x[0], {1, 0, 0, 2}); },
            "F.pad(x[0], (1, 0, 0, 2,))");
  cases.add("pad.nothing", {{0, 3}}, [](X x) { return pad(x[0], {1, 1}); },
            "F.pad(x[0], (1, 1,))");
  cases.add("pad.five", {{1, 2, 2, 3, 2}}, [](X x) { return pad(x[0], {1, 0, 0, 1, 2, 1}); },
            "F.pad(x[0], (1, 0, 0, 1, 2, 1,))");
  cases.add("pad.reflect", {{2, 2, 4, 5}}, [](X x) { return pad(x[0], {1, 2, 3, 0}, kReflect); },
            "F.pad(x[0], (1, 2, 3, 0,), mode='reflect')").is_image();
  cases.add("pad.reflect_sequence", {{2, 3, 5}}, [](X x) { return pad(x[0], {2, 1}, kReflect); },
            "F.pad(x[0], (2, 1,), mode='reflect')");
  cases.add("pad.reflect_unbatched", {{3, 5}}, [](X x) { return pad(x[0], {1, 3}, kReflect); },
            "F.pad(x[0], (1, 3,), mode='reflect')");
  cases.add("pad.reflect_volume", {{1, 2, 3, 3, 4}}, [](X x) { return pad(x[0], {1, 2, 0, 1, 2, 1}, kReflect); },
            "F.pad(x[0], (1, 2, 0, 1, 2, 1,), mode='reflect')");
  cases.add("pad.replicate", {{2, 2, 4, 5}}, [](X x) { return pad(x[0], {3, 1, 0, 2}, kReplicate); },
            "F.pad(x[0], (3, 1, 0, 2,), mode='replicate')").is_image();
  cases.add("pad.replicate_sequence", {{2, 3, 5}}, [](X x) { return pad(x[0], {2, 1}, kReplicate); },
            "F.pad(x[0], (2, 1,), mode='replicate')");
  cases.add("pad.replicate_unbatched", {{3, 5}}, [](X x) { return pad(x[0], {1, 3}, kReplicate); },
            "F.pad(x[0], (1, 3,), mode='replicate')");
  cases.add("pad.replicate_volume", {{1, 2, 3, 3, 4}}, [](X x) { return pad(x[0], {1, 2, 0, 1, 2, 1}, kReplicate); },
            "F.pad(x[0], (1, 2, 0, 1, 2, 1,), mode='replicate')");
  cases.add("pad.circular", {{2, 2, 4, 5}}, [](X x) { return pad(x[0], {2, 5, 1, 4}, kCircular); },
            "F.pad(x[0], (2, 5, 1, 4,), mode='circular')").is_image();
  cases.add("pad.circular_sequence", {{2, 3, 5}}, [](X x) { return pad(x[0], {2, 1}, kCircular); },
            "F.pad(x[0], (2, 1,), mode='circular')");
  cases.add("pad.circular_unbatched", {{3, 5}}, [](X x) { return pad(x[0], {1, 3}, kCircular); },
            "F.pad(x[0].unsqueeze(0), (1, 3), mode='circular').squeeze(0)");
  cases.add("pad.circular_volume", {{1, 2, 3, 3, 4}}, [](X x) { return pad(x[0], {1, 2, 0, 1, 2, 1}, kCircular); },
            "F.pad(x[0], (1, 2, 0, 1, 2, 1,), mode='circular')");
  cases.add("pad.circular_crop", {{1, 2, 4, 5}}, [](X x) { return pad(x[0], {-1, 3, 2, -1}, kCircular); },
            "F.pad(x[0], (-1, 3, 2, -1,), mode='circular')").is_image();
  cases.add("pad.circular_crop_both", {{2, 3, 5}}, [](X x) { return pad(x[0], {-1, -2}, kCircular); },
            "F.pad(x[0], (-1, -2,), mode='circular')");
  cases.add("pad.reflect_crop", {{2, 3, 5}}, [](X x) { return pad(x[0], {2, -2}, kReflect); },
            "F.pad(x[0], (2, -2,), mode='reflect')");
  cases.add("pad.replicate_crop", {{1, 2, 4, 5}}, [](X x) { return pad(x[0], {-1, 2, 1, -2}, kReplicate); },
            "F.pad(x[0], (-1, 2, 1, -2,), mode='replicate')");
}

static void add_columns(CaseList& cases) {
  cases.add("unfold", {{2, 2, 4, 5}}, [](X x) { return unfold(x[0], {2, 3}); }, "F.unfold(x[0], (2, 3))");
  cases.add("unfold.options", {{1, 2, 6, 7}}, [](X x) { return unfold(x[0], {3, 2}, {1, 2}, {1, 0}, {2, 1}); },
            "F.unfold(x[0], (3, 2), (1, 2), (1, 0), (2, 1))");
  cases.add("unfold.unbatched", {{2, 4, 5}}, [](X x) { return unfold(x[0], 2, 1, 1, 2); },
            "F.unfold(x[0], 2, 1, 1, 2)");
  cases.add("unfold.special", {special({1, 1, 4, 4})}, [](X x) { return unfold(x[0], 2, 1, 1); },
            "F.unfold(x[0], 2, 1, 1)").differentiable(0);
  cases.add("fold", {{2, 8, 12}}, [](X x) { return fold(x[0], {4, 5}, 2); }, "F.fold(x[0], (4, 5), 2)");
  cases.add("fold.options", {{1, 12, 24}}, [](X x) { return fold(x[0], {6, 8}, {3, 2}, {1, 2}, {1, 1}, {2, 1}); },
            "F.fold(x[0], (6, 8), (3, 2), (1, 2), (1, 1), (2, 1))");
  cases.add("fold.unbatched", {{8, 6}}, [](X x) { return fold(x[0], {3, 4}, 2); }, "F.fold(x[0], (3, 4), 2)");
  cases.add("pixel_shuffle", {{2, 8, 2, 3}}, [](X x) { return pixel_shuffle(x[0], 2); }, "F.pixel_shuffle(x[0], 2)")
      .on(all_types);
  cases.add("pixel_shuffle.unbatched", {{9, 2, 1}}, [](X x) { return pixel_shuffle(x[0], 3); },
            "F.pixel_shuffle(x[0], 3)");
  cases.add("pixel_unshuffle", {{2, 2, 4, 6}}, [](X x) { return pixel_unshuffle(x[0], 2); },
            "F.pixel_unshuffle(x[0], 2)").on(all_types);
  cases.add("channel_shuffle.no_images", {{0, 4, 3}}, [](X x) { return channel_shuffle(x[0], 2); },
            "F.channel_shuffle(x[0], 2)");
  cases.add("channel_shuffle", {{2, 6, 2, 3}}, [](X x) { return channel_shuffle(x[0], 3); },
            "x[0].view(2, 3, 2, 2, 3).transpose(1, 2).reshape(2, 6, 2, 3)").on(all_types).only_contiguous();
}

void add_resample(CaseList& cases) {
  add_interpolate(cases);
  add_pad(cases);
  add_columns(cases);
}

}  // namespace gradus::op_cases
