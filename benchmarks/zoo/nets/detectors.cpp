// Detectors: nets that find the boxes of objects in images, and their classes.
#include <cmath>

#include <gradus/benchmarks/zoo/nets/blocks.h>
#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace {

namespace F = nn::functional;

constexpr int64_t kClasses = 20;
constexpr int64_t kShapes = 3;           // anchors at each position of a map of features
constexpr int64_t kMaps[] = {16, 8, 4};  // sides of the maps of features, of images of 128x128

// ---- Boxes: (…, 4) with centre x, centre y, width and height, as parts of the image ----

/// Returns the anchors of all positions of all maps: (A, 4), three shapes at each position.
Tensor make_anchors() {
  std::vector<float> anchors;
  for (const int64_t side : kMaps)
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x)
        for (const auto& [width, height] : {std::pair{2.0, 2.0}, {3.0, 1.5}, {1.5, 3.0}})
          for (const double value : {x + 0.5, y + 0.5, width, height})
            anchors.push_back(static_cast<float>(value / static_cast<double>(side)));
  return tensor(anchors).view({-1, 4});
}

/// Returns left, top, right and bottom.
Tensor corners(const Tensor& boxes) {
  const TensorList parts = boxes.split(2, -1);
  return cat({parts[0] - parts[1] / 2, parts[0] + parts[1] / 2}, -1);
}

/// Returns the intersection over union of each of boxes (N, G, 4) with each anchor: (N, G, A).
Tensor overlaps(const Tensor& boxes, const Tensor& anchors) {
  const TensorList a = corners(boxes).unsqueeze(2).split(2, -1), b = corners(anchors).split(2, -1);
  const Tensor common = (minimum(a[1], b[1]) - maximum(a[0], b[0])).clamp_min(0).prod(-1);
  return common / ((a[1] - a[0]).prod(-1) + (b[1] - b[0]).prod(-1) - common);
}

/// What a detector shall say at each anchor.
struct Targets {
  Tensor is_object;  // (N, A): does a box cover the anchor?
  Tensor classes;    // (N, A): the class of the box that covers it best
  Tensor offsets;    // (N, A, 4): that box, relative to the anchor
};

/// `random` (N, G, 4) in [0, 1) makes boxes, from a tenth of the image's width and height to six tenths of them.
Targets targets_of(const Tensor& random, const Tensor& classes, const Tensor& anchors) {
  const Tensor boxes = cat({random.slice(2, 0, 2), 0.1 + random.slice(2, 2) / 2}, 2);
  const auto [overlap, best] = overlaps(boxes, anchors).max(1);  // (N, A)
  const Tensor matched = boxes.gather(1, best.unsqueeze(2).expand({-1, -1, 4}));
  const TensorList box = matched.split(2, 2), anchor = anchors.split(2, 1);
  const Tensor offsets = cat({(box[0] - anchor[0]) / anchor[1] / 0.1, log(box[1] / anchor[1]) / 0.2}, 2);
  return {overlap > 0.5, classes.gather(1, best), offsets};
}

/// Returns predictions (N, shapes * values, H, W) as (N, H * W * shapes, values).
Tensor by_anchor(const Tensor& x, int64_t values) { return x.permute({0, 2, 3, 1}).reshape({x.size(0), -1, values}); }

/// Returns the sum of the smooth L1 losses of all anchors with objects.
Tensor box_loss(const Tensor& offsets, const Targets& targets) {
  const Tensor loss = F::smooth_l1_loss(offsets, targets.offsets, F::SmoothL1LossFuncOptions().reduction(kNone));
  return (loss.sum(2) * targets.is_object).sum();
}

/// Computes the maps of features: (N, 128, 16, 16), (N, 256, 8, 8) and (N, 256, 4, 4) from images (N, 3, 128, 128).
struct BackboneImpl : nn::Module {
  BackboneImpl() {
    int64_t in = 64;
    for (const int64_t out : kChannels) {
      stages->push_back(halving_stage(in, out));
      in = out;
    }
    register_module("stem", stem);
    register_module("stages", stages);
  }
  /// Returns two convolutions, of which the first halves the size of images.
  static nn::Sequential halving_stage(int64_t in, int64_t out) {
    return nn::Sequential(conv_bn(in, out, 3, 2, 1, "relu"), conv_bn(out, out, 3, 1, 1, "relu"));
  }
  TensorList forward(const Tensor& images) {
    TensorList maps;
    Tensor x = stem(images);
    for (size_t i = 0; i < stages->size(); ++i) maps.push_back(x = stages->at<nn::Sequential>(i).forward(x));
    return maps;
  }

  static constexpr int64_t kChannels[] = {128, 256, 256};
  nn::Sequential stem{conv_bn(3, 32, 3, 2, 1, "relu"), conv_bn(32, 64, 3, 2, 1, "relu")};
  nn::ModuleList stages;
};
GRADUS_MODULE(Backbone);

// ---- SSD ----

