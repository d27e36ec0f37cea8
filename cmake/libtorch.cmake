# gradus::libtorch: gradus under the names of LibTorch's headers, so that a program's own #include lines stay as they
# are. Each of them is <gradus/torch.h> and the standard headers that programs have from LibTorch without asking; opt-in,
# since they would hide a LibTorch that is installed besides.
set(libtorch_headers
    ATen/ATen.h ATen/Context.h ATen/Functions.h ATen/Tensor.h ATen/TensorIndexing.h
    c10/core/Device.h c10/core/DeviceType.h c10/core/InferenceMode.h c10/core/Scalar.h c10/core/ScalarType.h
    c10/core/TensorOptions.h c10/util/ArrayRef.h c10/util/Exception.h c10/util/Half.h c10/util/Optional.h
    c10/util/StringUtil.h c10/util/irange.h c10/util/string_view.h c10/util/variant.h
    torch/all.h torch/arg.h torch/autograd.h torch/cuda.h torch/data.h torch/data/dataloader.h torch/data/datasets.h
    torch/data/example.h torch/data/samplers.h torch/data/transforms.h torch/enum.h torch/expanding_array.h
    torch/nn.h torch/nn/cloneable.h torch/nn/functional.h torch/nn/init.h torch/nn/module.h
    torch/nn/modules.h torch/nn/modules/container/any.h torch/nn/modules/container/sequential.h
    torch/nn/modules/conv.h torch/nn/modules/linear.h torch/nn/options.h torch/nn/parallel/data_parallel.h
    torch/nn/pimpl.h torch/nn/utils.h torch/optim.h torch/optim/adam.h torch/optim/optimizer.h torch/optim/sgd.h
    torch/ordered_dict.h torch/serialize.h torch/torch.h torch/types.h torch/utils.h torch/version.h
    torch/csrc/autograd/custom_function.h torch/csrc/autograd/grad_mode.h torch/csrc/autograd/variable.h)
set(libtorch_folder ${PROJECT_BINARY_DIR}/include/gradus_libtorch)
set(libtorch_content "#pragma once\n")
foreach(header cassert cfloat chrono climits condition_variable deque functional iomanip list map mutex numeric queue random
        set thread unordered_map unordered_set gradus/torch.h)
  string(APPEND libtorch_content "#include <${header}>\n")
endforeach()
foreach(header IN LISTS libtorch_headers)
  file(CONFIGURE OUTPUT ${libtorch_folder}/${header} CONTENT "${libtorch_content}" @ONLY)
endforeach()
configure_file(cmake/libtorch_script.h ${libtorch_folder}/torch/script.h COPYONLY)

add_library(gradus_libtorch INTERFACE)
add_library(gradus::libtorch ALIAS gradus_libtorch)
set_target_properties(gradus_libtorch PROPERTIES EXPORT_NAME libtorch)
target_link_libraries(gradus_libtorch INTERFACE gradus)
target_include_directories(gradus_libtorch INTERFACE $<BUILD_INTERFACE:${libtorch_folder}>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/gradus_libtorch>)
