# The CUDA backends. Only register.cpp asks whether they are there.
file(GLOB cuda_sources CONFIGURE_DEPENDS backends/cuda/*/*.cu backends/cuda/*/*.cpp)
# wgmma is an instruction of sm_90a alone: files with it are compiled for that whatever else the build serves. They run on
# devices of compute capability 9.0 and nowhere else (select()).
set(sm90a_sources ${cuda_sources})
list(FILTER sm90a_sources INCLUDE REGEX "/wgmma_[a-z0-9]+\\.cu$")
list(REMOVE_ITEM cuda_sources ${sm90a_sources})
target_sources(gradus PRIVATE ${cuda_sources} $<TARGET_OBJECTS:gradus_sm90a>)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.25.2 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
add_library(gradus_sm90a OBJECT ${sm90a_sources})
set_target_properties(gradus_sm90a PROPERTIES CUDA_ARCHITECTURES 90a-real POSITION_INDEPENDENT_CODE ON)
set_target_properties(gradus gradus_sm90a PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
target_compile_options(gradus PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-ffp-contract=off;--diag-suppress=186>")
target_include_directories(gradus_sm90a PRIVATE $<TARGET_PROPERTY:gradus,INCLUDE_DIRECTORIES>)
target_compile_options(gradus_sm90a PRIVATE $<TARGET_PROPERTY:gradus,COMPILE_OPTIONS>)
# PTX that the driver would compile when a program starts, which takes minutes for all kernels, is compiled here: the code is
# that of the older architecture, and the machine code that of the newer.
if(GRADUS_CUDA_COMPILE_PTX_FOR)
  set(kernels ${cuda_sources})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(architecture MATCHES "^([0-9]+)-virtual$")
      set(code "arch=compute_${CMAKE_MATCH_1},code=sm_${GRADUS_CUDA_COMPILE_PTX_FOR}")
      set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS "--generate-code=${code}")
    endif()
  endforeach()
endif()
target_link_libraries(gradus PRIVATE CUDA::cudart_static CUDA::cublas CUDA::cublasLt)
# Named in the error of a device that none of them serves.
list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
set_source_files_properties(backends/cuda/runtime/check.cpp PROPERTIES
                            COMPILE_DEFINITIONS "GRADUS_CUDA_ARCHITECTURES=\"${architectures}\"")
set_source_files_properties(backends/register.cpp PROPERTIES COMPILE_DEFINITIONS GRADUS_WITH_CUDA=1)

if(GRADUS_WITH_NCCL)
  file(GLOB nccl_sources CONFIGURE_DEPENDS distributed/comm/nccl/*.cpp distributed/comm/nccl/*.cu)
  target_sources(gradus PRIVATE ${nccl_sources})
  target_include_directories(gradus SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
  target_link_libraries(gradus PRIVATE ${NCCL_LIBRARY})
  set_source_files_properties(distributed/comm/process_group_factory.cpp PROPERTIES
                              COMPILE_DEFINITIONS GRADUS_WITH_NCCL=1)
endif()

if(GRADUS_WITH_CUDNN)
  file(GLOB cudnn_sources CONFIGURE_DEPENDS backends/cudnn/*.cpp)
  target_sources(gradus PRIVATE ${cudnn_sources})
  target_include_directories(gradus SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR})
  target_link_libraries(gradus PRIVATE ${CUDNN_LIBRARY})
  set_property(SOURCE backends/register.cpp APPEND PROPERTY COMPILE_DEFINITIONS GRADUS_WITH_CUDNN=1)
endif()