/// Liu et al., "SSD: single shot multibox detector", 2016, with a small backbone. Each map of features has a
/// convolution for the classes, of which the first means that there is no object, and one for the boxes.
struct SsdImpl : nn::Module {
  SsdImpl() {
    for (const int64_t channels : BackboneImpl::kChannels) {
      class_heads->push_back(conv_3x3(channels, kShapes * (1 + kClasses)));
      box_heads->push_back(conv_3x3(channels, kShapes * 4));
    }
    register_module("backbone", backbone);
    register_module("class_heads", class_heads);
    register_module("box_heads", box_heads);
    anchors = register_buffer("anchors", make_anchors());
  }
  Tensor loss(const Tensor& images, const Targets& targets) {
    TensorList logits, offsets;
    for (const Tensor& map : backbone(images)) {
      const size_t i = logits.size();
      logits.push_back(by_anchor(class_heads->at<nn::Conv2d>(i).forward(map), 1 + kClasses));
      offsets.push_back(by_anchor(box_heads->at<nn::Conv2d>(i).forward(map), 4));
    }
    const Tensor class_losses =
        F::cross_entropy(cat(logits, 1).transpose(1, 2), targets.is_object * (1 + targets.classes),
                         F::CrossEntropyFuncOptions().reduction(kNone));  // (N, A)
    const Tensor objects = targets.is_object.sum(1, true);
    // Three anchors without an object count for each one that has an object: those with the largest losses.
    const Tensor rank = class_losses.detach().masked_fill(targets.is_object, -1).argsort(1, true).argsort(1);
    const Tensor counts = targets.is_object | (rank < 3 * objects);
    return ((class_losses * counts).sum() + box_loss(cat(offsets, 1), targets)) / objects.sum().clamp_min(1);
  }

  Backbone backbone;
  nn::ModuleList class_heads, box_heads;
  Tensor anchors;
};
GRADUS_MODULE(Ssd);

// ---- RetinaNet ----

/// Returns three convolutions, which are applied to all maps of the pyramid.
nn::Sequential pyramid_head(int64_t width, int64_t out) {
  return nn::Sequential(conv_3x3(width, width), nn::ReLU(), conv_3x3(width, width), nn::ReLU(), conv_3x3(width, out));
}

/// RetinaNet (Lin et al., "Focal loss for dense object detection", 2017) with a small backbone: coarse maps of features
/// are added to finer ones.
struct RetinaNetImpl : nn::Module {
  RetinaNetImpl() {
    for (const int64_t channels : BackboneImpl::kChannels)
      laterals->push_back(nn::Conv2d(nn::Conv2dOptions(channels, kWidth, 1)));
    register_module("backbone", backbone);
    register_module("laterals", laterals);
    register_module("class_head", class_head);
    nn::init::constant_(class_head->at<nn::Conv2d>(4).bias, -std::log(99.0));  // each class has probability 0.01
    register_module("box_head", box_head);
    anchors = register_buffer("anchors", make_anchors());
  }
  TensorList pyramid(const Tensor& images) {
    TensorList maps = backbone(images);
    for (size_t i = maps.size(); i-- > 0;) {
      const Tensor own = laterals->at<nn::Conv2d>(i).forward(maps[i]);
      maps[i] = i + 1 == maps.size() ? own : own + F::interpolate(maps[i + 1], twice_as_large);
    }
    return maps;
  }
  Tensor loss(const Tensor& images, const Targets& targets) {
    TensorList all_logits, offsets;
    for (const Tensor& map : pyramid(images)) {
      all_logits.push_back(by_anchor(class_head(map), kClasses));
      offsets.push_back(by_anchor(box_head(map), 4));
    }
    const Tensor logits = cat(all_logits, 1), p = sigmoid(logits);  // (N, A, classes)
    const Tensor is_class = (one_hot(targets.classes, kClasses) * targets.is_object.unsqueeze(2)).to(kBool);
    const Tensor focus = where(is_class, 0.25 * (1 - p).square(), 0.75 * p.square());
    const Tensor class_losses = F::binary_cross_entropy_with_logits(
        logits, is_class.to(logits.dtype()), F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(kNone));
    return ((focus * class_losses).sum() + box_loss(cat(offsets, 1), targets)) / targets.is_object.sum().clamp_min(1);
  }

  static constexpr int64_t kWidth = 128;
  const F::InterpolateFuncOptions twice_as_large =
      F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(kNearest);
  Backbone backbone;
  nn::ModuleList laterals;
  nn::Sequential class_head = pyramid_head(kWidth, kShapes*kClasses), box_head = pyramid_head(kWidth, kShapes * 4);
  Tensor anchors;
};
GRADUS_MODULE(RetinaNet);

/// Makes a detector.
template <class Detector>
Net detector() {
  const Detector net;
  return one_phase(net.ptr(), [net](const TensorList& batch) {
    return net->loss(batch[0], targets_of(batch[1], batch[2], net->anchors));
  });
}

}  // namespace

std::vector<Entry> detector_nets() {
  const auto inputs = [](int64_t batch) {
    return std::vector<Input>{
        {"normal", {batch, 3, 128, 128}}, {"uniform", {batch, 5, 4}}, {"integers", {batch, 5}, kClasses}};
  };
  return {{"ssd", 8, detector<Ssd>, inputs}, {"retinanet", 8, detector<RetinaNet>, inputs}};
}

}  // namespace gradus::zoo
