// 6. Weights from PyTorch: a ResNet-18 with weights of PyTorch gives the same results as in PyTorch.
//
// tests/transfer/make_models.py wrote two files with PyTorch: the weights, and a few images with the logits that
// PyTorch computed for them. Run this program in the root of the repository, or pass the folder of the files:
// 06_pytorch_weights tests/transfer
#include <gradus/core/io/safetensors.h>
#include <gradus/gradus.h>

#include <filesystem>
#include <iostream>

#include <gradus/examples/common/resnet.h>

using namespace gradus;

int main(int argc, char** argv) {
  try {
    const std::string folder = argc > 1 ? argv[1] : "tests/transfer";

    // The layers and their names are the same as in PyTorch, so the file can be loaded. The net is narrow, to keep the
    // file small.
    ResNet18 net(ResNet18Options().width(6));
    load(net, folder + "/resnet18.safetensors");
    net->eval();  // batch norm uses the running statistics from the file

    auto results = io::load_safetensors(folder + "/resnet18_results.safetensors");
    const Tensor images(results.at("images")), theirs(results.at("logits"));  // (8, 3, 32, 32), (8, 10)
    const NoGradGuard no_grad;
    const Tensor ours = net(images);
    std::cout << "logits of the first image, here and there:\n" << stack({ours[0], theirs[0]}, 1) << '\n';
    std::cout << "largest difference of all: " << (ours - theirs).abs().max().item<float>() << "\n\n";

    // The file does not fit a wider net. Loading throws an error and leaves the net unchanged.
    try {
      ResNet18 wide(ResNet18Options().width(8));
      load(wide, folder + "/resnet18.safetensors");
    } catch (const ShapeError& error) {
      std::cout << "a wider net: " << std::string(error.what()).substr(0, 200) << " …\n\n";
    }

    // For a new task, loads all weights except those of the last layer, which keeps its random weights.
    ResNet18 four_classes(ResNet18Options().width(6).classes(4));
    nn::StateDict body;
    for (auto& [name, array] : io::load_safetensors(folder + "/resnet18.safetensors"))
      if (name.rfind("fc.", 0) != 0) body.insert(name, Tensor(array));
    for (const std::string& name : four_classes->load_state_dict(body, /*strict=*/false).missing_keys)
      std::cout << "keeps its fresh weights: " << name << '\n';

    // In the other direction: PyTorch can load this file with safetensors.torch.load_file and load_state_dict.
    const std::string file = (std::filesystem::temp_directory_path() / "resnet18_from_gradus.safetensors").string();
    save(net, file);
    std::cout << "wrote " << file << '\n';
    return 0;
  } catch (const Error& error) {
    std::cerr << "06_pytorch_weights: " << error.what() << '\n';
    return 1;
  }
}
