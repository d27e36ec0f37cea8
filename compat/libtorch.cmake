# gradus::libtorch: gradus under the names of LibTorch's headers, so that a program's own #include lines stay as they
# are. Each of them is <gradus/torch.h> and the standard headers that programs have from LibTorch without asking; opt-in,
# since they would hide a LibTorch that is installed besides.
set(libtorch_headers
    ATen/ATen.h ATen/Context.h ATen/Functions.h ATen/Parallel.h ATen/Tensor.h ATen/TensorIndexing.h
    ATen/core/Reduction.h ATen/core/TensorBody.h
    c10/core/Device.h c10/core/DeviceType.h c10/core/InferenceMode.h c10/core/Scalar.h c10/core/ScalarType.h
    c10/core/TensorOptions.h c10/util/ArrayRef.h c10/util/Exception.h c10/util/Half.h c10/util/Logging.h
    c10/util/Optional.h c10/util/StringUtil.h c10/util/irange.h c10/util/string_view.h c10/util/variant.h
    torch/all.h torch/arg.h torch/autograd.h torch/cuda.h torch/data.h torch/enum.h torch/expanding_array.h
    torch/nn.h torch/optim.h torch/ordered_dict.h torch/serialize.h torch/torch.h torch/types.h torch/utils.h
    torch/version.h torch/csrc/autograd/custom_function.h torch/csrc/autograd/grad_mode.h
    torch/csrc/autograd/variable.h torch/nn/parallel/data_parallel.h torch/optim/schedulers/lr_scheduler.h
    torch/optim/schedulers/reduce_on_plateau_scheduler.h torch/optim/schedulers/step_lr.h)
foreach(folder_and_names IN ITEMS
        "data dataloader dataloader_options datasets example iterator samplers transforms"
        "data/datasets base map mnist stateful tensor"
        "data/samplers base custom_batch_request distributed random sequential stream"
        "data/transforms base collate lambda stack tensor"
        "nn cloneable functional init module modules options pimpl utils"
        "nn/functional activation batchnorm conv distance dropout embedding fold instancenorm linear loss normalization
         padding pixelshuffle pooling upsampling vision"
        "nn/modules activation batchnorm common container conv distance dropout embedding fold instancenorm linear loss
         normalization padding pixelshuffle pooling rnn transformer transformercoder transformerlayer upsampling utils"
        "nn/modules/container any functional moduledict modulelist named_any parameterdict parameterlist sequential"
        "nn/options activation batchnorm conv dropout embedding fold instancenorm linear loss normalization padding
         pixelshuffle pooling rnn transformer transformercoder transformerlayer upsampling vision"
        "nn/utils clip_grad convert_parameters"
        "optim adagrad adam adamw lbfgs optimizer rmsprop serialize sgd"
        "serialize archive input-archive output-archive tensor")
  separate_arguments(names UNIX_COMMAND "${folder_and_names}")
  list(POP_FRONT names folder)
  list(TRANSFORM names REPLACE "(.+)" "torch/${folder}/\\1.h")
  list(APPEND libtorch_headers ${names})
endforeach()
set(libtorch_folder ${PROJECT_BINARY_DIR}/include/gradus_libtorch)
set(libtorch_content "#pragma once\n")
foreach(header cassert cfloat chrono climits condition_variable deque functional iomanip list map mutex numeric queue random
        set thread unordered_map unordered_set gradus/torch.h)
  string(APPEND libtorch_content "#include <${header}>\n")
endforeach()
foreach(header IN LISTS libtorch_headers)
  file(CONFIGURE OUTPUT ${libtorch_folder}/${header} CONTENT "${libtorch_content}" @ONLY)
endforeach()
configure_file(compat/libtorch_script.h ${libtorch_folder}/torch/script.h COPYONLY)

add_library(gradus_libtorch INTERFACE)
add_library(gradus::libtorch ALIAS gradus_libtorch)
set_target_properties(gradus_libtorch PROPERTIES EXPORT_NAME libtorch)
target_link_libraries(gradus_libtorch INTERFACE gradus)
target_include_directories(gradus_libtorch INTERFACE $<BUILD_INTERFACE:${libtorch_folder}>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/gradus_libtorch>)
